#include "tools/checkpoint_inspect/tensors/name_groups.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

std::vector<std::string> Labels(const std::vector<NameGroup>& groups) {
  std::vector<std::string> labels;
  for (const NameGroup& group : groups) labels.push_back(group.label);
  return labels;
}

TEST(GroupNames, KeepsEachNameWhereThereIsRoom) {
  const std::vector<std::string> names = {"b", "a.x", "a.y"};
  const std::vector<NameGroup> groups = GroupNames(names, 3);
  EXPECT_THAT(Labels(groups), ElementsAre("b", "a.x", "a.y"));
  EXPECT_THAT(groups[2].members, ElementsAre(2));
  EXPECT_TRUE(GroupNames({}, 3).empty());
}

TEST(GroupNames, SplitsTheLargestGroupAsLongAsThereIsRoom) {
  const std::vector<std::string> names = {"model.0.w", "head", "model.0.b", "model.1.w", "model.1.b", "opt/a", "opt/b"};
  const std::vector<NameGroup> groups = GroupNames(names, 4);
  EXPECT_THAT(Labels(groups), ElementsAre("model.0.*", "head", "model.1.*", "opt/*"));
  EXPECT_THAT(groups[0].members, ElementsAre(0, 2));
  EXPECT_THAT(groups[3].members, ElementsAre(5, 6));
  // Both of model.0 fit into a fifth row; then nothing else does.
  EXPECT_THAT(Labels(GroupNames(names, 5)), ElementsAre("model.0.w", "head", "model.0.b", "model.1.*", "opt/*"));
}

TEST(GroupNames, SplitsBehindAPrefixThatAllShare) {
  const std::vector<std::string> names = {"net.body.a.x", "net.body.a.y", "net.body.b.x", "net.body.b.y"};
  EXPECT_THAT(Labels(GroupNames(names, 2)), ElementsAre("net.body.a.*", "net.body.b.*"));
  EXPECT_THAT(Labels(GroupNames(names, 1)), ElementsAre("net.body.*"));
}

TEST(GroupNames, TakesRunsOfNeighboursWhereNamesHaveNothingInCommon) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  const std::vector<NameGroup> groups = GroupNames(names, 2);
  EXPECT_THAT(Labels(groups), ElementsAre("a … c", "d … e"));
  EXPECT_THAT(groups[1].members, ElementsAre(3, 4));
}

TEST(GroupNames, PutsEveryNameIntoOneGroup) {
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) names.push_back("layers." + std::to_string(i % 7) + "." + std::to_string(i));
  names.push_back("layers");
  names.push_back("layers");
  for (size_t max = 1; max < 40; ++max) {
    const std::vector<NameGroup> groups = GroupNames(names, max);
    EXPECT_LE(groups.size(), max);
    std::vector<int> seen(names.size());
    for (const NameGroup& group : groups) {
      for (const size_t member : group.members) ++seen[member];
    }
    EXPECT_THAT(seen, testing::Each(1)) << max;
  }
}

}  // namespace
}  // namespace tidemark::inspect
