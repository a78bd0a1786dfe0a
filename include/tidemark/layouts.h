// TensorLayout: where a rank's tensor lies in a larger tensor that the ranks of a job hold together, and the layouts of
// tensor parallelism and of fully sharded data parallelism (FSDP). TorchState::SetBoxes takes one. FlatShard: a tensor
// that has a range of the elements of several parameters. TorchState::SetFlatShard takes one.
//
// A Linear of 10 output and 6 input features on 3 ranks, its weight {10, 6} and its bias {10}, split by output
// features:
//
//   std::vector<tidemark::TensorLayout> LayoutsOfLinear(int32_t rank) {
//     const tidemark::ShardRange out = tidemark::SplitEvenly(10, rank, 3);  // 4, 3 and 3 features
//     return {tidemark::ColumnParallel({10, 6}, out), tidemark::ColumnParallel({10}, out)};
//   }
//
// All functions are pure, and thread-safe. They refuse nothing: SetBoxes refuses a layout that does not fit the rank's
// tensor. Preconditions: shapes and counts are not negative; a range lies in its dimension; a layout has a box.

#ifndef TIDEMARK_LAYOUTS_H_
#define TIDEMARK_LAYOUTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tidemark {

// A box of the rank's tensor, and where it lies in the larger tensor, which has as many dimensions.
struct TensorBox {
  std::vector<int64_t> begin;   // its first index in the rank's tensor
  std::vector<int64_t> extent;  // its size in each dimension
  std::vector<int64_t> offset;  // its first index in the larger tensor

  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

struct TensorLayout {
  std::vector<int64_t> shape;  // of the larger tensor
  // Boxes that make up the rank's tensor. No two have an element in common, neither there nor in the larger tensor.
  std::vector<TensorBox> boxes;

  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// Indices [first, first + count) of a dimension.
struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// Three ways to split a dimension of `size` over ranks. Precondition: 0 <= rank < world_size.
// The first size % world_size ranks have one more than the others, as torch.tensor_split gives them.
ShardRange SplitEvenly(int64_t size, int32_t rank, int32_t world_size);
// Each rank has ceil(size / world_size). Only the last ranks have fewer, or none. So split torch.chunk, FSDP2, and
// Shard of DTensor.
ShardRange SplitInChunks(int64_t size, int32_t rank, int32_t world_size);
// Rank i has sizes[i]. Precondition: 0 <= rank < sizes.size().
ShardRange SplitBySizes(std::span<const int64_t> sizes, int32_t rank);

// The rank has all of the tensor.
TensorLayout WholeTensor(std::vector<int64_t> shape);

// If a tensor has `layout`, its indices `range` of one dimension have this layout. For FSDP on top of tensor
// parallelism, for example. Here FSDP splits the rows of a rank of tensor parallelism over 4 ranks, and this is the
// second of them:
//
//   tidemark::TensorLayout LayoutOfBoth(tidemark::ShardRange out) {
//     return tidemark::Shard(tidemark::ColumnParallel({10, 6}, out), 0, tidemark::SplitInChunks(out.count, 1, 4));
//   }
TensorLayout Shard(const TensorLayout& layout, int64_t dimension, ShardRange range);

// Tensor parallelism, as Megatron names it, of a weight {output features, input features}. By columns: the rank has
// `output` of the output features, which is dimension 0, of the weight and of the bias {output features}. By rows: it
// has `input` of the input features, which is dimension 1, and all of the bias, which needs no layout.
//
// ColumnParallel is also for an embedding {vocabulary, features} that is split by its vocabulary, and for every
// parameter under FSDP2.
TensorLayout ColumnParallel(std::vector<int64_t> shape, ShardRange output);
TensorLayout RowParallel(std::vector<int64_t> shape, ShardRange input);

// One of the matrices that a fused one has below each other: its rows, and those of the rank.
struct FusedRows {
  int64_t rows = 0;
  ShardRange range;
};

// Several matrices in one, each split by columns. The larger tensor has all rows of the first matrix, then all rows of
// the second, and so on. The rank's tensor has the rank's rows of the first, then those of the second, and so on.
// `row_shape` is the shape of a row: {input features} of a weight, {} of a bias. Precondition: there is a matrix.
// The gate and the up projection of an MLP:
//
//   tidemark::TensorLayout LayoutOfGateAndUp(tidemark::ShardRange hidden) {
//     return tidemark::FusedColumns({{4096, hidden}, {4096, hidden}}, {1024});
//   }
TensorLayout FusedColumns(const std::vector<FusedRows>& matrices, std::vector<int64_t> row_shape);

// The heads of an attention; with grouped queries there are fewer key-value heads than query heads.
struct QkvHeads {
  int64_t query = 0;
  int64_t key_value = 0;
  int64_t head_size = 0;  // rows of each head
};

// The projections of an attention to queries, keys and values in one matrix, in this order, split by heads. The rank
// has `query` of the query heads, and `key_value` of both the key and the value heads. Ranks may have the same
// key-value heads, if there are more ranks than these. `row_shape`: as of FusedColumns. A matrix that has the queries,
// the key and the value of one group next to each other, and then the next group, is split by ColumnParallel.
TensorLayout FusedQkv(const QkvHeads& heads, ShardRange query, ShardRange key_value, std::vector<int64_t> row_shape);

// One of several parameters that are flattened and lie one after another, as in the FlatParameter of FSDP1.
struct FlatParameter {
  std::string name;  // within the module that holds the flat tensor: "attention.weight"; empty: padding
  std::vector<int64_t> shape;
};

// The elements that a rank has of all these parameters together: from the element `first` on, as many as its tensor of
// one dimension has. What it has behind the last parameter is padding, too. Padding is not saved, and a restore does
// not change it. In tensors that a restore makes for an optimizer it is 0.
struct FlatShard {
  std::vector<FlatParameter> parameters;
  int64_t first = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_LAYOUTS_H_
