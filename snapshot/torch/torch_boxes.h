// TorchBoxes: which of LibTorch's tensors are boxes of larger ones, that the ranks of a job hold together.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tidemark/state.h"

namespace tidemark {

// Thread-compatible. Holds no memory of tensors.
class TorchBoxes {
 public:
  // `tensor` is the box at `offset` of a tensor of `shape`. The last call counts. kInvalidArgument: the tensor is
  // undefined, has another number of dimensions, or reaches beyond the shape.
  absl::Status Set(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset);

  bool empty() const { return boxes_.empty(); }

  // Makes `entry`, which is that of `tensor`, a box if the tensor is one. So it does if `parameter` is one and the
  // tensor has its shape, for then an optimizer keeps it for the parameter; null: for none. kInvalidArgument: the
  // tensor has another shape than when it was set.
  absl::Status Apply(const at::Tensor& tensor, const at::TensorImpl* parameter, State::Entry& entry) const;

 private:
  struct Box {
    // While it lives no other tensor has this address.
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    std::vector<int64_t> shape;
    std::vector<int64_t> offset;
    std::vector<int64_t> extent;
  };
  absl::flat_hash_map<const at::TensorImpl*, Box> boxes_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_BOXES_H_
