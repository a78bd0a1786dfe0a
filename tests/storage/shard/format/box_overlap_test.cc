#include "storage/shard/format/box_overlap.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using Extents = std::vector<int64_t>;

class BoxOverlapTest : public ::testing::Test {
 protected:
  void Add(Extents offset, Extents extent) {
    EntrySpec box = Tensor("w", Dtype::kUint8, Extents(extent.size(), 1 << 20));
    box.box_offset = std::move(offset);
    box.box_extent = std::move(extent);
    boxes_.push_back(std::move(box));
  }

  BoxOverlap Find() const {
    std::vector<const EntrySpec*> boxes;
    for (const EntrySpec& box : boxes_) boxes.push_back(&box);
    return FindOverlap(boxes);
  }

  bool AreApart() const { return std::holds_alternative<AllApart>(Find()); }

  std::pair<size_t, size_t> FindPair() const {
    const BoxOverlap found = Find();
    const auto* pair = std::get_if<std::pair<size_t, size_t>>(&found);
    return pair == nullptr ? std::pair<size_t, size_t>() : *pair;
  }

  bool Overlap(size_t a, size_t b) const {
    for (size_t d = 0; d < boxes_[a].shape.size(); ++d) {
      const auto begin = [&](size_t box) { return boxes_[box].box_offset[d]; };
      const auto end = [&](size_t box) { return begin(box) + boxes_[box].box_extent[d]; };
      if (std::max(begin(a), begin(b)) >= std::min(end(a), end(b))) return false;
    }
    return true;
  }

  std::vector<EntrySpec> boxes_;
};

TEST_F(BoxOverlapTest, BoxesThatTouchAreApart) {
  EXPECT_TRUE(AreApart());
  Add({0, 0}, {2, 3});
  EXPECT_TRUE(AreApart());
  Add({2, 0}, {2, 3});
  Add({0, 3}, {4, 1});
  EXPECT_TRUE(AreApart());
}

TEST_F(BoxOverlapTest, BoxesWithOneCommonElementOverlap) {
  Add({0, 0}, {2, 3});
  Add({5, 5}, {1, 1});
  Add({1, 2}, {2, 3});
  EXPECT_EQ(FindPair(), std::pair(size_t{0}, size_t{2}));
}

TEST_F(BoxOverlapTest, EmptyBoxesOverlapWithNoneButAreThereOnce) {
  Add({0, 0}, {4, 4});
  Add({2, 2}, {0, 2});
  Add({2, 2}, {2, 0});
  EXPECT_TRUE(AreApart());
  Add({2, 2}, {0, 2});
  EXPECT_EQ(FindPair(), std::pair(size_t{1}, size_t{3}));
}

// Few enough to be compared each with each, and more.
TEST_F(BoxOverlapTest, AgreesWithAComparisonOfAllPairs) {
  const uint32_t seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int overlapping = 0;
  for (int round = 0; round < 300; ++round) {
    boxes_.clear();
    const auto dimensions = static_cast<size_t>(draw(1, 4));
    const int64_t wide = draw(2, 200);
    for (int64_t count = draw(2, round % 2 == 0 ? 100 : 400); count > 0; --count) {
      Extents offset(dimensions);
      Extents extent(dimensions);
      for (size_t d = 0; d < dimensions; ++d) {
        offset[d] = draw(0, wide * wide);
        extent[d] = draw(draw(0, 9) == 0 ? 0 : 1, std::max<int64_t>(1, wide / 8));
      }
      Add(offset, extent);
    }
    std::set<std::pair<size_t, size_t>> pairs;
    for (size_t b = 0; b < boxes_.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        if (Overlap(a, b) || boxes_[a] == boxes_[b]) pairs.emplace(a, b);
      }
    }
    overlapping += !pairs.empty();
    if (pairs.empty()) {
      ASSERT_TRUE(AreApart()) << round;
    } else {
      ASSERT_TRUE(pairs.contains(FindPair())) << round;
    }
  }
  EXPECT_GT(overlapping, 30);
  EXPECT_LT(overlapping, 270);
}

// Grids, rows that are cut in other places than the rows beside them, and rows and columns in turn around a corner.
TEST_F(BoxOverlapTest, TellsManyBoxesApartThatPlanesSeparate) {
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      for (int64_t k = 0; k < 10; ++k) Add({3 * i, 5 * j, 7 * k}, {3, 5, 7});
    }
  }
  std::shuffle(boxes_.begin(), boxes_.end(), std::mt19937(1));
  EXPECT_TRUE(AreApart()) << "a grid";
  const EntrySpec common = boxes_[7777];
  Add({common.box_offset[0] + 2, common.box_offset[1] + 4, common.box_offset[2] + 6}, {1, 1, 1});
  EXPECT_EQ(FindPair(), std::pair(size_t{7777}, boxes_.size() - 1));
  boxes_.clear();
  for (int64_t row = 0; row < 100; ++row) {
    for (int64_t brick = 0; brick < 100; ++brick) Add({row, 10 * brick + row % 7}, {1, 10});
  }
  EXPECT_TRUE(AreApart()) << "bricks";
  boxes_.clear();
  constexpr int64_t kTurns = 5000;
  for (int64_t i = 0; i < kTurns; ++i) {
    Add({i, i}, {1, kTurns - i});
    Add({i + 1, i}, {kTurns - i, 1});
  }
  EXPECT_TRUE(AreApart()) << "around a corner";
}

TEST_F(BoxOverlapTest, GivesUpOnBoxesThatEachPlaneCuts) {
  // Rods along three axes, woven through each other.
  constexpr int64_t kSide = 100;
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      Add({0, 2 * i, 2 * j + 1}, {2 * kSide, 1, 1});
      Add({2 * i + 1, 0, 2 * j}, {1, 2 * kSide, 1});
      Add({2 * i, 2 * j + 1, 0}, {1, 1, 2 * kSide});
    }
  }
  EXPECT_TRUE(std::holds_alternative<NotToldApart>(Find()));
}

// In seven dimensions, each box is thin in three of them: those of a line of the Fano plane. Two lines have a dimension
// in common, where their boxes lie apart. In each dimension most boxes are as long as the tensor.
TEST_F(BoxOverlapTest, ComparesBoxesThatNoPlaneDividesIfTheyAreFew) {
  constexpr size_t kLines[7][3] = {{0, 1, 2}, {0, 3, 4}, {0, 5, 6}, {1, 3, 5}, {1, 4, 6}, {2, 3, 6}, {2, 4, 5}};
  const auto add_lines = [&](int64_t copies) {
    boxes_.clear();
    for (int64_t copy = 0; copy < copies; ++copy) {
      for (size_t line = 0; line < 7; ++line) {
        Extents offset(7, 0);
        Extents extent(7, 7 * copies);
        for (const size_t d : kLines[line]) {
          offset[d] = 7 * copy + static_cast<int64_t>(line);
          extent[d] = 1;
        }
        Add(offset, extent);
      }
    }
  };
  add_lines(5);
  boxes_.resize(32);
  EXPECT_TRUE(AreApart());
  add_lines(20);
  EXPECT_TRUE(AreApart());
  boxes_.back().box_offset = boxes_.front().box_offset;
  EXPECT_EQ(FindPair(), std::pair(size_t{0}, size_t{139}));
  add_lines(200);
  EXPECT_TRUE(std::holds_alternative<NotToldApart>(Find()));
  // The first two that are compared.
  boxes_[1] = boxes_[0];
  EXPECT_EQ(FindPair(), std::pair(size_t{0}, size_t{1}));
}

}  // namespace
}  // namespace tidemark::storage
