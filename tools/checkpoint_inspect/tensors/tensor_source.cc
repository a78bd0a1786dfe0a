#include "tools/checkpoint_inspect/tensors/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace tidemark::inspect {
namespace {

class StepTensors : public TensorSource {
 public:
  StepTensors(std::unique_ptr<StepReader> step, std::string name, std::string advice)
      : step_(std::move(step)), name_(std::move(name)), advice_(std::move(advice)) {}

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return step_->contents().entries; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    const absl::Status status = step_->Read(windows);
    if (absl::IsDataLoss(status) || (absl::IsNotFound(status) && !IsRemoved())) {
      return absl::DataLossError(fmt::format("{}{}", std::string(status.message()), advice_));
    }
    if (!absl::IsNotFound(status)) return status;
    return absl::AbortedError(fmt::format("step {} was removed while it was being read", step_->contents().info.step));
  }
  uint64_t chunk_bytes() const override { return std::max<uint64_t>(step_->chunk_bytes(), 1); }

 private:
  // Its own files are open and can be read to the end, but those of other steps that it refers to are opened when they
  // are needed, and may go with it.
  bool IsRemoved() const {
    const std::vector<ShardInfo>& shards = step_->contents().shards;
    return std::any_of(shards.begin(), shards.end(), [](const ShardInfo& shard) {
      std::error_code error;
      return std::filesystem::status(shard.path, error).type() == std::filesystem::file_type::not_found;
    });
  }

  const std::unique_ptr<StepReader> step_;
  const std::string name_;
  const std::string advice_;
};

class MemorySource : public TensorSource {
 public:
  MemorySource(std::vector<MemoryEntry> entries, std::string name) : name_(std::move(name)) {
    for (MemoryEntry& entry : entries) {
      StoredEntry& stored = entries_.emplace_back();
      stored.spec = std::move(entry.spec);
      stored.bytes = stored.stored_bytes = entry.bytes.size();
      bytes_.push_back(std::move(entry.bytes));
    }
  }

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return entries_; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      const std::vector<std::byte>& bytes = bytes_[window.entry];
      if (window.offset > bytes.size() || window.destination.size() > bytes.size() - window.offset) {
        return absl::OutOfRangeError(fmt::format("[{}, {}) is not in the {} bytes of '{}'", window.offset,
                                                 window.offset + window.destination.size(), bytes.size(),
                                                 entries_[window.entry].spec.name));
      }
      if (window.destination.empty()) continue;
      std::memcpy(window.destination.data(), bytes.data() + window.offset, window.destination.size());
    }
    return absl::OkStatus();
  }
  uint64_t chunk_bytes() const override { return 1; }

 private:
  const std::string name_;
  std::vector<StoredEntry> entries_;
  std::vector<std::vector<std::byte>> bytes_;  // of the entries
};

}  // namespace

std::unique_ptr<TensorSource> MakeMemorySource(std::vector<MemoryEntry> entries, std::string name) {
  return std::make_unique<MemorySource>(std::move(entries), std::move(name));
}

std::unique_ptr<TensorSource> MakeStepSource(std::unique_ptr<StepReader> step, std::string name, std::string advice) {
  return std::make_unique<StepTensors>(std::move(step), std::move(name), std::move(advice));
}

}  // namespace tidemark::inspect
