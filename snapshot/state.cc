#include "tidemark/state.h"

#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

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

}  // namespace

State::State() : structure_version_(NextStructureVersion()) {}
State::~State() = default;

void State::NoteError(absl::Status status) { error_.Update(status); }

void State::AddOwn(Entry entry) {
  entry.alias_of = -1;
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
  Entry entry;
  entry.spec = {.name = std::move(name), .kind = EntryKind::kTensor, .dtype = dtype, .shape = std::move(shape)};
  if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) {
    NoteError(std::move(status));
    return;
  }
  if (data == nullptr && entry.bytes > 0) {
    NoteError(absl::InvalidArgumentError(fmt::format("entry '{}': its data is null", entry.spec.name)));
    return;
  }
  entry.host = static_cast<std::byte*>(data);
  AddOwn(std::move(entry));
}

void State::AddVariable(std::string name, EntryKind kind, Dtype dtype, Variable variable) {
  Entry entry;
  entry.spec = {.name = std::move(name), .kind = kind, .dtype = dtype};
  if (kind == EntryKind::kString || kind == EntryKind::kBytes) entry.spec.shape = {0};
  if (absl::Status status = ValidateEntry(entry.spec, &entry.bytes); !status.ok()) {
    NoteError(std::move(status));
    return;
  }
  variables_.emplace(own_count_, std::move(variable));
  AddOwn(std::move(entry));
}

void State::AddValue(std::string name, int64_t* value) {
  AddVariable(std::move(name), EntryKind::kInt64, Dtype::kInt64,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, double* value) {
  AddVariable(std::move(name), EntryKind::kDouble, Dtype::kFloat64,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, bool* value) {
  static_assert(sizeof(bool) == 1);
  AddVariable(std::move(name), EntryKind::kBool, Dtype::kBool,
              {[value] { return FixedBytes(value); }, [value](auto bytes) { AssignFixed(value, bytes); }});
}

void State::AddValue(std::string name, std::string* value) {
  AddVariable(std::move(name), EntryKind::kString, Dtype::kUint8,
              {[value] { return std::as_writable_bytes(std::span<char>(*value)); },
               [value](std::span<const std::byte> bytes) {
                 value->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
               }});
}

void State::AddValue(std::string name, std::vector<std::byte>* value) {
  AddVariable(std::move(name), EntryKind::kBytes, Dtype::kUint8,
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
    structure_version_ = NextStructureVersion();
  }
  if (validated_version_ == structure_version_) return absl::OkStatus();
  absl::flat_hash_set<std::string_view> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    if (!names.insert(entry.spec.name).second) {
      return absl::InvalidArgumentError(fmt::format("entry '{}' was added twice", entry.spec.name));
    }
  }
  validated_version_ = structure_version_;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> State::CopyOnDevice(std::span<const size_t>, uint64_t) {
  return nullptr;
}

std::shared_ptr<std::byte> State::AllocateStaging(uint64_t) { return nullptr; }

absl::Status State::CopyToHost(std::span<const CopyRequest> requests) {
  if (requests.empty()) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("entry '{}' has no host memory and nobody to copy it", entries_[requests.front().entry].spec.name));
}

absl::Status State::PrepareRestore(std::span<const EntrySpec>) {
  received_.clear();
  return Refresh();
}

absl::Status State::Receive(size_t entry, std::span<const std::byte> bytes) {
  if (variables_.contains(entry)) {
    if (absl::Status status = CheckValue(entries_[entry].spec, bytes); !status.ok()) return status;
    received_[entry].assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  return absl::InternalError(fmt::format("entry '{}' has no place for its bytes", entries_[entry].spec.name));
}

absl::Status State::FinishRestore() {
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

}  // namespace tidemark
