#include "tools/checkpoint_inspect/tensors/tensor_tree.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace tidemark::inspect {
namespace {

class TreeBuilder {
 public:
  void Add(const TreeLeaf& leaf, size_t number) {
    size_t node = 0;
    Count(leaf, node);
    size_t begin = 0;
    for (size_t depth = 1;; ++depth) {
      const size_t dot = depth < kTreeDepthMax ? leaf.name.find('.', begin) : std::string_view::npos;
      node = Child(node, leaf.name.substr(0, dot), leaf.name.substr(begin, dot - begin), depth);
      Count(leaf, node);
      if (dot == std::string_view::npos) break;
      begin = dot + 1;
    }
    nodes_[node].node.leaf = number;
  }

  std::vector<TreeNode> Take(EntryOrder order) {
    places_ = {};
    std::vector<TreeNode> sorted;
    sorted.reserve(nodes_.size());
    Emit(0, order, &sorted);
    return sorted;
  }

 private:
  struct Node {
    TreeNode node;
    absl::InlinedVector<size_t, 1> children;  // in the order in which they were met
  };

  void Count(const TreeLeaf& leaf, size_t number) {
    TreeNode& node = nodes_[number].node;
    ++node.entries;
    node.bytes += leaf.bytes;
    if (leaf.statistics == nullptr) return;
    if (node.statistics == nullptr) node.statistics = std::make_unique<TensorStatistics>();
    node.statistics->Merge(*leaf.statistics);
  }

  size_t Child(size_t parent, std::string_view path, std::string_view label, size_t depth) {
    const auto [place, is_new] = places_.try_emplace(path, nodes_.size());
    if (is_new) {
      nodes_[parent].children.push_back(nodes_.size());
      nodes_.emplace_back().node = {.path = path, .label = label, .depth = depth};
    }
    return place->second;
  }

  // No deeper than kTreeDepthMax.
  void Emit(size_t number, EntryOrder order, std::vector<TreeNode>* sorted) {
    Node& node = nodes_[number];
    // Something else is below it, or several ranks hold it.
    if (node.node.entries > 1) node.node.leaf.reset();
    sorted->push_back(std::move(node.node));
    if (order == EntryOrder::kName) {
      std::sort(node.children.begin(), node.children.end(),
                [this](size_t a, size_t b) { return nodes_[a].node.label < nodes_[b].node.label; });
    } else if (order == EntryOrder::kSize) {
      std::stable_sort(node.children.begin(), node.children.end(),
                       [this](size_t a, size_t b) { return nodes_[a].node.bytes > nodes_[b].node.bytes; });
    }
    for (const size_t child : node.children) Emit(child, order, sorted);
  }

  std::vector<Node> nodes_ = std::vector<Node>(1);        // the root
  absl::flat_hash_map<std::string_view, size_t> places_;  // of all others, by path
};

}  // namespace

std::vector<TreeNode> MakeTree(std::span<const TreeLeaf> leaves, EntryOrder order) {
  TreeBuilder builder;
  for (size_t i = 0; i < leaves.size(); ++i) builder.Add(leaves[i], i);
  return builder.Take(order);
}

}  // namespace tidemark::inspect
