// TorchBoxes: which of LibTorch's tensors are boxes of larger ones, that the ranks of a job hold together.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/torch/torch_catalog.h"
#include "tidemark/layouts.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible. Holds no memory of tensors.
class TorchBoxes {
 public:
  // `tensor` lies in a larger tensor as `layout` says; `caller` is the function for messages. The last call for a
  // tensor counts. What is wrong with it, Put returns.
  void Set(std::string_view caller, const at::Tensor& tensor, TensorLayout layout);
  // The same of a flat shard.
  void SetFlat(std::string_view caller, const at::Tensor& tensor, const FlatShard& shard);
  void Clear();

  bool empty() const { return layouts_.empty() && error_.ok(); }
  // Another one after each call of Set, SetFlat or Clear.
  uint64_t version() const { return version_; }

  // Of a flat shard that is called `name`: the names of its parameters, each with the part of `name` up to the last
  // '.'. Empty: the tensor is no flat shard.
  std::vector<std::string> FlatNames(const at::Tensor& tensor, std::string_view name) const {
    return has_flat_ ? FindFlatNames(tensor, name) : std::vector<std::string>();  // most states have none
  }

  struct Item {
    const at::Tensor& tensor;
    const TensorUse& use;
  };
  // What an entry has of an item: its tensor or a view of a part of that, with its elements in order, if not always in
  // its shape; undefined if it is a value.
  struct Part {
    size_t item = 0;
    at::Tensor tensor;
  };
  // `*entries` are those of the items. The entries of these tensors become boxes; so do those of what an optimizer
  // keeps in the shape of such a tensor; and those that are tied to one. Each box of a tensor becomes an entry of its
  // own, with the same name. `*parts`: by entry, as they are then. kInvalidArgument: a layout did not fit the tensor
  // when it was set; a tensor has another shape than then, or is in none of the entries; or a flat shard is tied to
  // what is not the same one. Throws what LibTorch throws.
  absl::Status Put(const std::function<Item(size_t)>& item, std::vector<State::Entry>* entries,
                   std::vector<Part>* parts) const;

 private:
  // A larger tensor, and what is there of it.
  struct Target {
    std::string name;  // of a parameter in a flat shard
    TensorLayout layout;
    bool is_flat = false;  // boxes begin at an index of a tensor that has one dimension, however many they have

    friend bool operator==(const Target&, const Target&) = default;
  };
  struct Layout {
    // While it lives no other tensor has this address.
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    std::string caller;
    std::vector<int64_t> sizes;   // of that tensor
    std::vector<Target> targets;  // of a flat shard its parameters; else one
  };
  void Add(std::string_view caller, const at::Tensor& tensor, absl::StatusOr<std::vector<Target>> targets);
  static absl::StatusOr<std::vector<Target>> TargetsOf(const std::vector<int64_t>& sizes, const FlatShard& shard);
  std::vector<std::string> FindFlatNames(const at::Tensor& tensor, std::string_view name) const;
  // By entry; null: it is no box.
  absl::Status FindTargets(const std::function<Item(size_t)>& item, const std::vector<State::Entry>& entries,
                           std::vector<const Target*>* targets) const;
  static absl::Status ShareWithTied(const std::vector<State::Entry>& entries, std::vector<const Target*>* targets);
  static at::Tensor View(const at::Tensor& tensor, const Target& target, const TensorBox& box);

  absl::flat_hash_map<const at::TensorImpl*, Layout> layouts_;
  bool has_flat_ = false;
  uint64_t version_ = 0;
  absl::Status error_;  // the first of Set and SetFlat
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
