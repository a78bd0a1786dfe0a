#include "snapshot/restore/box_plan.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Index = std::vector<int64_t>;

// Every element of the box, row-major.
std::vector<Index> ElementsOf(const Box& box) {
  std::vector<Index> elements = {{}};
  for (size_t d = 0; d < box.extent.size(); ++d) {
    std::vector<Index> longer;
    for (const Index& index : elements) {
      for (int64_t i = 0; i < box.extent[d]; ++i) {
        longer.push_back(index);
        longer.back().push_back(box.offset[d] + i);
      }
    }
    elements = std::move(longer);
  }
  return elements;
}

Box DrawBox(std::mt19937& random, const Index& shape, bool may_be_empty) {
  Box box;
  for (const int64_t size : shape) {
    const int64_t offset = std::uniform_int_distribution<int64_t>(0, size - 1)(random);
    box.offset.push_back(offset);
    box.extent.push_back(std::uniform_int_distribution<int64_t>(may_be_empty ? 0 : 1, size - offset)(random));
  }
  return box;
}

Index DrawShape(std::mt19937& random) {
  Index shape(std::uniform_int_distribution<size_t>(0, 4)(random));
  for (int64_t& size : shape) size = std::uniform_int_distribution<int64_t>(1, 5)(random);
  return shape;
}

class BoxPlanTest : public testing::Test {
 protected:
  const uint32_t seed_ = storage::SeedOfCases();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, testing::Message() << "TIDEMARK_SEED=" << seed_};
  std::mt19937 random_{seed_};
};

TEST_F(BoxPlanTest, HasEachElementOnceOrSaysThatItIsMissing) {
  size_t whole = 0;
  size_t with_holes = 0;
  for (int i = 0; i < 3000; ++i) {
    const Index shape = DrawShape(random_);
    const Box wanted = DrawBox(random_, shape, /*may_be_empty=*/true);
    std::vector<Box> stored;
    for (int n = std::uniform_int_distribution<int>(0, 6)(random_); n > 0; --n) {
      stored.push_back(DrawBox(random_, shape, /*may_be_empty=*/true));
    }
    const absl::StatusOr<BoxPlan> planned = PlanBox(wanted, stored);
    ASSERT_THAT(planned, storage::IsOk());
    const BoxPlan& plan = *planned;
    std::map<Index, int> times;
    for (const BoxPart& part : plan.parts) {
      ASSERT_EQ(Overlap(part.box, stored[part.source]), part.box) << "its source does not have it";
      for (const Index& element : ElementsOf(part.box)) ++times[element];
    }
    for (const Box& box : plan.missing) {
      for (const Box& other : stored) ASSERT_EQ(Overlap(box, other), std::nullopt);
      for (const Index& element : ElementsOf(box)) ++times[element];
    }
    std::map<Index, int> once;
    for (const Index& element : ElementsOf(wanted)) once[element] = 1;
    ASSERT_EQ(times, once) << DescribeBox(wanted);
    ++(plan.missing.empty() ? whole : with_holes);
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(with_holes, 100);
}

TEST_F(BoxPlanTest, TakesOneOfSeveralCopies) {
  const Box box = WholeBox(Index{4, 4});
  const auto plan = PlanBox(box, std::vector<Box>{box, box, box});
  ASSERT_THAT(plan, storage::IsOk());
  ASSERT_EQ(plan->parts.size(), 1);
  EXPECT_EQ(plan->parts.front().box, box);
}

TEST_F(BoxPlanTest, IsMadeOfAThousandPartsWithoutComparingEachWithEach) {
  Box whole = WholeBox(Index{1024, 1024});
  std::vector<Box> grid;
  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t column = 0; column < 32; ++column) {
      grid.push_back({.offset = {row * 32, column * 32}, .extent = {32, 32}});
    }
  }
  std::ranges::shuffle(grid, random_);
  constexpr int kTimes = 20;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kTimes; ++i) {
    const auto plan = PlanBox(whole, grid);
    ASSERT_THAT(plan, storage::IsOk());
    ASSERT_EQ(plan->parts.size(), grid.size());
    ASSERT_THAT(plan->missing, IsEmpty());
  }
  // 1,024 tensors of 1,024 ranks then take some seconds; each box with each would take a minute.
  const double milliseconds = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kTimes;
  EXPECT_LT(milliseconds, storage::kAddressSanitizer || storage::kThreadSanitizer ? 200 : 20);
}

// Slabs across each other leave a lattice of single elements.
TEST_F(BoxPlanTest, BoxesThatCutTheTensorIntoMillionsAreRefused) {
  const Index shape = {401, 401, 401};
  std::vector<Box> slabs;
  for (size_t d = 0; d < shape.size(); ++d) {
    for (int64_t i = 1; i < 401; i += 2) {
      Box slab = WholeBox(shape);
      slab.offset[d] = i;
      slab.extent[d] = 1;
      slabs.push_back(slab);
    }
  }
  EXPECT_THAT(PlanBox(WholeBox(shape), slabs),
              storage::StatusIs(absl::StatusCode::kResourceExhausted,
                                testing::HasSubstr("600 boxes, which overlap or leave holes, cut [0:401")));
}

// Every second element. A hole that no later box can reach is not compared with it.
TEST_F(BoxPlanTest, HolesAreFoundWithoutComparingEachBoxWithEachHole) {
  constexpr int64_t kBoxes = 100'000;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kBoxes; ++i) boxes.push_back({.offset = {2 * i}, .extent = {1}});
  std::ranges::shuffle(boxes, random_);
  const auto plan = PlanBox({.offset = {0}, .extent = {2 * kBoxes}}, boxes);
  ASSERT_THAT(plan, storage::IsOk());
  EXPECT_EQ(plan->parts.size(), kBoxes);
  ASSERT_EQ(plan->missing.size(), kBoxes);
  EXPECT_EQ(DescribeBox(plan->missing[7]), "[15:16]");
}

// Every second column of a tensor, and single elements of the other columns, row by row: each of them would have to be
// compared with all that is left of these.
TEST_F(BoxPlanTest, BoxesThatWouldTakeTooLongAreRefused) {
  constexpr int64_t kColumns = 20'000;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < kColumns; ++i) {
    boxes.push_back({.offset = {0, 2 * i}, .extent = {kColumns + 1, 1}});
    boxes.push_back({.offset = {i, 2 * i + 1}, .extent = {1, 1}});
  }
  EXPECT_THAT(PlanBox({.offset = {0, 0}, .extent = {kColumns + 1, 2 * kColumns}}, boxes),
              storage::StatusIs(absl::StatusCode::kResourceExhausted,
                                testing::HasSubstr("40000 boxes, which overlap or leave holes, cut [0:20001")));
}

// Ranges of a tensor that lies column-major: their first and last columns have row borders of their own, so cutting box
// after box out of the tensor would give many more parts than boxes.
TEST_F(BoxPlanTest, TilesAreNotCutHoweverTheyLie) {
  for (const int64_t ranges : {129, 384, 1000}) {
    const Index columns_first = {1009, 997};
    const uint64_t all = 1009 * 997;
    std::vector<Box> boxes;
    for (int64_t i = 0; i < ranges; ++i) {
      const uint64_t first = all * i / ranges;
      for (Box& box : BoxesOfRange(columns_first, first, all * (i + 1) / ranges - first)) {
        std::ranges::reverse(box.offset);
        std::ranges::reverse(box.extent);
        boxes.push_back(std::move(box));
      }
    }
    std::ranges::shuffle(boxes, random_);
    const absl::StatusOr<BoxPlan> plan = PlanBox(WholeBox(Index{997, 1009}), boxes);
    ASSERT_THAT(plan, storage::IsOk()) << ranges;
    EXPECT_EQ(plan->missing.size(), 0u);
    ASSERT_EQ(plan->parts.size(), boxes.size());
    for (const BoxPart& part : plan->parts) EXPECT_EQ(part.box, boxes[part.source]);
  }
}

TEST_F(BoxPlanTest, AMissingTileIsAHole) {
  const std::vector<Box> boxes = {{.offset = {0, 0}, .extent = {2, 1}}, {.offset = {0, 1}, .extent = {1, 1}}};
  const absl::StatusOr<BoxPlan> plan = PlanBox({.offset = {0, 0}, .extent = {2, 2}}, boxes);
  ASSERT_THAT(plan, storage::IsOk());
  EXPECT_THAT(plan->missing, testing::ElementsAre(Box{.offset = {1, 1}, .extent = {1, 1}}));
  // As many elements as there are, one of them twice.
  const std::vector<Box> twice = {{.offset = {0, 0}, .extent = {2, 1}}, {.offset = {0, 0}, .extent = {1, 2}}};
  const absl::StatusOr<BoxPlan> overlapping = PlanBox({.offset = {0, 0}, .extent = {2, 2}}, twice);
  ASSERT_THAT(overlapping, storage::IsOk());
  EXPECT_THAT(overlapping->missing, testing::ElementsAre(Box{.offset = {1, 1}, .extent = {1, 1}}));
}

TEST_F(BoxPlanTest, ARangeIsAFewBoxesInOrder) {
  for (int i = 0; i < 3000; ++i) {
    const Index shape = DrawShape(random_);
    const std::vector<Index> all = ElementsOf(WholeBox(shape));
    const size_t first = std::uniform_int_distribution<size_t>(0, all.size())(random_);
    const size_t count = std::uniform_int_distribution<size_t>(0, all.size() - first)(random_);
    const std::vector<Box> boxes = BoxesOfRange(shape, first, count);
    std::vector<Index> found;
    for (const Box& box : boxes) {
      for (Index& element : ElementsOf(box)) found.push_back(std::move(element));
    }
    ASSERT_EQ(found, std::vector<Index>(all.begin() + static_cast<ptrdiff_t>(first),
                                        all.begin() + static_cast<ptrdiff_t>(first + count)));
    ASSERT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
  }
}

TEST_F(BoxPlanTest, RunsCopyAPartFromBoxToBox) {
  constexpr uint64_t kElementBytes = 3;
  for (int i = 0; i < 3000; ++i) {
    const Index shape = DrawShape(random_);
    const Box from = DrawBox(random_, shape, /*may_be_empty=*/false);
    const Box to = DrawBox(random_, shape, /*may_be_empty=*/false);
    const auto part = Overlap(from, to);
    if (!part) continue;
    const std::vector<Index> source = ElementsOf(from);
    const std::vector<Index> target = ElementsOf(to);
    std::map<size_t, size_t> copied;  // element of the target, and of the source
    uint64_t last = 0;
    ForEachRun(from, to, *part, kElementBytes, [&](uint64_t from_offset, uint64_t to_offset, uint64_t bytes) {
      ASSERT_GE(from_offset, last);
      last = from_offset + bytes;
      ASSERT_EQ(from_offset % kElementBytes + to_offset % kElementBytes + bytes % kElementBytes, 0);
      for (uint64_t n = 0; n < bytes / kElementBytes; ++n) {
        ASSERT_TRUE(copied.emplace(to_offset / kElementBytes + n, from_offset / kElementBytes + n).second);
      }
    });
    ASSERT_EQ(copied.size(), ElementsOf(*part).size());
    for (const auto& [in_target, in_source] : copied) ASSERT_EQ(target.at(in_target), source.at(in_source));
  }
}

TEST_F(BoxPlanTest, RunsAreAsLongAsTheyCanBe) {
  const auto runs = [](const Box& from, const Box& to, const Box& part) {
    std::vector<uint64_t> lengths;
    ForEachRun(from, to, part, 1, [&](uint64_t, uint64_t, uint64_t bytes) { lengths.push_back(bytes); });
    return lengths;
  };
  const Box whole = WholeBox(Index{4, 3, 2});
  EXPECT_THAT(runs(whole, whole, whole), ElementsAre(24));
  const Box rows{.offset = {1, 0, 0}, .extent = {2, 3, 2}};
  EXPECT_THAT(runs(rows, whole, rows), ElementsAre(12));
  const Box columns{.offset = {0, 1, 0}, .extent = {4, 2, 2}};
  EXPECT_THAT(runs(columns, whole, columns), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(runs(columns, columns, columns), ElementsAre(16));
  EXPECT_THAT(runs(WholeBox({}), WholeBox({}), WholeBox({})), ElementsAre(1));
}

TEST_F(BoxPlanTest, NamesABoxByItsRanges) {
  EXPECT_EQ(DescribeBox({.offset = {0, 2}, .extent = {4, 1}}), "[0:4, 2:3]");
  EXPECT_EQ(DescribeBox({}), "[]");
}

}  // namespace
}  // namespace tidemark
