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
#include "tidemark/layouts.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible. Holds no memory of tensors.
class TorchBoxes {
 public:
  // `tensor` lies in a larger tensor as `layout` says; `caller` is the function for messages. The last call for a
  // tensor counts. What is wrong with it, Put returns.
  void Set(std::string_view caller, const at::Tensor& tensor, TensorLayout layout);
  void Clear();

  bool empty() const { return layouts_.empty() && error_.ok(); }

  // The tensor of an entry, and the parameter for which an optimizer keeps it, or null.
  struct Item {
    const at::Tensor& tensor;
    const at::TensorImpl* parameter;
  };
  // What an entry has of an item: its tensor or a view of a part of that; undefined if it is a value.
  struct Part {
    size_t item = 0;
    at::Tensor tensor;
  };
  // `*entries` are those of the items. The entries of these tensors become boxes; so do those of what an optimizer
  // keeps in the shape of such a tensor; and those that are tied to one. Each box of a tensor becomes an entry of its
  // own, with the same name. `*parts`: by entry, as they are then. kInvalidArgument: a layout did not fit the tensor
  // when it was set, or a tensor has another shape than then, or is in none of the entries. Throws what LibTorch
  // throws.
  absl::Status Put(const std::function<Item(size_t)>& item, std::vector<State::Entry>* entries,
                   std::vector<Part>* parts) const;

 private:
  struct Layout {
    // While it lives no other tensor has this address.
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    std::string caller;
    std::vector<int64_t> sizes;  // of that tensor
    TensorLayout layout;
  };
  absl::Status FindLayouts(const std::function<Item(size_t)>& item, const std::vector<State::Entry>& entries,
                           std::vector<const TensorLayout*>* found) const;

  absl::flat_hash_map<const at::TensorImpl*, Layout> layouts_;
  absl::Status error_;  // the first of Set
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
