#include "snapshot/torch/torch_boxes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_set.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/torch/torch_copy.h"
#include "storage/shard/box_overlap.h"

namespace tidemark {
namespace {

using Numbers = std::vector<int64_t>;

// Whether a tensor of `shape` has a box of `extent` at `offset`.
bool HasBox(const Numbers& shape, const Numbers& offset, const Numbers& extent) {
  if (offset.size() != shape.size() || extent.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (offset[d] < 0 || extent[d] < 0 || extent[d] > shape[d] || offset[d] > shape[d] - extent[d]) return false;
  }
  return true;
}

bool IsEmpty(const TensorBox& box) { return std::find(box.extent.begin(), box.extent.end(), 0) != box.extent.end(); }

// Of boxes of one tensor; `offset` says where in it they are.
absl::Status CheckApart(const Numbers& shape, const std::vector<TensorBox>& boxes, Numbers TensorBox::*offset) {
  std::vector<EntrySpec> specs;
  std::vector<const EntrySpec*> pointers;
  for (const TensorBox& box : boxes) {
    specs.push_back({.shape = shape, .box_offset = box.*offset, .box_extent = box.extent});
  }
  for (const EntrySpec& spec : specs) pointers.push_back(&spec);
  const storage::BoxOverlap found = storage::FindOverlap(pointers);
  if (const auto* pair = std::get_if<std::pair<size_t, size_t>>(&found)) {
    return absl::InvalidArgumentError(fmt::format("boxes {} and {} overlap in", pair->first, pair->second));
  }
  if (std::holds_alternative<storage::NotToldApart>(found)) {
    return absl::InvalidArgumentError(
        fmt::format("{} boxes lie so that it takes too long to tell them apart in", boxes.size()));
  }
  return absl::OkStatus();
}

// Leaves one box of a tensor without elements: it is one empty box, like that of another rank which has some.
void DropEmpty(std::vector<TensorBox>& boxes) {
  const TensorBox first = boxes.front();
  std::erase_if(boxes, IsEmpty);
  if (boxes.empty()) boxes.push_back(first);
}

// Whether a tensor of `sizes` can have the layout, which loses its empty boxes. The message says what is wrong.
absl::Status CheckLayout(const Numbers& sizes, TensorLayout& layout) {
  const auto refuse = [](std::string why) { return absl::InvalidArgumentError(why); };
  for (size_t i = 0; i < layout.boxes.size(); ++i) {
    const TensorBox& box = layout.boxes[i];
    const std::string what = layout.boxes.size() == 1 ? "a tensor" : fmt::format("box {}", i);
    if (!HasBox(layout.shape, box.offset, box.extent)) {
      return refuse(fmt::format("{} of [{}] at [{}] is no box of a tensor of [{}]", what, fmt::join(box.extent, ", "),
                                fmt::join(box.offset, ", "), fmt::join(layout.shape, ", ")));
    }
    if (!HasBox(sizes, box.begin, box.extent)) {
      return refuse(fmt::format("{} of [{}] from [{}] on is not in the rank's tensor, which has [{}]", what,
                                fmt::join(box.extent, ", "), fmt::join(box.begin, ", "), fmt::join(sizes, ", ")));
    }
  }
  if (layout.boxes.empty()) return refuse("the layout has no box");
  DropEmpty(layout.boxes);
  absl::Status apart = CheckApart(sizes, layout.boxes, &TensorBox::begin);
  if (!apart.ok()) return refuse(fmt::format("{} the rank's tensor", std::string(apart.message())));
  apart = CheckApart(layout.shape, layout.boxes, &TensorBox::offset);
  if (!apart.ok()) {
    return refuse(fmt::format("{} the tensor of [{}]", std::string(apart.message()), fmt::join(layout.shape, ", ")));
  }
  // They are apart, so they have no more than the tensor.
  const auto elements_of = [](const Numbers& extent) {
    int64_t elements = 1;
    for (const int64_t size : extent) elements *= size;
    return elements;
  };
  int64_t elements = 0;
  for (const TensorBox& box : layout.boxes) elements += elements_of(box.extent);
  if (elements == elements_of(sizes)) return absl::OkStatus();
  return refuse(fmt::format("the boxes have {} elements, and the rank's tensor of [{}] has {}", elements,
                            fmt::join(sizes, ", "), elements_of(sizes)));
}

at::Tensor View(const at::Tensor& tensor, const TensorBox& box) {
  const c10::InferenceMode no_autograd;
  at::Tensor view = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const auto i = static_cast<size_t>(d);
    if (box.extent[i] != tensor.size(d)) view = view.narrow(d, box.begin[i], box.extent[i]);
  }
  return view;
}

}  // namespace

void TorchBoxes::Set(std::string_view caller, const at::Tensor& tensor, TensorLayout layout) {
  if (!tensor.defined()) {
    return error_.Update(absl::InvalidArgumentError(fmt::format("{}: the tensor is undefined", caller)));
  }
  Numbers sizes = tensor.sizes().vec();
  if (absl::Status status = CheckLayout(sizes, layout); !status.ok()) {
    return error_.Update(absl::InvalidArgumentError(fmt::format("{}: {}", caller, std::string(status.message()))));
  }
  layouts_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                            Layout{.tensor = decltype(Layout::tensor)(tensor.getIntrusivePtr()),
                                   .caller = std::string(caller),
                                   .sizes = std::move(sizes),
                                   .layout = std::move(layout)});
}

void TorchBoxes::Clear() {
  layouts_.clear();
  error_ = absl::OkStatus();
}

absl::Status TorchBoxes::FindLayouts(const std::function<Item(size_t)>& item, const std::vector<State::Entry>& entries,
                                     std::vector<const TensorLayout*>* found) const {
  found->assign(entries.size(), nullptr);
  absl::flat_hash_set<const at::TensorImpl*> met;
  for (size_t i = 0; i < entries.size(); ++i) {
    const EntrySpec& spec = entries[i].spec;
    if (spec.kind != EntryKind::kTensor) continue;
    const Item of_entry = item(i);
    auto known = layouts_.find(of_entry.tensor.unsafeGetTensorImpl());
    const bool is_kept_for_it = known == layouts_.end();
    if (is_kept_for_it) known = layouts_.find(of_entry.parameter);
    if (known == layouts_.end()) continue;
    const Numbers& sizes = known->second.sizes;
    const bool has_its_shape = of_entry.tensor.sizes() == sizes;
    if (is_kept_for_it && !has_its_shape) continue;  // a number, say
    if (!has_its_shape) {
      return absl::InvalidArgumentError(fmt::format(
          "entry '{}' has the shape [{}], and had [{}] when {} said where it lies: call {} again", spec.name,
          fmt::join(spec.shape, ", "), fmt::join(sizes, ", "), known->second.caller, known->second.caller));
    }
    met.insert(known->first);
    (*found)[i] = &known->second.layout;
  }
  for (const auto& [tensor, known] : layouts_) {
    if (met.contains(tensor)) continue;
    return absl::InvalidArgumentError(fmt::format(
        "the state does not have the tensor of [{}] that {} made a part of a tensor of [{}]: a module may have a new "
        "tensor in its place. Call ClearBoxes, and then {} for the tensors that there are",
        fmt::join(known.sizes, ", "), known.caller, fmt::join(known.layout.shape, ", "), known.caller));
  }
  // Tied entries lie in the same bytes, so all of them are those boxes.
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].alias_of >= 0 && (*found)[i] != nullptr) {
      (*found)[static_cast<size_t>(entries[i].alias_of)] = (*found)[i];
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].alias_of >= 0) (*found)[i] = (*found)[static_cast<size_t>(entries[i].alias_of)];
  }
  return absl::OkStatus();
}

absl::Status TorchBoxes::Put(const std::function<Item(size_t)>& item, std::vector<State::Entry>* entries,
                             std::vector<Part>* parts) const {
  if (!error_.ok()) return error_;
  std::vector<const TensorLayout*> layouts;
  if (absl::Status status = FindLayouts(item, *entries, &layouts); !status.ok()) return status;
  std::vector<State::Entry> put;
  std::vector<size_t> first_of;  // by item: its first entry
  put.reserve(entries->size());
  parts->clear();
  for (size_t i = 0; i < entries->size(); ++i) {
    const State::Entry& of_item = (*entries)[i];
    first_of.push_back(put.size());
    const size_t count = layouts[i] == nullptr ? 1 : layouts[i]->boxes.size();
    for (size_t part = 0; part < count; ++part) {
      State::Entry& entry = put.emplace_back(of_item);
      parts->push_back({.item = i, .tensor = item(i).tensor});
      // What is tied has the same boxes.
      if (entry.alias_of >= 0) {
        entry.alias_of = static_cast<int64_t>(first_of[static_cast<size_t>(entry.alias_of)] + part);
      }
      if (entry.staged_with >= 0) {
        const auto leader = static_cast<size_t>(entry.staged_with);
        const size_t leader_boxes = first_of[leader + 1] - first_of[leader];
        entry.staged_with = static_cast<int64_t>(first_of[leader] + std::min(part, leader_boxes - 1));
      }
      if (layouts[i] == nullptr) continue;
      const TensorBox& box = layouts[i]->boxes[part];
      entry.spec.shape = layouts[i]->shape;
      entry.spec.box_offset = box.offset;
      entry.spec.box_extent = box.extent;
      if (count == 1) continue;  // all of the tensor
      at::Tensor& tensor = parts->back().tensor;
      tensor = View(tensor, box);
      entry.bytes = tensor.nbytes();
      entry.host = HostBytes(tensor);
    }
  }
  *entries = std::move(put);
  return absl::OkStatus();
}

}  // namespace tidemark
