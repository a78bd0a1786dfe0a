#include "snapshot/torch_catalog.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "snapshot/torch_copy.h"
#include "snapshot/torch_dtypes.h"
#include "snapshot/torch_errors.h"

namespace tidemark {
namespace {

template <typename Small>
bool SameExtents(const Small& kept, at::IntArrayRef now) {
  return kept.size() == now.size() && std::equal(kept.begin(), kept.end(), now.begin());
}

}  // namespace

TorchCatalog::Scope::Scope(TorchCatalog& catalog, std::string_view part)
    : catalog_(catalog), length_before_(catalog.name_.size()) {
  if (part.empty()) return;
  if (!catalog.name_.empty()) catalog.name_.push_back('.');
  catalog.name_.append(part);
}

void TorchCatalog::BeginCapture() {
  publishing_ = false;
  changed_ = false;
  cursor_ = 0;
  name_.clear();
  failure_ = absl::OkStatus();
}

void TorchCatalog::BeginPublish() {
  BeginCapture();
  publishing_ = true;
}

absl::Status TorchCatalog::End() {
  if (publishing_ && cursor_ != items_.size()) {
    Fail(absl::FailedPreconditionError("the state's modules or optimizers were changed during a restore"));
  }
  publishing_ = false;
  if (!failure_.ok()) {
    Clear();
    return failure_;
  }
  if (cursor_ != items_.size()) {
    items_.resize(cursor_);
    changed_ = true;
  }
  return absl::OkStatus();
}

void TorchCatalog::Clear() {
  items_.clear();
  cursor_ = 0;
  publishing_ = false;
  changed_ = true;
}

TorchCatalog::Item& TorchCatalog::Replace() {
  changed_ = true;
  if (cursor_ == items_.size()) items_.emplace_back();
  Item& item = items_[cursor_++];
  item = Item();
  item.name = name_;
  return item;
}

bool TorchCatalog::Matches(const Item& item, const at::Tensor& tensor) const {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return item.tensor.unsafeGetTensorImpl() == impl && item.keys == impl->key_set() &&
         item.storage == tensor.storage().unsafeGetStorageImpl() && item.data == tensor.data_ptr() &&
         item.storage_offset == tensor.storage_offset() && item.scalar_type == tensor.scalar_type() &&
         SameExtents(item.sizes, tensor.sizes()) && SameExtents(item.strides, tensor.strides()) && item.name == name_;
}

void TorchCatalog::Tensor(const at::Tensor& tensor, bool changes_early) {
  if (publishing_) {
    NextReceived();
    return;
  }
  try {
    if (cursor_ < items_.size() && items_[cursor_].tensor.defined() && tensor.defined() &&
        items_[cursor_].changes_early == changes_early && Matches(items_[cursor_], tensor)) {
      ++cursor_;
    } else {
      Capture(tensor, changes_early);
    }
  } catch (...) {
    Fail(StatusOfException(fmt::format("entry '{}'", name_)));
  }
}

void TorchCatalog::Capture(const at::Tensor& tensor, bool changes_early) {
  if (absl::Status status = CheckStorable(name_, tensor); !status.ok()) {
    Fail(std::move(status));
    return;
  }
  Item& item = Replace();
  item.kind = EntryKind::kTensor;
  item.dtype = *ToDtype(tensor.scalar_type());
  item.tensor = tensor;
  item.changes_early = changes_early;
  item.storage = tensor.storage().unsafeGetStorageImpl();
  item.data = tensor.data_ptr();
  item.storage_offset = tensor.storage_offset();
  item.keys = tensor.unsafeGetTensorImpl()->key_set();
  item.scalar_type = tensor.scalar_type();
  item.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  item.strides.assign(tensor.strides().begin(), tensor.strides().end());
}

bool TorchCatalog::Matches(const Item& item, EntryKind kind, size_t bytes) const {
  return item.kind == kind && item.value.size() == bytes && item.name == name_;
}

void TorchCatalog::Capture(EntryKind kind, Dtype dtype, std::string_view bytes, const Check& check) {
  if (cursor_ < items_.size() && Matches(items_[cursor_], kind, bytes.size())) {
    // In place: the entry's host pointer stays as it is.
    Item& item = items_[cursor_++];
    std::memcpy(item.value.data(), bytes.data(), bytes.size());
    item.check = check;
    return;
  }
  Item& item = Replace();
  item.kind = kind;
  item.dtype = dtype;
  item.value = bytes;
  item.check = check;
}

const TorchCatalog::Item* TorchCatalog::NextReceived() {
  if (cursor_ >= items_.size() || items_[cursor_].name != name_) {
    Fail(absl::FailedPreconditionError(fmt::format("entry '{}': the state was changed during a restore", name_)));
    return nullptr;
  }
  const Item& item = items_[cursor_++];
  return item.received ? &item : nullptr;
}

void TorchCatalog::Scalar(EntryKind kind, Dtype dtype, void* value, size_t bytes) {
  if (!publishing_) {
    Capture(kind, dtype, {static_cast<const char*>(value), bytes}, nullptr);
  } else if (const Item* item = NextReceived()) {
    std::memcpy(value, item->received->data(), bytes);
  }
}

std::optional<std::string_view> TorchCatalog::Blob(EntryKind kind, std::string_view now, const Check& check) {
  if (!publishing_) {
    Capture(kind, Dtype::kUint8, now, check);
  } else if (const Item* item = NextReceived()) {
    return *item->received;
  }
  return std::nullopt;
}

void TorchCatalog::Constant(std::string_view text) {
  if (!publishing_ && cursor_ < items_.size() && items_[cursor_].value == text &&
      Matches(items_[cursor_], EntryKind::kString, text.size())) {
    ++cursor_;
    return;
  }
  Blob(EntryKind::kString, text, [expected = std::string(text)](std::string_view found) {
    if (found == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("the checkpoint has '{}', the state '{}'", found, expected));
  });
}

std::vector<State::Entry> TorchCatalog::Entries() const {
  using Place = std::tuple<const void*, int64_t, int, std::vector<int64_t>, std::vector<int64_t>, bool, bool>;
  absl::flat_hash_map<Place, int64_t> first_at;
  std::vector<State::Entry> entries;
  entries.reserve(items_.size());
  for (const Item& item : items_) {
    State::Entry& entry = entries.emplace_back();
    entry.spec.name = item.name;
    entry.spec.kind = item.kind;
    entry.spec.dtype = item.dtype;
    if (!item.tensor.defined()) {
      entry.bytes = item.value.size();
      entry.host = reinterpret_cast<std::byte*>(const_cast<char*>(item.value.data()));
      if (item.kind == EntryKind::kString || item.kind == EntryKind::kBytes) {
        entry.spec.shape = {static_cast<int64_t>(entry.bytes)};
      }
      continue;
    }
    entry.spec.shape.assign(item.sizes.begin(), item.sizes.end());
    entry.bytes = item.tensor.nbytes();
    entry.host = HostBytes(item.tensor);
    entry.changes_early = item.changes_early;
    if (entry.bytes == 0) continue;
    Place place{item.storage,
                item.storage_offset,
                static_cast<int>(item.scalar_type),
                entry.spec.shape,
                {item.strides.begin(), item.strides.end()},
                item.tensor.is_conj(),
                item.tensor.is_neg()};
    const auto [first, is_new] = first_at.emplace(std::move(place), static_cast<int64_t>(entries.size()) - 1);
    if (!is_new) {
      entry.alias_of = first->second;
      // The first is what is copied for both.
      if (item.changes_early) entries[static_cast<size_t>(first->second)].changes_early = true;
    }
  }
  return entries;
}

std::vector<c10::Device> TorchCatalog::Devices() const {
  std::vector<c10::Device> devices;
  for (const Item& item : items_) {
    if (!item.tensor.defined() || item.tensor.is_cpu()) continue;
    const c10::Device device = item.tensor.device();
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

absl::Status TorchCatalog::Receive(size_t index, std::span<const std::byte> bytes) {
  Item& item = items_[index];
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (item.kind != EntryKind::kString && item.kind != EntryKind::kBytes && text.size() != item.value.size()) {
    return absl::DataLossError(
        fmt::format("entry '{}': a {} came with {} bytes", item.name, EntryKindName(item.kind), text.size()));
  }
  // Any other byte in a bool is undefined behaviour.
  if (item.kind == EntryKind::kBool && static_cast<uint8_t>(text[0]) > 1) {
    return absl::DataLossError(fmt::format("entry '{}': a bool came with a byte that is not 0 or 1", item.name));
  }
  if (item.check) {
    absl::Status status = item.check(text);
    if (!status.ok()) {
      return absl::Status(status.code(), fmt::format("entry '{}': {}", item.name, std::string(status.message())));
    }
  }
  item.received.emplace(text);
  return absl::OkStatus();
}

void TorchCatalog::BumpVersions() {
  for (const Item& item : items_) {
    if (item.tensor.defined() && !item.tensor.is_inference()) item.tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void TorchCatalog::ForgetReceived() {
  for (Item& item : items_) item.received.reset();
}

}  // namespace tidemark
