// A file of torch.save, as an import reads it: the records of the archive, and the tensors and values of its pickle.

#include <cstring>
#include <optional>
#include <string>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "snapshot/exchange/torch_contents.h"
#include "snapshot/exchange/torch_pickle.h"
#include "snapshot/exchange/zip_directory.h"

namespace tidemark::fuzz {
namespace {

// A byte may become a node of 88 bytes, in a vector that grows.
constexpr size_t kBudgetFactor = 8;

bool IsExpected(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
}

void TryContents(std::string_view bytes, const std::vector<ZipRecord>& records) {
  const absl::StatusOr<Pickle> pickle = ReadPickle(bytes);
  if (!pickle.ok()) return Require(IsExpected(pickle.status()), "a pickle is refused for another reason");
  const auto bytes_of = [&](const std::string& name) -> std::optional<uint64_t> {
    for (const ZipRecord& record : records) {
      if (record.name.ends_with(name)) return record.bytes;
    }
    return std::nullopt;
  };
  const absl::StatusOr<TorchContents> contents = FindTorchContents(*pickle, "", bytes_of);
  if (!contents.ok()) return Require(IsExpected(contents.status()), "contents are refused for another reason");
  for (const TorchTensor& tensor : contents->tensors) {
    const uint64_t element_bytes = GetDtypeInfo(tensor.spec.dtype).element_bytes;
    const std::optional<uint64_t> record_bytes = bytes_of(contents->records.at(tensor.record));
    Require(record_bytes.has_value(), "a tensor has no record");
    uint64_t end = tensor.bytes == 0 ? tensor.offset : tensor.offset + 1;
    for (size_t d = 0; d < tensor.strides.size() && tensor.bytes > 0; ++d) {
      if (tensor.spec.shape[d] > 1) end += static_cast<uint64_t>((tensor.spec.shape[d] - 1) * tensor.strides[d]);
    }
    Require(end * element_bytes <= *record_bytes, "a tensor does not lie in its record");
  }
}

void TryArchive(std::string_view file) {
  const auto read = [&](uint64_t offset, std::span<std::byte> destination) {
    Require(offset <= file.size() && destination.size() <= file.size() - offset, "a read is outside of the file");
    if (!destination.empty()) std::memcpy(destination.data(), file.data() + offset, destination.size());
    return absl::OkStatus();
  };
  const absl::StatusOr<std::vector<ZipRecord>> records = ReadZipDirectory(file.size(), read);
  if (!records.ok()) {
    return Require(absl::IsDataLoss(records.status()) || absl::IsUnimplemented(records.status()),
                   "an archive is refused for another reason than damage or what is not read");
  }
  uint64_t end = 0;
  for (const ZipRecord& record : *records) {
    Require(record.offset >= end && record.bytes <= file.size() - record.offset, "records overlap, or leave the file");
    end = record.offset + record.bytes;
  }
  for (const ZipRecord& record : *records) {
    if (record.name.ends_with("/data.pkl")) TryContents(file.substr(record.offset, record.bytes), *records);
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tidemark::fuzz::AllocationBudget budget(size * tidemark::fuzz::kBudgetFactor);
  tidemark::fuzz::TryArchive({reinterpret_cast<const char*>(data), size});
  return 0;
}
