#include "tools/checkpoint_inspect/output/comparison_output.h"

#include <cmath>
#include <cstdio>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/fake_tensor_source.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

using Floats = std::vector<float>;

// What two ranks hold of tensors of two rows each.
class ComparisonOutput : public testing::Test {
 protected:
  ComparisonOutput() {
    a_.AddBox<float>("split", Dtype::kFloat32, {2, 2}, {0, 0}, {1, 2}, 0, {1, 1});
    a_.AddBox<float>("split", Dtype::kFloat32, {2, 2}, {1, 0}, {1, 2}, 1, {1, 1});
    b_.AddBox<float>("split", Dtype::kFloat32, {2, 2}, {0, 0}, {1, 2}, 0, {1, 1});
    b_.AddBox<float>("split", Dtype::kFloat32, {2, 2}, {1, 0}, {1, 2}, 1, {1, 3});
    a_.AddBox<float>("moved", Dtype::kFloat32, {2}, {0}, {1}, 0, {1});
    a_.AddBox<float>("moved", Dtype::kFloat32, {2}, {1}, {1}, 1, {1});
    b_.Add<float>("moved", Dtype::kFloat32, {1, 1});
    entries_ = MatchEntries(a_.entries(), b_.entries(), "");
    const absl::Status read = CompareTensors(a_, b_, entries_, [](std::string_view, uint64_t, uint64_t) {});
    EXPECT_TRUE(read.ok()) << read;
  }

  ComparedEntries sides() const { return {a_.entries(), b_.entries()}; }

  FakeTensorSource a_;
  FakeTensorSource b_;
  std::vector<EntryComparison> entries_;
  const Console console_{stdout, stderr};
};

TEST_F(ComparisonOutput, TellsOfPartsWhereTheyAreInTheWhole) {
  SortByChange(&entries_);
  EXPECT_EQ(ComparisonTable(console_, sides(), entries_, /*structure_only=*/false).Format(console_),
            "   NAME   TYPE     SHAPE                    CHANGE      COSINE  LARGEST  AT\n"
            "?  moved  float32  held differently\n"
            "  A: rank 0 [2] held [0:1]; rank 1 [2] held [1:2]\n"
            "  B: rank 0 [2]\n"
            "~  split  float32  [2, 2] held [1:2, 0:2]  1.41421  0.89442719        2  [1, 1]\n");
  EXPECT_EQ(FormatCounts(entries_, /*structure_only=*/false),
            "1 changed, 0 added, 0 removed, 1 held differently, 1 same\n");
}

TEST_F(ComparisonOutput, GivesEveryPartAsJson) {
  SortByChange(&entries_);
  ASSERT_EQ(entries_.size(), 3u);  // the first is the same on both sides
  const Json moved = ToJson(sides(), entries_[1]);
  EXPECT_EQ(moved["difference"], "held_differently");
  EXPECT_EQ(moved["a"].size(), 2u);
  EXPECT_EQ(moved["a"][1]["rank"], 1);
  EXPECT_EQ(moved["a"][1]["box"]["offset"], Json({1}));
  EXPECT_EQ(moved["b"].size(), 1u);
  EXPECT_EQ(ToJson(sides(), entries_[2])["change"]["largest_at"], Json({1, 1}));
  EXPECT_EQ(CountsToJson(entries_)["held_differently"], 1);
  EXPECT_EQ(CountsToJson(entries_)["same"], 1);
}

TEST(SortByChange, PutsInFrontWhatNoFigureTellsOf) {
  FakeTensorSource a;
  FakeTensorSource b;
  const auto both = [&](const std::string& name, const Floats& old_values, const Floats& new_values) {
    a.Add(name, Dtype::kFloat32, old_values);
    b.Add(name, Dtype::kFloat32, new_values);
  };
  both("a little", {1}, {1.5F});
  both("a lot", {1}, {3});
  both("from nothing", {0}, {1});
  both("into nothing", {1, 1}, {NAN, 1});
  both("reshaped", {1}, {1, 2});
  both("steady", {1}, {1});
  b.Add<float>("added", Dtype::kFloat32, {1});
  a.Add<float>("removed", Dtype::kFloat32, {1});
  std::vector<EntryComparison> entries = MatchEntries(a.entries(), b.entries(), "");
  ASSERT_TRUE(CompareTensors(a, b, entries, [](std::string_view, uint64_t, uint64_t) {}).ok());
  SortByChange(&entries);
  std::vector<std::string> names;
  for (const EntryComparison& entry : entries) {
    if (entry.difference != Difference::kSame) names.emplace_back(entry.name);
  }
  EXPECT_THAT(names, ElementsAre("removed", "added", "reshaped", "into nothing", "from nothing", "a lot", "a little"));
}

}  // namespace
}  // namespace tidemark::inspect
