#include "snapshot/torch/torch_catalog.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_copy.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_errors.h"

namespace tidemark {
namespace {

// Looking at 100,000 tensors is mostly waiting for memory, so what the walk found last time is fetched this many items
// before it gets there.
constexpr size_t kPrefetchItems = 12;
constexpr size_t kCacheLine = 64;

template <typename T>
void Prefetch(const T* object) {
  const auto* bytes = reinterpret_cast<const char*>(object);
  for (size_t at = 0; at < sizeof(T); at += kCacheLine) __builtin_prefetch(bytes + at);
}

}  // namespace

void TorchCatalog::BeginCapture() {
  publishing_ = false;
  changed_ = std::exchange(cleared_, false);
  cursor_ = 0;
  trace_.Begin();
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
  trace_.End();
  if (cursor_ != items_.size()) {
    items_.resize(cursor_);
    names_.resize(cursor_);
    changed_ = true;
  }
  if (changed_) FindDevices();
  return absl::OkStatus();
}

void TorchCatalog::Clear() {
  items_.clear();
  names_.clear();
  trace_.Clear();
  devices_.clear();
  cursor_ = 0;
  publishing_ = false;
  changed_ = true;
  cleared_ = true;
}

void TorchCatalog::FindDevices() {
  devices_.clear();
  for (const Item& item : items_) {
    if (!item.tensor.defined() || item.tensor.is_cpu()) continue;
    const c10::Device device = item.tensor.device();
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
  }
}

bool TorchCatalog::AtKnownItem() {
  const bool followed = trace_.Count();
  if (cursor_ >= items_.size()) return false;
  return followed || trace_.IsAt(names_[cursor_]);
}

TorchCatalog::Item& TorchCatalog::Replace() {
  changed_ = true;
  if (cursor_ == items_.size()) {
    items_.emplace_back();
    names_.emplace_back();
  }
  items_[cursor_] = Item();
  if (!trace_.following()) names_[cursor_] = trace_.Name();
  return items_[cursor_++];
}

bool TorchCatalog::Matches(const Item& item, const at::Tensor& tensor) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (item.tensor.unsafeGetTensorImpl() != impl || item.keys != impl->key_set()) return false;
  // Whether a storage may be asked for was seen when the item was captured.
  const c10::Storage& storage = impl->unsafe_storage();
  if (item.storage != storage.unsafeGetStorageImpl()) return false;
  const c10::DataPtr& memory = item.storage->data_ptr();
  const at::IntArrayRef sizes = impl->sizes();
  const at::IntArrayRef strides = impl->strides();
  return item.memory == memory.get() && item.device == memory.device() && item.context == memory.get_context() &&
         item.storage_offset == impl->storage_offset() && item.scalar_type == tensor.scalar_type() &&
         item.sizes() == sizes && item.strides() == strides;
}

void TorchCatalog::Tensor(const at::Tensor& tensor, const TensorUse& use) {
  if (publishing_) {
    NextReceived();
    return;
  }
  if (!failure_.ok()) return;
  if (cursor_ + kPrefetchItems < items_.size()) {
    const Item& ahead = items_[cursor_ + kPrefetchItems];
    Prefetch(ahead.tensor.unsafeGetTensorImpl());
    Prefetch(ahead.storage);
  }
  try {
    if (AtKnownItem() && items_[cursor_].storage != nullptr && items_[cursor_].use == use &&
        Matches(items_[cursor_], tensor)) {
      ++cursor_;
    } else {
      Capture(tensor, use);
    }
  } catch (...) {
    Fail(StatusOfException(fmt::format("entry '{}'", trace_.Name())));
  }
}

void TorchCatalog::Capture(const at::Tensor& tensor, const TensorUse& use) {
  if (absl::Status status = CheckStorable(tensor); !status.ok()) {
    Fail(absl::Status(status.code(), fmt::format("entry '{}': {}", trace_.Name(), std::string(status.message()))));
    return;
  }
  Item& item = Replace();
  item.kind = EntryKind::kTensor;
  item.dtype = *ToDtype(tensor.scalar_type());
  item.tensor = tensor;
  item.use = use;
  tensor.data_ptr();  // before its memory is noted: ends a copy-on-write
  item.storage = tensor.storage().unsafeGetStorageImpl();
  item.memory = item.storage->data_ptr().get();
  item.context = item.storage->data_ptr().get_context();
  item.device = item.storage->data_ptr().device();
  item.storage_offset = tensor.storage_offset();
  item.keys = tensor.unsafeGetTensorImpl()->key_set();
  item.scalar_type = tensor.scalar_type();
  item.extents.assign(tensor.sizes().begin(), tensor.sizes().end());
  item.extents.append(tensor.strides().begin(), tensor.strides().end());
}

void TorchCatalog::Capture(EntryKind kind, Dtype dtype, std::string_view bytes, const Check& check) {
  if (AtKnownItem() && items_[cursor_].value != nullptr && items_[cursor_].kind == kind &&
      items_[cursor_].value->bytes.size() == bytes.size()) {
    // In place: the entry's host pointer stays as it is.
    Value& value = *items_[cursor_++].value;
    std::memcpy(value.bytes.data(), bytes.data(), bytes.size());
    if (check || value.check) value.check = check;
    return;
  }
  AddValue(kind, dtype, bytes, check);
}

void TorchCatalog::AddValue(EntryKind kind, Dtype dtype, std::string_view bytes, Check check) {
  Item& item = Replace();
  item.kind = kind;
  item.dtype = dtype;
  item.value =
      std::make_unique<Value>(Value{.bytes = std::string(bytes), .check = std::move(check), .received = std::nullopt});
}

const TorchCatalog::Value* TorchCatalog::NextReceived() {
  if (!AtKnownItem()) {
    Fail(absl::FailedPreconditionError(
        fmt::format("entry '{}': the state was changed during a restore", trace_.Name())));
    return nullptr;
  }
  const Value* value = items_[cursor_++].value.get();
  return value != nullptr && value->received ? value : nullptr;
}

void TorchCatalog::Scalar(EntryKind kind, Dtype dtype, void* value, size_t bytes, const Check& check) {
  if (!publishing_) {
    Capture(kind, dtype, {static_cast<const char*>(value), bytes}, check);
  } else if (const Value* given = NextReceived()) {
    std::memcpy(value, given->received->data(), bytes);
  }
}

std::optional<std::string_view> TorchCatalog::Blob(EntryKind kind, std::string_view now, const Check& check) {
  if (!publishing_) {
    Capture(kind, Dtype::kUint8, now, check);
  } else if (const Value* given = NextReceived()) {
    return *given->received;
  }
  return std::nullopt;
}

void TorchCatalog::Constant(std::string_view text) {
  if (publishing_) {
    NextReceived();
    return;
  }
  if (AtKnownItem() && items_[cursor_].kind == EntryKind::kString && items_[cursor_].value->bytes == text) {
    ++cursor_;
    return;
  }
  AddValue(EntryKind::kString, Dtype::kUint8, text, [expected = std::string(text)](std::string_view found) {
    if (found == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("the checkpoint has '{}', the state '{}'", found, expected));
  });
}

std::vector<State::Entry> TorchCatalog::Entries() const {
  using Place = std::tuple<const void*, int64_t, int, std::vector<int64_t>, bool, bool, uint32_t>;
  absl::flat_hash_map<Place, int64_t> first_at;
  absl::flat_hash_map<std::pair<const at::TensorImpl*, uint32_t>, int64_t> parameter_at;
  std::vector<State::Entry> entries;
  entries.reserve(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    State::Entry& entry = entries.emplace_back();
    entry.spec.name = names_[i];
    entry.spec.kind = item.kind;
    entry.spec.dtype = item.dtype;
    if (item.value != nullptr) {
      entry.bytes = item.value->bytes.size();
      entry.host = reinterpret_cast<std::byte*>(item.value->bytes.data());
      if (item.kind == EntryKind::kString || item.kind == EntryKind::kBytes) {
        entry.spec.shape = {static_cast<int64_t>(entry.bytes)};
      }
      continue;
    }
    entry.spec.shape.assign(item.sizes().begin(), item.sizes().end());
    entry.bytes = item.tensor.nbytes();
    entry.host = HostBytes(item.tensor);
    entry.changes_early = item.use.early;
    if (entry.bytes == 0) continue;
    Place place{item.storage,
                item.storage_offset,
                static_cast<int>(item.scalar_type),
                {item.extents.begin(), item.extents.end()},
                item.tensor.is_conj(),
                item.tensor.is_neg(),
                item.use.parameter};
    const auto [first, is_new] = first_at.emplace(std::move(place), static_cast<int64_t>(i));
    if (!is_new) {
      entry.alias_of = first->second;
      // The first is what is copied for both.
      if (item.use.early) entries[static_cast<size_t>(first->second)].changes_early = true;
    }
    parameter_at.emplace(std::pair(item.tensor.unsafeGetTensorImpl(), item.use.parameter), first->second);
    const auto parameter = parameter_at.find(std::pair(item.use.with, item.use.parameter));
    if (parameter != parameter_at.end() && parameter->second != static_cast<int64_t>(i)) {
      entry.staged_with = parameter->second;
    }
  }
  return entries;
}

absl::Status TorchCatalog::Receive(size_t index, std::span<const std::byte> bytes) {
  const Item& item = items_[index];
  Value& value = *item.value;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (item.kind != EntryKind::kString && item.kind != EntryKind::kBytes && text.size() != value.bytes.size()) {
    return absl::DataLossError(
        fmt::format("entry '{}': a {} came with {} bytes", names_[index], EntryKindName(item.kind), text.size()));
  }
  // Any other byte in a bool is undefined behaviour.
  if (item.kind == EntryKind::kBool && static_cast<uint8_t>(text[0]) > 1) {
    return absl::DataLossError(fmt::format("entry '{}': a bool came with a byte that is not 0 or 1", names_[index]));
  }
  if (value.check) {
    absl::Status status = value.check(text);
    if (!status.ok()) {
      return absl::Status(status.code(), fmt::format("entry '{}': {}", names_[index], std::string(status.message())));
    }
  }
  value.received.emplace(text);
  return absl::OkStatus();
}

void TorchCatalog::BumpVersions() {
  for (const Item& item : items_) {
    if (item.tensor.defined() && !item.tensor.is_inference()) item.tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void TorchCatalog::ForgetReceived() {
  for (const Item& item : items_) {
    if (item.value != nullptr) item.value->received.reset();
  }
}

}  // namespace tidemark
