#include "snapshot/torch/torch_boxes.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_set.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/restore/box_plan.h"
#include "snapshot/torch/torch_copy.h"
#include "storage/shard/format/box_overlap.h"

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

int64_t ElementsOf(const Numbers& extent) {
  int64_t elements = 1;
  for (const int64_t size : extent) elements *= size;
  return elements;
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
  int64_t elements = 0;
  for (const TensorBox& box : layout.boxes) elements += ElementsOf(box.extent);
  if (elements == ElementsOf(sizes)) return absl::OkStatus();
  return refuse(fmt::format("the boxes have {} elements, and the rank's tensor of [{}] has {}", elements,
                            fmt::join(sizes, ", "), ElementsOf(sizes)));
}

// The elements of a parameter. The message says what is wrong with the shape.
absl::StatusOr<int64_t> CountElements(const FlatParameter& parameter) {
  constexpr int64_t kElementsMax = int64_t{1} << 61;  // sums of two such numbers do not wrap
  if (parameter.shape.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("parameter '{}' has no dimension: give it the shape [1]", parameter.name));
  }
  int64_t elements = 1;
  bool is_empty = false;
  for (const int64_t size : parameter.shape) {
    is_empty = is_empty || size == 0;
    if (size < 0 || (size > 0 && elements > kElementsMax / size)) {
      return absl::InvalidArgumentError(
          fmt::format("parameter '{}' has the shape [{}], which is negative or has more than 2^61 elements",
                      parameter.name, fmt::join(parameter.shape, ", ")));
    }
    elements *= std::max<int64_t>(size, 1);
  }
  return is_empty ? 0 : elements;
}

// What a flat tensor with the elements [first, end) has of a parameter that begins at the element `begin`. One empty
// box, if it has nothing.
std::vector<TensorBox> BoxesInFlat(const Numbers& shape, int64_t begin, int64_t first, int64_t end) {
  const int64_t from = std::max(first, begin);
  const int64_t to = std::min(end, begin + ElementsOf(shape));
  std::vector<TensorBox> boxes;
  if (from >= to) {
    Numbers nothing = shape;
    nothing[0] = 0;
    boxes.push_back({.begin = {0}, .extent = std::move(nothing), .offset = Numbers(shape.size(), 0)});
    return boxes;
  }
  int64_t at = from - first;
  for (Box& box : BoxesOfRange(shape, static_cast<uint64_t>(from - begin), static_cast<uint64_t>(to - from))) {
    const int64_t elements = ElementsOf(box.extent);
    boxes.push_back({.begin = {at}, .extent = std::move(box.extent), .offset = std::move(box.offset)});
    at += elements;
  }
  return boxes;
}

}  // namespace

void TorchBoxes::Add(std::string_view caller, const at::Tensor& tensor, absl::StatusOr<std::vector<Target>> targets) {
  ++version_;
  if (!tensor.defined()) targets = absl::InvalidArgumentError("the tensor is undefined");
  if (!targets.ok()) {
    error_.Update(absl::InvalidArgumentError(fmt::format("{}: {}", caller, std::string(targets.status().message()))));
    return;
  }
  has_flat_ = has_flat_ || targets->front().is_flat;
  layouts_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                            Layout{.tensor = decltype(Layout::tensor)(tensor.getIntrusivePtr()),
                                   .caller = std::string(caller),
                                   .sizes = tensor.sizes().vec(),
                                   .targets = *std::move(targets)});
}

void TorchBoxes::Set(std::string_view caller, const at::Tensor& tensor, TensorLayout layout) {
  absl::Status status;
  if (tensor.defined()) status = CheckLayout(tensor.sizes().vec(), layout);
  if (!status.ok()) return Add(caller, tensor, status);
  Add(caller, tensor, std::vector<Target>{{.name = "", .layout = std::move(layout)}});
}

void TorchBoxes::SetFlat(std::string_view caller, const at::Tensor& tensor, const FlatShard& shard) {
  if (!tensor.defined()) return Add(caller, tensor, std::vector<Target>());
  Add(caller, tensor, TargetsOf(tensor.sizes().vec(), shard));
}

absl::StatusOr<std::vector<TorchBoxes::Target>> TorchBoxes::TargetsOf(const Numbers& sizes, const FlatShard& shard) {
  if (sizes.size() != 1) {
    return absl::InvalidArgumentError(
        fmt::format("a tensor of [{}] is no flat shard, which has one dimension", fmt::join(sizes, ", ")));
  }
  if (shard.first < 0) {
    return absl::InvalidArgumentError(fmt::format("a flat shard begins at element {}", shard.first));
  }
  std::vector<Target> targets;
  absl::flat_hash_set<std::string> names;
  int64_t begin = 0;
  for (const FlatParameter& parameter : shard.parameters) {
    const absl::StatusOr<int64_t> elements = CountElements(parameter);
    if (!elements.ok()) return elements.status();
    if (*elements > std::numeric_limits<int64_t>::max() - begin) {
      return absl::InvalidArgumentError("the parameters of a flat shard have 2^63 elements, or more");
    }
    if (!parameter.name.empty()) {
      if (!names.insert(parameter.name).second) {
        return absl::InvalidArgumentError(
            fmt::format("two parameters of a flat shard have the name '{}'", parameter.name));
      }
      const int64_t end = shard.first + std::min(sizes[0], std::numeric_limits<int64_t>::max() - shard.first);
      targets.push_back(
          {.name = parameter.name,
           .layout = {.shape = parameter.shape, .boxes = BoxesInFlat(parameter.shape, begin, shard.first, end)},
           .is_flat = true});
    }
    begin += *elements;
  }
  if (targets.empty()) return absl::InvalidArgumentError("a flat shard has no parameter");
  return targets;
}

void TorchBoxes::Clear() {
  ++version_;
  layouts_.clear();
  has_flat_ = false;
  error_ = absl::OkStatus();
}

std::vector<std::string> TorchBoxes::FindFlatNames(const at::Tensor& tensor, std::string_view name) const {
  std::vector<std::string> names;
  const auto known = layouts_.find(tensor.unsafeGetTensorImpl());
  if (known == layouts_.end() || !known->second.targets.front().is_flat) return names;
  const std::string_view module = name.substr(0, name.rfind('.') + 1);  // with the '.'; empty if there is none
  for (const Target& target : known->second.targets) names.push_back(fmt::format("{}{}", module, target.name));
  return names;
}

at::Tensor TorchBoxes::View(const at::Tensor& tensor, const Target& target, const TensorBox& box) {
  if (!target.is_flat && target.layout.boxes.size() == 1) return tensor;
  const c10::InferenceMode no_autograd;
  if (target.is_flat) return tensor.narrow(0, box.begin[0], ElementsOf(box.extent));
  at::Tensor view = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const auto i = static_cast<size_t>(d);
    if (box.extent[i] != tensor.size(d)) view = view.narrow(d, box.begin[i], box.extent[i]);
  }
  return view;
}

absl::Status TorchBoxes::FindTargets(const std::function<Item(size_t)>& item, const std::vector<State::Entry>& entries,
                                     std::vector<const Target*>* targets) const {
  targets->assign(entries.size(), nullptr);
  absl::flat_hash_set<const at::TensorImpl*> met;
  for (size_t i = 0; i < entries.size(); ++i) {
    const EntrySpec& spec = entries[i].spec;
    if (spec.kind != EntryKind::kTensor) continue;
    const Item of_entry = item(i);
    auto known = layouts_.find(of_entry.tensor.unsafeGetTensorImpl());
    const bool is_kept_for_it = known == layouts_.end();
    if (is_kept_for_it) known = layouts_.find(of_entry.use.with);
    if (known == layouts_.end()) continue;
    const std::string& caller = known->second.caller;
    const Numbers& sizes = known->second.sizes;
    const bool has_its_shape = of_entry.tensor.sizes() == sizes;
    if (is_kept_for_it && !has_its_shape) continue;  // a number, say
    if (!has_its_shape) {
      return absl::InvalidArgumentError(
          fmt::format("entry '{}' has the shape [{}], and had [{}] when {} said where it lies: call {} again",
                      spec.name, fmt::join(spec.shape, ", "), fmt::join(sizes, ", "), caller, caller));
    }
    met.insert(known->first);
    (*targets)[i] = &known->second.targets[of_entry.use.parameter];
  }
  for (const auto& [tensor, known] : layouts_) {
    if (met.contains(tensor)) continue;
    return absl::InvalidArgumentError(fmt::format(
        "the state does not have the tensor of [{}] that {} made a part of a tensor of [{}]: a module may have a new "
        "tensor in its place. Call ClearBoxes, and then {} for the tensors that there are",
        fmt::join(known.sizes, ", "), known.caller, fmt::join(known.targets.front().layout.shape, ", "), known.caller));
  }
  return ShareWithTied(entries, targets);
}

// Tied entries lie in the same bytes, so all of them are the same boxes.
absl::Status TorchBoxes::ShareWithTied(const std::vector<State::Entry>& entries, std::vector<const Target*>* targets) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].alias_of < 0) continue;
    const auto first = static_cast<size_t>(entries[i].alias_of);
    const Target* own = (*targets)[i];
    const Target*& of_first = (*targets)[first];
    const bool is_flat = (own != nullptr && own->is_flat) || (of_first != nullptr && of_first->is_flat);
    if (is_flat && (own == nullptr || of_first == nullptr || !(*own == *of_first))) {
      return absl::InvalidArgumentError(fmt::format(
          "entry '{}' lies in the same bytes as '{}', and one of them is of a flat shard: call SetFlatShard "
          "for both of the tensors, with the same parameters",
          entries[i].spec.name, entries[first].spec.name));
    }
    if (own != nullptr && of_first != nullptr && !(*own == *of_first)) {
      return absl::InvalidArgumentError(fmt::format(
          "entries '{}' and '{}' lie in the same bytes, and SetBox or SetBoxes said that they are different parts",
          entries[first].spec.name, entries[i].spec.name));
    }
    if (own != nullptr) of_first = own;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].alias_of >= 0) (*targets)[i] = (*targets)[static_cast<size_t>(entries[i].alias_of)];
  }
  return absl::OkStatus();
}

absl::Status TorchBoxes::Put(const std::function<Item(size_t)>& item, std::vector<State::Entry>* entries,
                             std::vector<Part>* parts) const {
  if (!error_.ok()) return error_;
  std::vector<const Target*> targets;
  if (absl::Status status = FindTargets(item, *entries, &targets); !status.ok()) return status;
  std::vector<State::Entry> put;
  std::vector<size_t> first_of;  // by item: its first entry
  put.reserve(entries->size());
  parts->clear();
  for (size_t i = 0; i < entries->size(); ++i) {
    const State::Entry& of_item = (*entries)[i];
    first_of.push_back(put.size());
    const size_t count = targets[i] == nullptr ? 1 : targets[i]->layout.boxes.size();
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
      if (targets[i] == nullptr) continue;
      const TensorBox& box = targets[i]->layout.boxes[part];
      entry.spec.shape = targets[i]->layout.shape;
      entry.spec.box_offset = box.offset;
      entry.spec.box_extent = box.extent;
      at::Tensor& tensor = parts->back().tensor;
      tensor = View(tensor, *targets[i], box);
      entry.bytes = tensor.nbytes();
      entry.host = HostBytes(tensor);
      if (entry.bytes == 0) entry.alias_of = -1;  // empty tensors are never tied
    }
  }
  *entries = std::move(put);
  return absl::OkStatus();
}

}  // namespace tidemark
