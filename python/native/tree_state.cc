#include "python/native/tree_state.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tidemark::python {
namespace {

// Calls function(offset in the array, offset in row-major order, bytes) for every run of bytes that is contiguous in
// both.
template <typename Function>
void ForEachRun(const Array& array, uint64_t bytes, Function function) {
  if (bytes == 0) return;
  const std::vector<int64_t>& shape = array.spec.held_shape();
  int64_t run = GetDtypeInfo(array.spec.dtype).element_bytes;
  size_t outer = shape.size();  // dimensions that are counted
  while (outer > 0 && (shape[outer - 1] == 1 || array.strides[outer - 1] == run)) {
    run *= shape[outer - 1];
    --outer;
  }
  std::vector<int64_t> index(outer, 0);
  int64_t offset = 0;
  for (uint64_t done = 0; done < bytes; done += static_cast<uint64_t>(run)) {
    function(offset, done, static_cast<size_t>(run));
    for (size_t d = outer; d-- > 0;) {
      offset += array.strides[d];
      if (++index[d] < shape[d]) break;
      offset -= array.strides[d] * shape[d];
      index[d] = 0;
    }
  }
}

// Boxes of one tensor come one after the other.
void NoteOnce(const std::string& name, std::vector<std::string>& names) {
  if (names.empty() || names.back() != name) names.push_back(name);
}

bool IsFloatingPoint(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
}

// Copies of arrays on their devices, and of strided ones in host memory.
class CopiedArrays final : public State::DeviceImage {
 public:
  CopiedArrays(std::unique_ptr<DeviceTensors::Image> image, absl::flat_hash_map<size_t, std::vector<std::byte>> host,
               std::span<const State::Entry> entries)
      : image_(std::move(image)), host_(std::move(host)) {
    bytes_.reserve(entries.size());
    for (const State::Entry& entry : entries) bytes_.push_back(entry.bytes);
  }

  uint64_t bytes() const override { return image_ == nullptr ? 0 : image_->bytes(); }

  absl::Status CopyToHost(std::span<const State::CopyRequest> requests) override {
    std::vector<DeviceTensors::Request> on_device;
    for (const State::CopyRequest& request : requests) {
      if (const auto found = host_.find(request.entry); found != host_.end()) {
        std::memcpy(request.destination, found->second.data(), found->second.size());
      } else {
        on_device.push_back({request.entry, request.destination, bytes_[request.entry]});
      }
    }
    return on_device.empty() ? absl::OkStatus() : image_->CopyToHost(on_device);
  }

 private:
  const std::unique_ptr<DeviceTensors::Image> image_;
  const absl::flat_hash_map<size_t, std::vector<std::byte>> host_;  // by entry
  std::vector<uint64_t> bytes_;                                     // by entry
};

// Whether the numbers of one tensor can be converted to the dtype of the other, and have to be.
bool IsConverted(const EntrySpec& saved, const EntrySpec& wanted) {
  return saved.kind == EntryKind::kTensor && saved.dtype != wanted.dtype && IsFloatingPoint(saved.dtype) &&
         IsFloatingPoint(wanted.dtype);
}

absl::StatusOr<std::vector<State::Entry>> EntriesOf(const std::vector<Array>& arrays) {
  std::vector<State::Entry> entries;
  entries.reserve(arrays.size());
  using Numbers = absl::Span<const int64_t>;
  using Place = std::tuple<const std::byte*, std::string_view, uint64_t, Numbers, Numbers>;
  absl::flat_hash_map<Place, int64_t> first_there;
  first_there.reserve(arrays.size());
  for (const Array& array : arrays) {
    State::Entry entry{.spec = array.spec};
    if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) return status;
    const bool contiguous = array.strides.empty();
    entry.host = contiguous && array.device.empty() ? array.data : nullptr;
    entry.changes_early = array.changes_early;
    if (entry.bytes > 0) {
      const auto [first, is_new] =
          first_there.emplace(Place(array.data, array.device, entry.bytes, Numbers(array.strides),
                                    contiguous ? Numbers() : Numbers(array.spec.held_shape())),
                              static_cast<int64_t>(entries.size()));
      if (!is_new) entry.alias_of = first->second;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

absl::Status TreeState::SetEntries(std::shared_ptr<const std::vector<Array>> arrays, std::vector<Value> values,
                                   std::shared_ptr<DeviceTensors> devices) {
  AwaitStaging();
  devices_ = std::move(devices);
  has_only_destinations_ = false;
  // Most saves of a run are of the same arrays.
  const bool known = std::exchange(entries_are_of_arrays_, false) && (arrays == arrays_ || *arrays == *arrays_) &&
                     values.size() == values_.size();
  arrays_ = std::move(arrays);
  values_ = std::move(values);
  std::vector<Entry> of_values;
  of_values.reserve(values_.size());
  for (Value& value : values_) {
    Entry entry{.spec = value.spec};
    if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) return status;
    entry.host = reinterpret_cast<std::byte*>(value.bytes.data());
    entry.changes_early = true;
    of_values.push_back(std::move(entry));
  }
  const auto same = [](const Entry& a, const Entry& b) {
    return a.spec == b.spec && a.alias_of == b.alias_of && a.changes_early == b.changes_early &&
           (a.host == nullptr) == (b.host == nullptr);
  };
  // Entries from `first` on are those of `found`: only their places may differ.
  const auto replace = [&](size_t first, const std::vector<Entry>& found) {
    bool all_same = entries().size() == first + found.size();
    for (size_t i = 0; all_same && i < found.size(); ++i) all_same = same(entries()[first + i], found[i]);
    for (size_t i = 0; all_same && i < found.size(); ++i) mutable_entries()[first + i].host = found[i].host;
    return all_same;
  };
  if (!known || !replace(own_arrays().size(), of_values)) {
    absl::StatusOr<std::vector<Entry>> found = EntriesOf(own_arrays());
    if (!found.ok()) return found.status();
    std::move(of_values.begin(), of_values.end(), std::back_inserter(*found));
    if (!replace(0, *found)) SetDerivedEntries(*std::move(found));
  }
  entries_are_of_arrays_ = true;
  return absl::OkStatus();
}

void TreeState::SetDestinations(std::shared_ptr<const std::vector<Array>> arrays, std::vector<std::string> values,
                                std::vector<std::string> open, std::map<std::string, BoxBeneath> boxes, bool converts,
                                std::shared_ptr<DeviceTensors> devices, ValuesLook look) {
  AwaitStaging();
  devices_ = std::move(devices);
  look_ = std::move(look);
  writes_.clear();
  converts_ = converts;
  entries_are_of_arrays_ = false;
  has_only_destinations_ = true;
  arrays_ = std::move(arrays);
  names_ = std::move(values);
  open_ = std::move(open);
  boxes_ = std::move(boxes);
  received_ = {};
  differences_ = {};
}

bool TreeState::MayBeIn(const std::vector<Array>& arrays) const {
  absl::flat_hash_set<const std::byte*> places;
  places.reserve(own_arrays().size());
  for (const Array& array : own_arrays()) places.insert(array.data);
  return own_arrays().empty() ||
         std::any_of(arrays.begin(), arrays.end(), [&](const Array& array) { return places.contains(array.data); });
}

bool TreeState::IsOpen(const std::string& name) const {
  for (const std::string& prefix : open_) {
    if (name.size() > prefix.size() && name.starts_with(prefix) && name[prefix.size()] == '.') return true;
  }
  return false;
}

EntrySpec TreeState::WantedPart(EntrySpec saved) const {
  const size_t dot = saved.name.rfind('.');
  if (saved.kind != EntryKind::kTensor || dot == std::string::npos) return saved;
  const auto found = boxes_.find(saved.name.substr(0, dot));
  if (found == boxes_.end() || found->second.shape != saved.shape) return saved;
  saved.box_offset = found->second.offset;
  saved.box_extent = found->second.extent;
  return saved;
}

void TreeState::CopyOfHost(size_t entry, std::byte* destination) const {
  const uint64_t bytes = entries()[entry].bytes;
  if (const std::byte* const host = entries()[entry].host; host != nullptr) {
    std::memcpy(destination, host, bytes);
    return;
  }
  const Array& array = own_arrays()[entry];
  ForEachRun(array, bytes, [&](int64_t offset, uint64_t done, size_t run) {
    std::memcpy(destination + done, array.data + offset, run);
  });
}

// Resume in a fresh run asks how much memory the first save will take: that of the arrays, and some for values.
absl::Status TreeState::Refresh() {
  if (std::exchange(has_only_destinations_, false)) {
    absl::StatusOr<std::vector<Entry>> found = EntriesOf(own_arrays());
    if (!found.ok()) return found.status();
    SetDerivedEntries(*std::move(found));
  }
  return State::Refresh();
}

absl::Status TreeState::CopyToHost(std::span<const CopyRequest> requests) {
  std::vector<DeviceTensors::Request> on_device;
  for (const CopyRequest& request : requests) {
    if (request.entry < own_arrays().size() && !own_arrays()[request.entry].device.empty()) {
      on_device.push_back({request.entry, request.destination, entries()[request.entry].bytes});
    } else {
      CopyOfHost(request.entry, request.destination);
    }
  }
  return on_device.empty() ? absl::OkStatus() : devices_->CopyToHost(on_device);
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> TreeState::CopyOnDevice(std::span<const size_t> entries,
                                                                            uint64_t bytes_max) {
  std::vector<size_t> on_device;
  absl::flat_hash_map<size_t, std::vector<std::byte>> host;
  for (const size_t entry : entries) {
    if (own_arrays()[entry].device.empty()) {
      std::vector<std::byte>& copy = host[entry];
      copy.resize(this->entries()[entry].bytes);
      CopyOfHost(entry, copy.data());
    } else {
      on_device.push_back(entry);
    }
  }
  std::unique_ptr<DeviceTensors::Image> image;
  if (!on_device.empty()) {
    auto made = devices_->CopyOnDevice(on_device, bytes_max);
    if (!made.ok()) return made.status();
    if (*made == nullptr) return nullptr;
    image = *std::move(made);
  }
  return std::make_unique<CopiedArrays>(std::move(image), std::move(host), this->entries());
}

std::shared_ptr<std::byte> TreeState::AllocateStaging(uint64_t bytes) {
  return devices_ == nullptr ? nullptr : DeviceTensors::AllocatePageLocked(bytes);
}

absl::Status TreeState::PrepareRestore(std::span<const EntrySpec> saved) {
  receiving_ = {};
  received_ = {};
  differences_ = {};
  values_to_come_ = 0;
  has_only_destinations_ = false;
  absl::StatusOr<std::vector<Entry>> destinations = EntriesOf(own_arrays());
  if (!destinations.ok()) return destinations.status();
  absl::flat_hash_map<std::string_view, const EntrySpec*> by_name;
  by_name.reserve(saved.size());
  for (const EntrySpec& spec : saved) by_name.emplace(spec.name, &spec);
  std::set<std::string> has_entries;  // of open_
  for (const std::string& prefix : open_) {
    if (by_name.contains(prefix + ".type")) has_entries.insert(prefix);
  }
  absl::flat_hash_set<std::string_view> known;
  known.reserve(own_arrays().size() + names_.size());
  kept_.assign(own_arrays().size(), false);
  for (size_t i = 0; i < own_arrays().size(); ++i) {
    const Array& array = own_arrays()[i];
    known.insert(array.spec.name);
    const auto found = by_name.find(array.spec.name);
    if (found == by_name.end()) {
      NoteOnce(array.spec.name, differences_.missing);
    } else if (converts_ && IsConverted(*found->second, array.spec)) {
      kept_[i] = true;
      (*destinations)[i].spec.dtype = found->second->dtype;
      (*destinations)[i].host = nullptr;
      if (found->second->shape != array.spec.shape) NoteOnce(array.spec.name, differences_.reshaped);
    } else if (found->second->kind != array.spec.kind || found->second->dtype != array.spec.dtype) {
      NoteOnce(array.spec.name, differences_.retyped);
    } else if (found->second->shape != array.spec.shape) {
      NoteOnce(array.spec.name, differences_.reshaped);
    }
  }
  for (const std::string& name : names_) {
    known.insert(name);
    EntrySpec spec{.name = name, .kind = EntryKind::kBytes, .dtype = Dtype::kUint8, .shape = {0}};
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      // The state of an optimizer lies in entries beneath its name alone.
      if (has_entries.contains(name)) continue;
      differences_.missing.push_back(name);
    } else if (found->second->kind == EntryKind::kTensor) {
      differences_.retyped.push_back(name);
    } else {
      spec = *found->second;
      ++values_to_come_;
    }
    destinations->push_back({.spec = std::move(spec)});
  }
  for (const EntrySpec& spec : saved) {
    if (known.contains(spec.name)) continue;
    if (IsOpen(spec.name)) {
      if (spec.kind != EntryKind::kTensor) ++values_to_come_;
      destinations->push_back({.spec = WantedPart(spec)});
    } else {
      differences_.unexpected.push_back(spec.name);
    }
  }
  for (Entry& entry : *destinations) {
    if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) return status;
  }
  SetDerivedEntries(*std::move(destinations));
  return State::PrepareRestore(saved);
}

absl::Status TreeState::Receive(size_t index, std::span<const std::byte> bytes) {
  const bool is_array = index < own_arrays().size();
  if (!is_array || kept_[index]) {
    Received& received = is_array ? receiving_.arrays[index] : receiving_.by_name[entries()[index].spec.name];
    received.spec = entries()[index].spec;
    if (received.spec.kind == EntryKind::kBytes || received.spec.kind == EntryKind::kString) {
      received.spec.shape = {static_cast<int64_t>(bytes.size())};
    }
    received.bytes.assign(bytes.begin(), bytes.end());
    if (received.spec.kind != EntryKind::kTensor && --values_to_come_ == 0 && look_ != nullptr) {
      std::vector<EntrySpec> tensors;
      for (const Entry& entry : entries().subspan(own_arrays().size())) {
        if (entry.spec.kind == EntryKind::kTensor) tensors.push_back(entry.spec);
      }
      look_(receiving_.by_name, tensors);
    }
    return absl::OkStatus();
  }
  const Array& array = own_arrays()[index];
  if (!array.device.empty()) {
    writes_.push_back({index, bytes});
    return absl::OkStatus();
  }
  if (array.strides.empty()) {
    std::memcpy(array.data, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  ForEachRun(array, bytes.size(), [&](int64_t offset, uint64_t done, size_t run) {
    std::memcpy(array.data + offset, bytes.data() + done, run);
  });
  return absl::OkStatus();
}

absl::Status TreeState::FlushReceived() {
  const std::vector<DeviceTensors::Write> writes = std::exchange(writes_, {});
  return writes.empty() ? absl::OkStatus() : devices_->WriteAll(writes);
}

absl::Status TreeState::FinishRestore() {
  received_ = std::exchange(receiving_, {});
  return State::FinishRestore();
}

void TreeState::AbandonRestore() {
  receiving_ = {};
  writes_.clear();
  State::AbandonRestore();
}

}  // namespace tidemark::python
