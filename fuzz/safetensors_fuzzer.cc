// Safetensors files of strangers. The first byte of the input says what the rest is: a whole file; the text of a
// header, and before it how many bytes of data are said to follow; or an index of several files. What a header has as
// metadata goes the way of an import.

#include <string>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "tools/checkpoint_inspect/exchange/file_metadata.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::fuzz {
namespace {

void CheckCoverage(const SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    Require(tensor.begin == covered && tensor.end >= tensor.begin, "tensors overlap or leave a hole");
    covered = tensor.end;
    uint64_t bytes = 0;
    EntrySpec spec{.name = "x", .dtype = tensor.dtype, .shape = tensor.shape};
    Require(ValidateEntry(spec, &bytes).ok(), "a tensor cannot be an entry");
    Require(bytes == tensor.end - tensor.begin, "a tensor has not the size of its shape");
  }
  Require(covered == data_bytes, "not all data is covered");
}

void TryMetadata(const SafetensorsHeader& header) {
  inspect::FileMetadata metadata(/*with_step=*/true);
  absl::Status status = metadata.Add("file", header.metadata);
  if (status.ok()) {
    const absl::StatusOr<std::string> text = metadata.UserMetadata({"file"});
    status = text.status();
    Require(!status.ok() || inspect::MetadataToJson(*text).is_object(), "user metadata is no object");
  }
  Require(status.ok() || absl::IsDataLoss(status) || absl::IsInvalidArgument(status),
          "metadata is refused for another reason than what it says");
}

void TryHeader(std::string_view text, uint64_t data_bytes) {
  const absl::StatusOr<SafetensorsHeader> header = DecodeSafetensorsHeader(text, data_bytes);
  if (!header.ok()) {
    Require(absl::IsDataLoss(header.status()) || absl::IsInvalidArgument(header.status()),
            "a header is refused for another reason than what it says");
    return;
  }
  CheckCoverage(*header, data_bytes);
  TryMetadata(*header);
  const absl::StatusOr<std::string> written = EncodeSafetensorsHeader(*header);
  Require(written.ok(), "a header cannot be written");
  const auto again = DecodeSafetensorsHeader(std::string_view(*written).substr(kSafetensorsLengthBytes), data_bytes);
  Require(again.ok() && *again == *header, "a header is not what it was once it is written");
}

void TryFile(std::string_view file) {
  if (file.size() < kSafetensorsLengthBytes) return;
  const absl::StatusOr<uint64_t> length =
      DecodeSafetensorsLength(AsBytes(file).first<kSafetensorsLengthBytes>(), file.size());
  if (!length.ok()) return Require(absl::IsDataLoss(length.status()), "a length is refused for another reason");
  file.remove_prefix(kSafetensorsLengthBytes);
  Require(*length <= file.size(), "a header is longer than its file");
  TryHeader(file.substr(0, *length), file.size() - *length);
}

void TryIndex(std::string_view text) {
  const absl::StatusOr<SafetensorsFiles> files = DecodeSafetensorsIndex(text);
  if (!files.ok()) return Require(absl::IsDataLoss(files.status()), "an index is refused for another reason");
  for (const auto& [tensor, file] : *files) {
    Require(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos,
            "a file of an index lies elsewhere");
  }
  const auto again = DecodeSafetensorsIndex(EncodeSafetensorsIndex(*files, 0));
  Require(again.ok() && *again == *files, "an index is not what it was once it is written");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const tidemark::fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  switch (in.Take<uint8_t>() % 3) {
    case 0:
      fuzz::TryFile(in.TakeRest());
      break;
    case 1: {
      const auto data_bytes = in.Take<uint64_t>();
      fuzz::TryHeader(in.TakeRest(), data_bytes);
      break;
    }
    default:
      fuzz::TryIndex(in.TakeRest());
  }
  return 0;
}
