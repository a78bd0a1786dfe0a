#include "eval/average_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr uint64_t kCacheLine = 64;
// From this size on a tensor begins at a page, so that it goes to the disk from where it lies.
constexpr uint64_t kLargeBytes = 64 * 1024;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2 << 20;

std::byte* Allocate(uint64_t bytes) {
  const uint64_t alignment = bytes >= kHugePage ? kHugePage : (bytes >= kLargeBytes ? kPage : kCacheLine);
  const uint64_t allocated = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, allocated);
  if (data != nullptr && alignment == kHugePage) madvise(data, allocated, MADV_HUGEPAGE);  // or ordinary ones
  return static_cast<std::byte*>(data);
}

}  // namespace

AverageState::AverageState(const std::string& prefix) : snapshots_name_(prefix + ".snapshots") {
  AddValue(snapshots_name_, &snapshots_);
}

absl::StatusOr<AverageState::Tensor> AverageState::MakeTensor(EntrySpec spec, int64_t alias_of) {
  Tensor tensor{.spec = std::move(spec), .alias_of = alias_of};
  if (absl::Status status = ValidateEntry(tensor.spec, &tensor.bytes); !status.ok()) return status;
  if (alias_of >= 0 || tensor.bytes == 0) return tensor;
  tensor.memory.reset(Allocate(tensor.bytes));
  if (tensor.memory == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory for the {} bytes of '{}'", tensor.bytes, tensor.spec.name));
  }
  return tensor;
}

void AverageState::SetTensors(std::vector<Tensor> tensors) {
  tensors_ = std::move(tensors);
  Publish(tensors_);
}

absl::StatusOr<std::span<double>> AverageState::Numbers(const std::string& name, int64_t count) {
  const EntrySpec spec{.name = name, .dtype = Dtype::kFloat64, .shape = {count}};
  auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.spec.name == name; });
  if (found == tensors_.end() || found->spec != spec) {
    absl::StatusOr<Tensor> tensor = MakeTensor(spec, -1);
    if (!tensor.ok()) return tensor.status();
    std::memset(tensor->memory.get(), 0, tensor->bytes);
    if (found == tensors_.end()) {
      found = tensors_.insert(tensors_.end(), *std::move(tensor));
    } else {
      *found = *std::move(tensor);
    }
    Publish(tensors_);
  }
  return std::span(reinterpret_cast<double*>(found->memory.get()), static_cast<size_t>(count));
}

void AverageState::Drop(const std::string& name) {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.spec.name == name; });
  if (found == tensors_.end()) return;
  const int64_t index = found - tensors_.begin();
  tensors_.erase(found);
  for (Tensor& tensor : tensors_) {
    if (tensor.alias_of > index) --tensor.alias_of;  // no tensor is tied to that one
  }
  Publish(tensors_);
}

bool AverageState::Tie(size_t a, size_t b) {
  const size_t first = std::min(owner(a), owner(b));
  const size_t second = std::max(owner(a), owner(b));
  if (first == second) return true;
  if (tensors_[first].bytes != tensors_[second].bytes || tensors_[first].spec.dtype != tensors_[second].spec.dtype ||
      std::memcmp(data(first), data(second), tensors_[first].bytes) != 0) {
    return false;
  }
  for (Tensor& tensor : tensors_) {
    if (tensor.alias_of == static_cast<int64_t>(second)) tensor.alias_of = static_cast<int64_t>(first);
  }
  tensors_[second].alias_of = static_cast<int64_t>(first);
  tensors_[second].memory.reset();
  Publish(tensors_);
  return true;
}

absl::Status AverageState::PrepareRestore(std::span<const EntrySpec> saved) {
  incoming_.clear();
  for (const EntrySpec& spec : saved) {
    if (spec.name == snapshots_name_) continue;
    if (spec.kind != EntryKind::kTensor || !spec.whole()) {
      return absl::InvalidArgumentError(fmt::format(
          "entry '{}' of the checkpoint is neither a whole tensor nor an average", storage::PrintableText(spec.name)));
    }
    absl::StatusOr<Tensor> tensor = MakeTensor(spec, -1);
    if (!tensor.ok()) return tensor.status();
    incoming_.push_back(*std::move(tensor));
  }
  Publish(incoming_);
  return State::PrepareRestore(saved);
}

absl::Status AverageState::Receive(size_t entry, std::span<const std::byte> bytes) {
  int64_t snapshots = 0;
  if (entries()[entry].spec.name == snapshots_name_ && bytes.size() == sizeof(snapshots)) {
    std::memcpy(&snapshots, bytes.data(), sizeof(snapshots));
    if (snapshots < 0 || (snapshots == 0) != incoming_.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("entry '{}': the checkpoint has a count of {} snapshots, but {} tensors of their average",
                      snapshots_name_, snapshots, incoming_.size()));
    }
  }
  return State::Receive(entry, bytes);
}

absl::Status AverageState::FinishRestore() {
  if (absl::Status status = State::FinishRestore(); !status.ok()) return status;
  SetTensors(std::exchange(incoming_, {}));
  last_step_.reset();
  return absl::OkStatus();
}

void AverageState::AbandonRestore() {
  State::AbandonRestore();
  incoming_.clear();
  Publish(tensors_);
}

void AverageState::Publish(const std::vector<Tensor>& tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    const Tensor& owner = tensor.alias_of < 0 ? tensor : tensors[static_cast<size_t>(tensor.alias_of)];
    entries.push_back(
        {.spec = tensor.spec, .bytes = tensor.bytes, .host = owner.memory.get(), .alias_of = tensor.alias_of});
  }
  SetDerivedEntries(std::move(entries));
}

}  // namespace tidemark
