// What the ranks' tensors are of a larger one. A larger tensor is cut as a trainer would cut it, and its layouts must
// say the same.

#include "tidemark/layouts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// A matrix, row by row.
using Matrix = std::vector<std::vector<int64_t>>;

// Every element has another value.
Matrix Numbered(int64_t rows, int64_t columns) {
  Matrix matrix(static_cast<size_t>(rows), std::vector<int64_t>(static_cast<size_t>(columns)));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      matrix[static_cast<size_t>(row)][static_cast<size_t>(column)] = 1 + row * columns + column;
    }
  }
  return matrix;
}

void AppendRows(const Matrix& from, ShardRange rows, Matrix& to) {
  const auto first = from.begin() + static_cast<ptrdiff_t>(rows.first);
  to.insert(to.end(), first, first + static_cast<ptrdiff_t>(rows.count));
}

Matrix Rows(const Matrix& from, ShardRange rows) {
  Matrix to;
  AppendRows(from, rows, to);
  return to;
}

Matrix Columns(const Matrix& from, ShardRange columns) {
  Matrix to;
  for (const std::vector<int64_t>& row : from) {
    const auto first = row.begin() + static_cast<ptrdiff_t>(columns.first);
    to.emplace_back(first, first + static_cast<ptrdiff_t>(columns.count));
  }
  return to;
}

// What the layout says that a rank's matrix of so many rows and columns has; 0 where it says nothing.
Matrix Assemble(const TensorLayout& layout, int64_t rows, int64_t columns) {
  const Matrix whole = Numbered(layout.shape[0], layout.shape[1]);
  Matrix matrix(static_cast<size_t>(rows), std::vector<int64_t>(static_cast<size_t>(columns)));
  for (const TensorBox& box : layout.boxes) {
    for (int64_t row = 0; row < box.extent[0]; ++row) {
      for (int64_t column = 0; column < box.extent[1]; ++column) {
        int64_t& element =
            matrix.at(static_cast<size_t>(box.begin[0] + row)).at(static_cast<size_t>(box.begin[1] + column));
        EXPECT_EQ(element, 0) << "two boxes have the element";
        element = whole.at(static_cast<size_t>(box.offset[0] + row)).at(static_cast<size_t>(box.offset[1] + column));
      }
    }
  }
  return matrix;
}

void ExpectIs(const TensorLayout& layout, const Matrix& expected, int64_t columns) {
  EXPECT_EQ(Assemble(layout, static_cast<int64_t>(expected.size()), columns), expected);
}

std::vector<int64_t> Counts(const std::function<ShardRange(int32_t rank)>& split, int32_t world_size) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    const ShardRange range = split(rank);
    EXPECT_EQ(range.first, next) << "rank " << rank;
    next += range.count;
    counts.push_back(range.count);
  }
  return counts;
}

// The same of a split of `size` over so many ranks.
auto CountsOf(ShardRange (*split)(int64_t size, int32_t rank, int32_t world_size)) {
  return [split](int64_t size, int32_t world_size) {
    return Counts([&](int32_t rank) { return split(size, rank, world_size); }, world_size);
  };
}

TEST(SplitEvenlyTest, GivesTheRemainderToTheFirstRanks) {
  const auto counts = CountsOf(SplitEvenly);
  EXPECT_THAT(counts(12, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(counts(11, 4), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(counts(5, 4), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(counts(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(counts(0, 2), ElementsAre(0, 0));
}

TEST(SplitInChunksTest, LeavesLessForTheLastRanks) {
  const auto counts = CountsOf(SplitInChunks);
  EXPECT_THAT(counts(12, 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(counts(11, 4), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(counts(5, 4), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(counts(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(counts(0, 2), ElementsAre(0, 0));
}

TEST(SplitBySizesTest, GivesEachRankItsSize) {
  const std::vector<int64_t> sizes = {3, 0, 5};
  EXPECT_THAT(Counts([&](int32_t rank) { return SplitBySizes(sizes, rank); }, 3), ElementsAre(3, 0, 5));
}

TEST(TensorLayoutTest, OfATensorThatARankHasWholeIsOneBox) {
  EXPECT_EQ(WholeTensor({4, 3}),
            (TensorLayout{.shape = {4, 3}, .boxes = {{.begin = {0, 0}, .extent = {4, 3}, .offset = {0, 0}}}}));
  EXPECT_EQ(WholeTensor({}), (TensorLayout{.shape = {}, .boxes = {{.begin = {}, .extent = {}, .offset = {}}}}));
}

TEST(TensorLayoutTest, OfColumnsAndOfRowsIsABoxOfTheWeight) {
  const Matrix whole = Numbered(7, 5);
  for (int32_t rank = 0; rank < 3; ++rank) {
    const ShardRange out = SplitEvenly(7, rank, 3);
    const ShardRange in = SplitEvenly(5, rank, 3);
    ExpectIs(ColumnParallel({7, 5}, out), Rows(whole, out), 5);
    ExpectIs(RowParallel({7, 5}, in), Columns(whole, in), in.count);
  }
  EXPECT_EQ(ColumnParallel({7}, {5, 2}),
            (TensorLayout{.shape = {7}, .boxes = {{.begin = {0}, .extent = {2}, .offset = {5}}}}));
}

TEST(TensorLayoutTest, OfARankThatHasNothingIsOneEmptyBox) {
  EXPECT_EQ(ColumnParallel({2, 5}, SplitInChunks(2, 3, 4)),
            (TensorLayout{.shape = {2, 5}, .boxes = {{.begin = {0, 0}, .extent = {0, 5}, .offset = {2, 0}}}}));
  EXPECT_THAT(FusedColumns({{4, {4, 0}}, {4, {4, 0}}}, {3}).boxes, SizeIs(1));
  EXPECT_THAT(Shard(FusedColumns({{4, {0, 2}}, {4, {0, 2}}}, {3}), 0, {4, 0}).boxes, SizeIs(1));
}

TEST(TensorLayoutTest, OfFusedMatricesHasABoxForEach) {
  const Matrix whole = Numbered(6 + 6, 3);
  const TensorLayout layout = FusedColumns({{6, {2, 3}}, {6, {1, 2}}}, {3});
  Matrix expected = Rows(whole, {2, 3});
  AppendRows(whole, {7, 2}, expected);
  EXPECT_THAT(layout.shape, ElementsAre(12, 3));
  EXPECT_THAT(layout.boxes, SizeIs(2));
  ExpectIs(layout, expected, 3);
}

// 7 query heads and 3 key-value heads of 2 rows, on 4 ranks: the ranks differ in both, and the last two have the same
// key-value head.
TEST(TensorLayoutTest, OfFusedQkvHasTheRanksHeads) {
  const QkvHeads heads{.query = 7, .key_value = 3, .head_size = 2};
  const Matrix whole = Numbered(2 * (7 + 3 + 3), 4);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const ShardRange query = SplitEvenly(7, rank, 4);
    const ShardRange key_value{.first = std::min(rank, 2), .count = 1};
    const TensorLayout layout = FusedQkv(heads, query, key_value, {4});
    Matrix expected = Rows(whole, {2 * query.first, 2 * query.count});
    AppendRows(whole, {14 + 2 * key_value.first, 2}, expected);
    AppendRows(whole, {20 + 2 * key_value.first, 2}, expected);
    EXPECT_THAT(layout.shape, ElementsAre(26, 4));
    ExpectIs(layout, expected, 4);
  }
  EXPECT_EQ(FusedQkv(heads, {0, 1}, {1, 1}, {}),
            (TensorLayout{.shape = {26},
                          .boxes = {{.begin = {0}, .extent = {2}, .offset = {0}},
                                    {.begin = {2}, .extent = {2}, .offset = {16}},
                                    {.begin = {4}, .extent = {2}, .offset = {22}}}}));
}

TEST(TensorLayoutTest, OfAShardOfFusedRowsHasTheBoxesThatItMeets) {
  const TensorLayout fused = FusedColumns({{6, {2, 3}}, {6, {1, 2}}, {4, {0, 4}}}, {3});
  const Matrix whole = Assemble(fused, 9, 3);
  for (int64_t first = 0; first <= 9; ++first) {
    for (int64_t count = 0; first + count <= 9; ++count) {
      ExpectIs(Shard(fused, 0, {first, count}), Rows(whole, {first, count}), 3);
      ExpectIs(Shard(Shard(fused, 0, {first, count}), 1, {1, 2}), Columns(Rows(whole, {first, count}), {1, 2}), 2);
    }
  }
  EXPECT_THAT(Shard(fused, 0, {3, 2}).boxes, SizeIs(1)) << "of the second matrix alone";
}

TEST(TensorLayoutTest, OfBothParallelismsIsABoxOfBothDimensions) {
  const TensorLayout layout = Shard(RowParallel({8, 6}, {3, 3}), 0, SplitInChunks(8, 1, 3));
  EXPECT_EQ(layout, (TensorLayout{.shape = {8, 6}, .boxes = {{.begin = {0, 0}, .extent = {3, 3}, .offset = {3, 3}}}}));
}

}  // namespace
}  // namespace tidemark
