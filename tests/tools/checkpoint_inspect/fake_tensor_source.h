// FakeTensorSource: tensors in memory, some of them parts that ranks hold.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tools/checkpoint_inspect/tensor_source.h"

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

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_FAKE_TENSOR_SOURCE_H_
