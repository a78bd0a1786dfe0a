#include "tools/checkpoint_inspect/entry_selection.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

std::vector<StoredEntry> Entries(const std::vector<std::string>& names) {
  std::vector<StoredEntry> entries(names.size());
  for (size_t i = 0; i < names.size(); ++i) entries[i].spec.name = names[i];
  return entries;
}

TEST(SelectEntries, TakesThoseThatMatchInTheirOrder) {
  const auto entries = Entries({"model.b.weight", "epoch", "model.a.weight", "model.a.bias"});
  EXPECT_THAT(SelectEntries(entries, "model.*.weight", "here").value(), ElementsAre(0, 2));
  EXPECT_THAT(SelectEntries(entries, "epo?h", "here").value(), ElementsAre(1));
  EXPECT_THAT(SelectEntries(entries, "", "here").value(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SelectEntries({}, "", "here").value(), ElementsAre());
}

TEST(SelectEntries, NamesTheNearestWhereNothingMatches) {
  const auto entries = Entries({"optimizer.step", "model.layers.0.weight", "model.layers.1.weight",
                                "model.layers.1.weight", "model.layers.0.bias", "epoch"});
  EXPECT_EQ(SelectEntries(entries, "model.layer.*.weights", "step 1 of run").status(),
            absl::NotFoundError("nothing in step 1 of run matches 'model.layer.*.weights'; nearest: "
                                "model.layers.0.weight, model.layers.1.weight, model.layers.0.bias"));
  EXPECT_EQ(SelectEntries({}, "x", "step 1 of run").status(),
            absl::NotFoundError("nothing in step 1 of run matches 'x'; it has no entries"));
}

TEST(DistanceFromGlob, CountsWhatMustChange) {
  EXPECT_EQ(DistanceFromGlob("weight", "weight"), 0u);
  EXPECT_EQ(DistanceFromGlob("weights", "weight"), 1u);
  EXPECT_EQ(DistanceFromGlob("wieght", "weight"), 2u);
  EXPECT_EQ(DistanceFromGlob("", "abc"), 3u);
  EXPECT_EQ(DistanceFromGlob("abc", ""), 3u);
  EXPECT_EQ(DistanceFromGlob("*", "anything"), 0u);
  EXPECT_EQ(DistanceFromGlob("a*c", "abbbc"), 0u);
  EXPECT_EQ(DistanceFromGlob("a*d", "abbbc"), 1u);
  EXPECT_EQ(DistanceFromGlob("a?c", "abc"), 0u);
  EXPECT_EQ(DistanceFromGlob("a?c", "ac"), 1u);
  EXPECT_EQ(DistanceFromGlob("*.weight", "model.0.bias"), DistanceFromGlob("weight", "bias"));
}

TEST(NearestNames, TakesAFewAndEachOnce) {
  EXPECT_THAT(NearestNames("verfy", std::vector<std::string>{"show", "verify", "vary", "verify", "very", "repair"}),
              ElementsAre("verify", "very", "vary"));
  EXPECT_THAT(NearestNames("x", {}), ElementsAre());
}

TEST(NothingMatches, StaysQuickForLongNames) {
  const std::vector<std::string> names(1000, std::string(4096, 'a'));
  const absl::Status status = NothingMatches(std::string(4096, 'b'), names, "here");
  EXPECT_TRUE(absl::IsNotFound(status));
}

}  // namespace
}  // namespace tidemark::inspect
