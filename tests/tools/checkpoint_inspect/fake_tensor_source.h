// FakeTensorSource: tensors in memory, some of them parts that ranks hold. PatternTensorSource: tensors of any size
// that take no memory.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

class FakeTensorSource : public TensorSource {
 public:
  // A vector of all of `values`, saved by rank 0. Without a digest nobody knows what is in it before it is read. The
  // entry may be changed until it is looked at.
  template <typename T>
  StoredEntry& Add(const std::string& name, Dtype dtype, const std::vector<T>& values, const std::string& digest = "") {
    StoredEntry entry;
    entry.spec.name = name;
    entry.spec.dtype = dtype;
    entry.bytes = values.size() * sizeof(T);
    entry.spec.shape = {static_cast<int64_t>(entry.bytes / GetDtypeInfo(dtype).element_bytes)};
    entry.digest = digest;
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    bytes_.emplace_back(bytes, bytes + entry.bytes);
    entries_.push_back(std::move(entry));
    return entries_.back();
  }

  // A part of `shape`.
  template <typename T>
  void AddBox(const std::string& name, Dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> offset,
              std::vector<int64_t> extent, uint32_t rank, const std::vector<T>& values) {
    StoredEntry& entry = Add(name, dtype, values);
    entry.spec.shape = std::move(shape);
    entry.spec.box_offset = std::move(offset);
    entry.spec.box_extent = std::move(extent);
    entry.rank = rank;
  }

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return entries_; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      reads.push_back(entries_[window.entry].spec.name);
      if (reads.back() == fails_at) return absl::DataLossError("rotten");
      std::memcpy(window.destination.data(), bytes_[window.entry].data() + window.offset, window.destination.size());
    }
    return absl::OkStatus();
  }
  uint64_t chunk_bytes() const override { return 4096; }

  mutable std::vector<std::string> reads;  // the names, in order. One thread reads at a time
  std::string fails_at;

 private:
  const std::string name_ = "fake";
  std::vector<StoredEntry> entries_;
  std::vector<std::vector<std::byte>> bytes_;
};

// Vectors with the names "0", "1" and so on, whose bytes say where they lie.
class PatternTensorSource : public TensorSource {
 public:
  // Dtype and elements of each.
  explicit PatternTensorSource(const std::vector<std::pair<Dtype, int64_t>>& tensors, uint64_t chunk_bytes = 1)
      : chunk_bytes_(chunk_bytes) {
    for (const auto& [dtype, elements] : tensors) {
      StoredEntry& entry = entries_.emplace_back();
      entry.spec.name = std::to_string(entries_.size() - 1);
      entry.spec.dtype = dtype;
      entry.spec.shape = {elements};
      entry.bytes = static_cast<uint64_t>(elements) * GetDtypeInfo(dtype).element_bytes;
    }
  }
  static std::byte ByteAt(size_t entry, uint64_t offset) { return std::byte((offset * 31 + entry) % 251); }

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return entries_; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      if (window.entry == fails_at) return absl::DataLossError("rotten");
      for (size_t i = 0; i < window.destination.size(); ++i) {
        window.destination[i] = ByteAt(window.entry, window.offset + i);
      }
      bytes_read += window.destination.size();
      if (window.offset % chunk_bytes_ != 0) ++cut_chunks;
    }
    return absl::OkStatus();
  }
  uint64_t chunk_bytes() const override { return chunk_bytes_; }

  // One thread reads at a time.
  mutable uint64_t bytes_read = 0;
  mutable int cut_chunks = 0;  // windows that begin within one
  size_t fails_at = SIZE_MAX;  // an entry

 private:
  const std::string name_ = "pattern";
  const uint64_t chunk_bytes_;
  std::vector<StoredEntry> entries_;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_
