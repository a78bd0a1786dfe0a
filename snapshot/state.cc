#include "tidemark/state.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "storage/shard/format/entry_names.h"

namespace tidemark {
namespace {

uint64_t NextStructureVersion() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Bytes of a variable whose size never changes.
template <typename T>
std::span<std::byte> FixedBytes(T* value) {
  return std::as_writable_bytes(std::span<T, 1>(value, 1));
}

template <typename T>
void AssignFixed(T* value, std::span<const std::byte> bytes) {
  std::memcpy(value, bytes.data(), sizeof(T));
}

// Whether bytes from a checkpoint can be a value of this kind.
absl::Status CheckValue(const EntrySpec& spec, std::span<const std::byte> bytes) {
  const bool scalar = spec.shape.empty();
  const size_t expected = GetDtypeInfo(spec.dtype).element_bytes;
  if (scalar && bytes.size() != expected) {
    return absl::DataLossError(
        fmt::format("entry '{}': a scalar of {} bytes came with {}", spec.name, expected, bytes.size()));
  }
  // Any other byte in a bool is undefined behaviour, so it never gets there.
  if (spec.kind == EntryKind::kBool && std::to_integer<int>(bytes[0]) > 1) {
    return absl::DataLossError(
        fmt::format("entry '{}': a bool came as byte {}", spec.name, std::to_integer<int>(bytes[0])));
  }
  return absl::OkStatus();
}

// `index`: the number of entries added before. For an entry without a name it is the only name.
absl::Status ValidateAdded(const EntrySpec& spec, size_t index, uint64_t* bytes) {
  if (!spec.name.empty()) return ValidateEntry(spec, bytes);
  return absl::InvalidArgumentError(fmt::format("entry {}, counted from 0, was added with an empty name", index));
}

}  // namespace

State::State() : structure_version_(NextStructureVersion()) {}
State::~State() = default;

void State::NoteError(absl::Status status) { error_.Update(status); }

void State::AddOwn(Entry entry) {
  // Derived entries come after, and what refers to one of them counts from the front of the list.
  for (size_t i = own_count_; i < entries_.size(); ++i) {
    if (entries_[i].alias_of >= 0) ++entries_[i].alias_of;
    if (entries_[i].staged_with >= 0) ++entries_[i].staged_with;
  }
  entries_.insert(entries_.begin() + static_cast<ptrdiff_t>(own_count_), std::move(entry));
  ++own_count_;
  structure_version_ = NextStructureVersion();
}

void State::AddTensor(std::string name, Dtype dtype, std::vector<int64_t> shape, void* data) {
  AddTensorEntry({.name = std::move(name), .kind = EntryKind::kTensor, .dtype = dtype, .shape = std::move(shape)},
                 data);
}

void State::AddBox(std::string name, Dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> offset,
                   std::vector<int64_t> extent, void* data) {
  EntrySpec spec = {.name = std::move(name), .kind = EntryKind::kTensor, .dtype = dtype, .shape = std::move(shape)};
  // A scalar has one box, which is all of it.
  if (offset.size() != spec.shape.size() || extent.size() != spec.shape.size()) {
    NoteError(absl::InvalidArgumentError(
        fmt::format("entry '{}': its box has an offset of {} dimensions and an extent of {}, and its tensor has {}",
                    spec.name, offset.size(), extent.size(), spec.shape.size())));
    return;
  }
  spec.box_offset = std::move(offset);
  spec.box_extent = std::move(extent);
  AddTensorEntry(std::move(spec), data);
}

void State::AddTensorEntry(EntrySpec spec, void* data) {
  Entry entry;
  entry.spec = std::move(spec);
  if (absl::Status status = ValidateAdded(entry.spec, own_count_, &entry.bytes); !status.ok()) {
    NoteError(std::move(status));
    return;
  }
  if (data == nullptr && entry.bytes > 0) {
    NoteError(absl::InvalidArgumentError(fmt::format("entry '{}': its data is null", entry.spec.name)));
    return;
  }
  entry.host = static_cast<std::byte*>(data);
  // Empty tensors are never tied.
  if (entry.bytes > 0) {
    const auto [first, is_new] = tensors_.emplace(std::pair(entry.host, entry.bytes), own_count_);
    if (!is_new) entry.alias_of = static_cast<int64_t>(first->second);
  }
  AddOwn(std::move(entry));
}

void State::AddVariable(std::string name, EntryKind kind, Dtype dtype, const void* value, Variable variable) {
  Entry entry;
  entry.spec = {.name = std::move(name), .kind = kind, .dtype = dtype};
  if (kind == EntryKind::kString || kind == EntryKind::kBytes) entry.spec.shape = {0};
  if (absl::Status status = ValidateAdded(entry.spec, own_count_, &entry.bytes); !status.ok()) {
    NoteError(std::move(status));
    return;
  }
  if (value == nullptr) {
    NoteError(absl::InvalidArgumentError(fmt::format("entry '{}': its variable is null", entry.spec.name)));
    return;
  }
  variables_.emplace(own_count_, std::move(variable));
  AddOwn(std::move(entry));
}

void State::AddValue(std::string name, int64_t* value) {
  AddVariable(std::move(name), EntryKind::kInt64, Dtype::kInt64, value,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, double* value) {
  AddVariable(std::move(name), EntryKind::kDouble, Dtype::kFloat64, value,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, bool* value) {
  static_assert(sizeof(bool) == 1);
  AddVariable(std::move(name), EntryKind::kBool, Dtype::kBool, value,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, std::string* value) {
  AddVariable(std::move(name), EntryKind::kString, Dtype::kUint8, value,
              {[value] { return std::as_writable_bytes(std::span<char>(*value)); },
               [value](std::span<const std::byte> bytes) {
                 value->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
               }});
}

void State::AddValue(std::string name, std::vector<std::byte>* value) {
  AddVariable(std::move(name), EntryKind::kBytes, Dtype::kUint8, value,
              {[value] { return std::span<std::byte>(*value); },
               [value](std::span<const std::byte> bytes) { value->assign(bytes.begin(), bytes.end()); }});
}

absl::Status State::Refresh() {
  if (!error_.ok()) return error_;
  for (auto& [index, variable] : variables_) {
    Entry& entry = entries_[index];
    const std::span<std::byte> bytes = variable.bytes();
    entry.host = bytes.data();
    if (bytes.size() == entry.bytes) continue;
    EntrySpec grown = entry.spec;
    grown.shape = {static_cast<int64_t>(bytes.size())};
    uint64_t size = 0;
    if (absl::Status status = ValidateEntry(grown, &size); !status.ok()) return status;
    entry.spec = std::move(grown);
    entry.bytes = size;
  }
  if (absl::Status status = SaveObjects(); !status.ok()) return status;
  if (validated_version_ == structure_version_) return absl::OkStatus();
  storage::EntryNames names;
  names.Reserve(entries_.size());
  for (const Entry& entry : entries_) names.Add(entry.spec.name);
  const auto spec_of = [&](size_t entry) -> const EntrySpec& { return entries_[entry].spec; };
  if (const std::optional<storage::NameConflict> conflict = names.FindConflict(spec_of)) {
    const std::string& name = spec_of(conflict->entry).name;
    return absl::InvalidArgumentError(conflict->is_of_boxes ? fmt::format("entry '{}': {}", name, conflict->why)
                                                            : fmt::format("entry '{}' was added twice", name));
  }
  validated_version_ = structure_version_;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> State::CopyOnDevice(std::span<const size_t>, uint64_t) {
  return nullptr;
}

std::shared_ptr<std::byte> State::AllocateStaging(uint64_t) { return nullptr; }

void State::AwaitStaging() const { staged_.Await(absl::InfiniteFuture()).IgnoreError(); }

absl::Status State::CopyToHost(std::span<const CopyRequest> requests) {
  if (requests.empty()) return absl::OkStatus();
  return absl::InternalError(fmt::format("entry '{}' has no host memory, and its State does not override CopyToHost",
                                         entries_[requests.front().entry].spec.name));
}

absl::Status State::PrepareRestore(std::span<const EntrySpec>) {
  received_.clear();
  preparing_restore_ = true;
  // Also after an exception: a save would otherwise write what the objects saved before.
  const absl::Cleanup prepared = [this] { preparing_restore_ = false; };
  return Refresh();
}

absl::Status State::Receive(size_t entry, std::span<const std::byte> bytes) {
  if (variables_.contains(entry)) {
    if (absl::Status status = CheckValue(entries_[entry].spec, bytes); !status.ok()) return status;
    received_[entry].assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  if (objects_.contains(entry)) {
    received_[entry].assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  return absl::InternalError(fmt::format("entry '{}' has no place for its bytes", entries_[entry].spec.name));
}

absl::Status State::FinishRestore() {
  if (absl::Status status = LoadObjects(); !status.ok()) return status;
  for (auto& [entry, bytes] : received_) variables_.at(entry).assign(bytes);
  received_.clear();
  return absl::OkStatus();
}

void State::AbandonRestore() { received_.clear(); }

void State::SetDerivedEntries(std::vector<Entry> derived) {
  entries_.resize(own_count_);
  for (Entry& entry : derived) {
    if (entry.alias_of >= 0) entry.alias_of += static_cast<int64_t>(own_count_);
    if (entry.staged_with >= 0) entry.staged_with += static_cast<int64_t>(own_count_);
    entries_.push_back(std::move(entry));
  }
  structure_version_ = NextStructureVersion();
}

// ---- Objects.

namespace {

// Runs a function of the trainer's for an entry. Its error, or what it threw, names the entry.
absl::Status RunForEntry(std::string_view name, std::string_view function, const std::function<absl::Status()>& run) {
  const absl::Status status = Guarded(function, run);
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("entry '{}': {}", name, std::string(status.message())));
}

}  // namespace

void State::AddObject(std::string name, std::function<absl::StatusOr<std::vector<std::byte>>()> save,
                      std::function<absl::Status(std::span<const std::byte>)> load) {
  Entry entry;
  entry.spec = {.name = std::move(name), .kind = EntryKind::kBytes, .dtype = Dtype::kUint8, .shape = {0}};
  if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) {
    NoteError(std::move(status));
    return;
  }
  if (save == nullptr || load == nullptr) {
    NoteError(absl::InvalidArgumentError(
        fmt::format("entry '{}': its {} function is null", entry.spec.name, save == nullptr ? "save" : "load")));
    return;
  }
  objects_.emplace(own_count_, Object{.save = std::move(save), .load = std::move(load), .saved = {}});
  AddOwn(std::move(entry));
}

absl::Status State::SaveObjects() {
  if (preparing_restore_) return absl::OkStatus();
  for (auto& [index, object] : objects_) {
    absl::StatusOr<std::vector<std::byte>> saved;
    absl::Status status = RunForEntry(entries_[index].spec.name, "save", [&, &object = object] {
      saved = object.save();
      return saved.status();
    });
    if (!status.ok()) return status;
    EntrySpec spec = entries_[index].spec;
    spec.shape = {static_cast<int64_t>(saved->size())};
    uint64_t bytes = 0;
    if (status = ValidateEntry(spec, &bytes); !status.ok()) return status;
    object.saved = *std::move(saved);
    Entry& entry = entries_[index];
    entry.host = object.saved.data();
    entry.spec = std::move(spec);
    entry.bytes = bytes;
  }
  return absl::OkStatus();
}

absl::Status State::LoadObjects() {
  for (auto& [index, object] : objects_) {
    const auto received = received_.find(index);
    if (received == received_.end()) continue;
    absl::Status status =
        RunForEntry(entries_[index].spec.name, "load", [&, &object = object] { return object.load(received->second); });
    if (!status.ok()) return status;
    received_.erase(received);
  }
  return absl::OkStatus();
}

}  // namespace tidemark
