#include "snapshot/torch/torch_boxes.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tidemark {
namespace {

void CopyBox(const EntrySpec& from, EntrySpec& to) {
  to.shape = from.shape;
  to.box_offset = from.box_offset;
  to.box_extent = from.box_extent;
}

}  // namespace

void TorchBoxes::Set(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset) {
  if (!tensor.defined()) return error_.Update(absl::InvalidArgumentError("SetBox: the tensor is undefined"));
  std::vector<int64_t> extent = tensor.sizes().vec();
  bool fits = shape.size() == extent.size() && offset.size() == extent.size();
  for (size_t d = 0; fits && d < extent.size(); ++d) {
    fits = offset[d] >= 0 && extent[d] <= shape[d] && offset[d] <= shape[d] - extent[d];
  }
  if (!fits) {
    return error_.Update(absl::InvalidArgumentError(
        fmt::format("SetBox: a tensor of [{}] at [{}] is no box of a tensor of [{}]", fmt::join(extent, ", "),
                    fmt::join(offset, ", "), fmt::join(shape, ", "))));
  }
  boxes_.insert_or_assign(tensor.unsafeGetTensorImpl(), Box{.tensor = decltype(Box::tensor)(tensor.getIntrusivePtr()),
                                                            .shape = std::move(shape),
                                                            .offset = std::move(offset),
                                                            .extent = std::move(extent)});
}

void TorchBoxes::Clear() {
  boxes_.clear();
  error_ = absl::OkStatus();
}

absl::Status TorchBoxes::Put(const std::function<Item(size_t)>& item, std::span<State::Entry> entries) const {
  if (!error_.ok()) return error_;
  absl::flat_hash_set<const at::TensorImpl*> met;
  for (size_t i = 0; i < entries.size(); ++i) {
    EntrySpec& spec = entries[i].spec;
    if (spec.kind != EntryKind::kTensor) continue;
    const Item of_entry = item(i);
    auto found = boxes_.find(of_entry.tensor.unsafeGetTensorImpl());
    const bool is_kept_for_it = found == boxes_.end();
    if (is_kept_for_it) found = boxes_.find(of_entry.parameter);
    if (found == boxes_.end()) continue;
    const Box& box = found->second;
    const bool has_its_shape = of_entry.tensor.sizes() == box.extent;
    if (is_kept_for_it && !has_its_shape) continue;  // a number, say
    if (!has_its_shape) {
      return absl::InvalidArgumentError(
          fmt::format("entry '{}' has the shape [{}], and had [{}] when SetBox said which box it is: call SetBox again",
                      spec.name, fmt::join(spec.shape, ", "), fmt::join(box.extent, ", ")));
    }
    met.insert(found->first);
    spec.shape = box.shape;
    spec.box_offset = box.offset;
    spec.box_extent = box.extent;
  }
  for (const auto& [tensor, box] : boxes_) {
    if (met.contains(tensor)) continue;
    return absl::InvalidArgumentError(fmt::format(
        "the state does not have the tensor of [{}] that SetBox made a box of a tensor of [{}]: a module may "
        "have a new tensor in its place. Call ClearBoxes, and then SetBox for the tensors that there are",
        fmt::join(box.extent, ", "), fmt::join(box.shape, ", ")));
  }
  // Tied entries lie in the same bytes, so all of them are that box.
  for (const State::Entry& entry : entries) {
    if (entry.alias_of >= 0 && !entry.spec.whole())
      CopyBox(entry.spec, entries[static_cast<size_t>(entry.alias_of)].spec);
  }
  for (State::Entry& entry : entries) {
    if (entry.alias_of < 0) continue;
    const EntrySpec& first = entries[static_cast<size_t>(entry.alias_of)].spec;
    if (!first.whole()) CopyBox(first, entry.spec);
  }
  return absl::OkStatus();
}

}  // namespace tidemark
