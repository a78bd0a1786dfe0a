#include "snapshot/torch/torch_boxes.h"

#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tidemark {

absl::Status TorchBoxes::Set(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset) {
  if (!tensor.defined()) return absl::InvalidArgumentError("SetBox: the tensor is undefined");
  std::vector<int64_t> extent = tensor.sizes().vec();
  bool fits = shape.size() == extent.size() && offset.size() == extent.size();
  for (size_t d = 0; fits && d < extent.size(); ++d) {
    fits = offset[d] >= 0 && extent[d] <= shape[d] && offset[d] <= shape[d] - extent[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(fmt::format("SetBox: a tensor of [{}] at [{}] is no box of a tensor of [{}]",
                                                  fmt::join(extent, ", "), fmt::join(offset, ", "),
                                                  fmt::join(shape, ", ")));
  }
  boxes_.insert_or_assign(tensor.unsafeGetTensorImpl(), Box{.tensor = decltype(Box::tensor)(tensor.getIntrusivePtr()),
                                                            .shape = std::move(shape),
                                                            .offset = std::move(offset),
                                                            .extent = std::move(extent)});
  return absl::OkStatus();
}

absl::Status TorchBoxes::Apply(const at::Tensor& tensor, const at::TensorImpl* parameter, State::Entry& entry) const {
  if (entry.spec.kind != EntryKind::kTensor) return absl::OkStatus();
  auto found = boxes_.find(tensor.unsafeGetTensorImpl());
  if (found == boxes_.end()) {
    found = boxes_.find(parameter);
    if (found == boxes_.end() || tensor.sizes() != found->second.extent) return absl::OkStatus();
  }
  const Box& box = found->second;
  if (tensor.sizes() != box.extent) {
    return absl::InvalidArgumentError(
        fmt::format("entry '{}' has the shape [{}], and had [{}] when SetBox said which box it is", entry.spec.name,
                    fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "), fmt::join(box.extent, ", ")));
  }
  if (box.extent == box.shape) return absl::OkStatus();
  entry.spec.shape = box.shape;
  entry.spec.box_offset = box.offset;
  entry.spec.box_extent = box.extent;
  return absl::OkStatus();
}

}  // namespace tidemark
