#include "tools/checkpoint_inspect/tensors/tensor_tree.h"

#include <string>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// "path depth entries bytes", with '*' where it is a leaf.
std::vector<std::string> Told(const std::vector<TreeNode>& nodes) {
  std::vector<std::string> told;
  for (const TreeNode& node : nodes) {
    told.push_back(std::string(node.path) + (node.leaf ? "*" : "") + " " + std::to_string(node.depth) + " " +
                   std::to_string(node.entries) + " " + std::to_string(node.bytes));
  }
  return told;
}

TEST(TensorTree, SumsUpWhatIsBelow) {
  const TreeLeaf leaves[] = {{.name = "model.b.weight", .bytes = 1},
                             {.name = "epoch", .bytes = 8},
                             {.name = "model.a", .bytes = 20},
                             {.name = "model.b.bias", .bytes = 4}};
  EXPECT_THAT(Told(MakeTree(leaves, EntryOrder::kSaved)),
              ElementsAre(" 0 4 33", "model 1 3 25", "model.b 2 2 5", "model.b.weight* 3 1 1", "model.b.bias* 3 1 4",
                          "model.a* 2 1 20", "epoch* 1 1 8"));
  EXPECT_THAT(Told(MakeTree(leaves, EntryOrder::kName)),
              ElementsAre(" 0 4 33", "epoch* 1 1 8", "model 1 3 25", "model.a* 2 1 20", "model.b 2 2 5",
                          "model.b.bias* 3 1 4", "model.b.weight* 3 1 1"));
  EXPECT_THAT(Told(MakeTree(leaves, EntryOrder::kSize)),
              ElementsAre(" 0 4 33", "model 1 3 25", "model.a* 2 1 20", "model.b 2 2 5", "model.b.bias* 3 1 4",
                          "model.b.weight* 3 1 1", "epoch* 1 1 8"));
}

TEST(TensorTree, TellsWhichLeafANodeIs) {
  const TreeLeaf leaves[] = {{.name = "a.b"}, {.name = "c"}};
  const std::vector<TreeNode> nodes = MakeTree(leaves, EntryOrder::kSaved);
  ASSERT_THAT(nodes, SizeIs(4));
  EXPECT_EQ(nodes[2].leaf, 0u);
  EXPECT_EQ(nodes[2].label, "b");
  EXPECT_EQ(nodes[3].leaf, 1u);
}

TEST(TensorTree, IsNoLeafWhereMoreIsBelowOrSeveralRanksHoldIt) {
  const TreeLeaf leaves[] = {
      {.name = "a", .bytes = 1}, {.name = "a.b", .bytes = 2}, {.name = "c", .bytes = 3}, {.name = "c", .bytes = 4}};
  EXPECT_THAT(Told(MakeTree(leaves, EntryOrder::kSaved)), ElementsAre(" 0 4 10", "a 1 2 3", "a.b* 2 1 2", "c 1 2 7"));
}

TEST(TensorTree, KeepsEmptyPartsOfNames) {
  const TreeLeaf leaves[] = {{.name = ".a", .bytes = 1}, {.name = "b..c", .bytes = 2}, {.name = "d.", .bytes = 4}};
  EXPECT_THAT(
      Told(MakeTree(leaves, EntryOrder::kSaved)),
      ElementsAre(" 0 3 7", " 1 1 1", ".a* 2 1 1", "b 1 1 2", "b. 2 1 2", "b..c* 3 1 2", "d 1 1 4", "d.* 2 1 4"));
}

TEST(TensorTree, MergesStatistics) {
  const std::vector<float> three = {3};
  const std::vector<float> four = {4, 0};
  TensorStatistics first;
  first.Add(Dtype::kFloat32, std::as_bytes(std::span(three)));
  TensorStatistics second;
  second.Add(Dtype::kFloat32, std::as_bytes(std::span(four)));
  const TreeLeaf leaves[] = {
      {.name = "m.a", .statistics = &first}, {.name = "m.b", .statistics = &second}, {.name = "text"}};
  const std::vector<TreeNode> nodes = MakeTree(leaves, EntryOrder::kSaved);
  ASSERT_THAT(nodes, SizeIs(5));
  EXPECT_DOUBLE_EQ(nodes[1].statistics->Norm(), 5);
  EXPECT_EQ(nodes[0].statistics->numbers, 3u);
  EXPECT_EQ(nodes[2].statistics->numbers, 1u);
  EXPECT_EQ(nodes[4].statistics, nullptr);
}

TEST(TensorTree, IsNoDeeperThanItsBoundWhateverTheNames) {
  std::string name;
  for (int i = 0; i < 2000; ++i) name += "a.";
  const TreeLeaf leaf{.name = name, .bytes = 1};
  const std::vector<TreeNode> nodes = MakeTree({&leaf, 1}, EntryOrder::kSaved);
  ASSERT_THAT(nodes, SizeIs(kTreeDepthMax + 1));
  EXPECT_EQ(nodes.back().path, name);
  EXPECT_EQ(nodes.back().leaf, 0u);
  EXPECT_EQ(nodes.back().depth, kTreeDepthMax);
}

}  // namespace
}  // namespace tidemark::inspect
