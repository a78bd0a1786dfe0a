#include "tidemark/layouts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tidemark {
namespace {

bool IsEmpty(const TensorBox& box) { return std::ranges::find(box.extent, 0) != box.extent.end(); }

// One box is left, though it may be empty: that of a rank that has nothing.
void DropEmpty(std::vector<TensorBox>& boxes) {
  TensorBox first = boxes.front();
  std::erase_if(boxes, IsEmpty);
  if (!boxes.empty()) return;
  first.begin.assign(first.begin.size(), 0);
  boxes.push_back(std::move(first));
}

// `rows`, and behind it the shape of a row.
std::vector<int64_t> WithRows(int64_t rows, std::span<const int64_t> row_shape) {
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  return shape;
}

}  // namespace

ShardRange SplitEvenly(int64_t size, int32_t rank, int32_t world_size) {
  const int64_t least = size / world_size;
  const int64_t larger = size % world_size;  // ranks that have one more
  return {.first = least * rank + std::min<int64_t>(rank, larger), .count = least + (rank < larger ? 1 : 0)};
}

ShardRange SplitInChunks(int64_t size, int32_t rank, int32_t world_size) {
  const int64_t chunk = size / world_size + (size % world_size > 0 ? 1 : 0);
  const int64_t first = std::min(chunk * rank, size);
  return {.first = first, .count = std::min(chunk, size - first)};
}

ShardRange SplitBySizes(std::span<const int64_t> sizes, int32_t rank) {
  ShardRange range;
  for (const int64_t size : sizes.first(static_cast<size_t>(rank))) range.first += size;
  range.count = sizes[static_cast<size_t>(rank)];
  return range;
}

TensorLayout WholeTensor(std::vector<int64_t> shape) {
  const std::vector<int64_t> zeros(shape.size(), 0);
  return {.shape = shape, .boxes = {{.begin = zeros, .extent = shape, .offset = zeros}}};
}

TensorLayout Shard(const TensorLayout& layout, int64_t dimension, ShardRange range) {
  const auto d = static_cast<size_t>(dimension);
  TensorLayout sharded = layout;
  for (TensorBox& box : sharded.boxes) {
    const int64_t box_end = box.begin[d] + box.extent[d];
    const int64_t first = std::clamp(range.first, box.begin[d], box_end);
    const int64_t end = std::clamp(range.first + range.count, first, box_end);
    box.offset[d] += first - box.begin[d];
    box.begin[d] = std::max<int64_t>(first - range.first, 0);
    box.extent[d] = end - first;
  }
  DropEmpty(sharded.boxes);
  return sharded;
}

TensorLayout ColumnParallel(std::vector<int64_t> shape, ShardRange output) {
  return Shard(WholeTensor(std::move(shape)), 0, output);
}

TensorLayout RowParallel(std::vector<int64_t> shape, ShardRange input) {
  return Shard(WholeTensor(std::move(shape)), 1, input);
}

TensorLayout FusedColumns(const std::vector<FusedRows>& matrices, std::vector<int64_t> row_shape) {
  const std::vector<int64_t> zeros(row_shape.size(), 0);
  TensorLayout layout;
  int64_t rows = 0;      // of the matrices so far
  int64_t own_rows = 0;  // the rank's
  for (const FusedRows& matrix : matrices) {
    layout.boxes.push_back({.begin = WithRows(own_rows, zeros),
                            .extent = WithRows(matrix.range.count, row_shape),
                            .offset = WithRows(rows + matrix.range.first, zeros)});
    rows += matrix.rows;
    own_rows += matrix.range.count;
  }
  layout.shape = WithRows(rows, row_shape);
  DropEmpty(layout.boxes);
  return layout;
}

TensorLayout FusedQkv(const QkvHeads& heads, ShardRange query, ShardRange key_value, std::vector<int64_t> row_shape) {
  const auto rows_of = [&](int64_t count, ShardRange range) {
    return FusedRows{.rows = count * heads.head_size,
                     .range = {.first = range.first * heads.head_size, .count = range.count * heads.head_size}};
  };
  const FusedRows key_value_rows = rows_of(heads.key_value, key_value);
  return FusedColumns({rows_of(heads.query, query), key_value_rows, key_value_rows}, std::move(row_shape));
}

}  // namespace tidemark
