// Entries as a tree: their names are split where a '.' is.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_TREE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_TREE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tools/checkpoint_inspect/tensors/tensor_statistics.h"

namespace tidemark::inspect {

enum class EntryOrder {
  kSaved,  // as the shards have them
  kName,   // byte by byte
  kSize,   // the largest first; as saved where that is the same
};

struct TreeLeaf {
  std::string_view name;
  uint64_t bytes = 0;                            // that it adds to what it is part of: none where it is tied
  const TensorStatistics* statistics = nullptr;  // likewise; null: none. Not owned
};

// A node: a name, or the front of one up to a '.'.
struct TreeNode {
  std::string_view path;   // "model.layers"; of the root, and of nothing else at depth 0, empty. Lies in a leaf's name
  std::string_view label;  // "layers"
  size_t depth = 0;
  size_t entries = 0;                            // it and all below it
  uint64_t bytes = 0;                            // of them
  std::unique_ptr<TensorStatistics> statistics;  // of all their numbers; null: none have any
  std::optional<size_t> leaf;                    // where it is an entry and nothing else: into the leaves
};

// Names with more parts are not split any further: what a stranger's names can do is bounded.
inline constexpr size_t kTreeDepthMax = 64;

// The root first, then every node before what is below it. Pure.
std::vector<TreeNode> MakeTree(std::span<const TreeLeaf> leaves, EntryOrder order);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_TREE_H_
