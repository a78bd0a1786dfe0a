// TorchBoxes: which of LibTorch's tensors are boxes of larger ones, that the ranks of a job hold together.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible. Holds no memory of tensors.
class TorchBoxes {
 public:
  // `tensor` is the box at `offset` of a tensor of `shape`. The last call for a tensor counts. What is wrong with it,
  // Put returns.
  void Set(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset);
  void Clear();

  bool empty() const { return boxes_.empty() && error_.ok(); }

  // The tensor of an entry, and the parameter for which an optimizer keeps it, or null.
  struct Item {
    const at::Tensor& tensor;
    const at::TensorImpl* parameter;
  };
  // Makes the entries of these tensors boxes; those of what an optimizer keeps in the shape of such a tensor; and those
  // that are tied to one. `item(i)`: of entry i, which is a tensor. kInvalidArgument: a tensor was no box when it was
  // set, has another shape than then, or is in none of the entries.
  absl::Status Put(const std::function<Item(size_t)>& item, std::span<State::Entry> entries) const;

 private:
  struct Box {
    // While it lives no other tensor has this address.
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    std::vector<int64_t> shape;
    std::vector<int64_t> offset;
    std::vector<int64_t> extent;
  };
  absl::flat_hash_map<const at::TensorImpl*, Box> boxes_;
  absl::Status error_;  // the first of Set
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
