#include "storage/shard/format/entry_names.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

EntrySpec RowsOf(std::string name, int64_t begin, int64_t end, std::vector<int64_t> shape = {8, 4}) {
  EntrySpec spec = Tensor(std::move(name), Dtype::kFloat32, std::move(shape));
  spec.box_offset = {begin, 0};
  spec.box_extent = {end - begin, 4};
  return spec;
}

class EntryNamesTest : public ::testing::Test {
 protected:
  // Whether no earlier entry has the name.
  bool Add(EntrySpec spec) { return names_.Add(specs_.emplace_back(std::move(spec)).name); }

  std::optional<NameConflict> Find() {
    return names_.FindConflict([&](size_t number) -> const EntrySpec& { return specs_[number]; });
  }

  void ExpectConflict(size_t entry, size_t earlier, bool is_of_boxes, std::string_view why) {
    const std::optional<NameConflict> conflict = Find();
    ASSERT_TRUE(conflict.has_value());
    EXPECT_EQ(conflict->entry, entry);
    EXPECT_EQ(conflict->earlier, earlier);
    EXPECT_EQ(conflict->is_of_boxes, is_of_boxes);
    EXPECT_EQ(conflict->why, why);
  }

  std::deque<EntrySpec> specs_;
  EntryNames names_;
};

TEST_F(EntryNamesTest, NamesOfTheirOwnAreNotRepeated) {
  names_.Reserve(2);
  EXPECT_TRUE(Add(Tensor("a", Dtype::kFloat32, {4})));
  EXPECT_TRUE(Add(RowsOf("b", 0, 2)));
  EXPECT_FALSE(names_.repeats());
  EXPECT_EQ(Find(), std::nullopt);
}

TEST_F(EntryNamesTest, BoxesOfOneTensorMayHaveOneNameWhereverTheyAre) {
  EXPECT_TRUE(Add(RowsOf("a", 0, 2)));
  EXPECT_TRUE(Add(RowsOf("b", 2, 4)));
  EXPECT_FALSE(Add(RowsOf("a", 4, 8)));
  EXPECT_FALSE(Add(RowsOf("b", 0, 2)));
  EXPECT_FALSE(Add(RowsOf("a", 2, 2)));
  EXPECT_TRUE(names_.repeats());
  EXPECT_EQ(Find(), std::nullopt);
}

TEST_F(EntryNamesTest, AWholeTensorAndAValueMayNot) {
  const EntrySpec text{.name = "a", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {8}};
  EntrySpec front = text;
  front.box_offset = {0};
  front.box_extent = {2};
  EntrySpec back = front;
  back.box_offset = {2};
  using Pair = std::pair<EntrySpec, EntrySpec>;
  for (const auto& [first, second] : {Pair(Tensor("a", Dtype::kFloat32, {8, 4}), RowsOf("a", 0, 2)),
                                      Pair(RowsOf("a", 0, 2), Tensor("a", Dtype::kFloat32, {8, 4})), Pair(text, text),
                                      Pair(front, back), Pair(RowsOf("a", 0, 2), front)}) {
    names_ = {};
    specs_.clear();
    Add(RowsOf("b", 0, 2));
    Add(first);
    Add(second);
    ExpectConflict(2, 1, false, "another entry has the same name");
  }
}

TEST_F(EntryNamesTest, BoxesOfDifferentTensorsMayNot) {
  Add(RowsOf("a", 0, 2));
  Add(RowsOf("a", 2, 4, {9, 4}));
  ExpectConflict(1, 0, true, "it is float32 [9, 4], and entry 0 of that name is float32 [8, 4]");
  EntrySpec other = RowsOf("a", 2, 4);
  other.dtype = Dtype::kInt32;
  specs_[1] = other;
  ExpectConflict(1, 0, true, "it is int32 [8, 4], and entry 0 of that name is float32 [8, 4]");
}

TEST_F(EntryNamesTest, BoxesThatOverlapMayNot) {
  Add(RowsOf("b", 0, 2));
  Add(RowsOf("a", 5, 8));
  Add(RowsOf("a", 0, 2));
  Add(RowsOf("b", 2, 4));
  Add(RowsOf("a", 1, 5));
  ExpectConflict(4, 2, true, "its box [1:5, 0:4] overlaps with [0:2, 0:4] of entry 2");
}

TEST_F(EntryNamesTest, TheSameBoxTwiceMayNotEvenWithoutElements) {
  Add(RowsOf("a", 2, 2));
  Add(RowsOf("a", 2, 2));
  ExpectConflict(1, 0, true, "its box [2:2, 0:4] is that of entry 0, too");
}

TEST_F(EntryNamesTest, BoxesThatTakeTooLongToTellApartMayNot) {
  // Rods along three axes, woven through each other.
  constexpr int64_t kSide = 100;
  EntrySpec box = Tensor("a", Dtype::kUint8, {2 * kSide, 2 * kSide, 2 * kSide});
  const auto add = [&](std::vector<int64_t> offset, std::vector<int64_t> extent) {
    box.box_offset = std::move(offset);
    box.box_extent = std::move(extent);
    Add(box);
  };
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      add({0, 2 * i, 2 * j + 1}, {2 * kSide, 1, 1});
      add({2 * i + 1, 0, 2 * j}, {1, 2 * kSide, 1});
      add({2 * i, 2 * j + 1, 0}, {1, 1, 2 * kSide});
    }
  }
  ExpectConflict(29999, 0, true, "its 30000 boxes lie so that it takes too long to tell them apart");
}

}  // namespace
}  // namespace tidemark::storage
