// Decoding anything: whatever a frame claims, no more than the record's raw bytes are written, and what decodes does so
// again, with every back end, to the same bytes. The input is what the record says (codec, width of numbers, raw bytes)
// and the stored bytes.

#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::fuzz {
namespace {

// The record's size is what bounds a frame; a larger one would only be slower.
constexpr uint32_t kRawBytesMax = 300'000;

// A chunk whose digest is not known is decoded before that is found out: what is in `out` then is what the frame says.
bool Decodes(const storage::ChunkRecord& record, std::span<const std::byte> stored, std::vector<std::byte>* out,
             const storage::CodecBackend& backend) {
  const absl::Status status = storage::ChunkDecoder(backend).Decode(record, stored, *out);
  if (status.ok()) return true;
  Require(absl::IsDataLoss(status), "a chunk is refused for another reason than damage");
  return status.message().find("digest of the decoded bytes") != absl::string_view::npos;
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const tidemark::fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  storage::ChunkRecord record;
  record.codec = static_cast<storage::Codec>(in.Take<uint8_t>());
  record.float_bytes = in.Take<uint8_t>();
  record.raw_bytes = 1 + in.Take<uint32_t>() % fuzz::kRawBytesMax;
  const std::span<const std::byte> stored = fuzz::AsBytes(in.TakeRest());
  record.stored_bytes = stored.size();
  record.checksum = storage::ChecksumOf(stored);
  std::vector<std::byte> first;
  for (const storage::CodecBackend* backend : storage::RunnableCodecBackends()) {
    std::vector<std::byte> out(record.raw_bytes);
    if (!fuzz::Decodes(record, stored, &out, *backend)) {
      fuzz::Require(first.empty(), "one back end decodes what another one refuses");
      continue;
    }
    if (first.empty()) first = out;
    fuzz::Require(out == first, "two back ends decode a chunk to two things");
    storage::ChunkRecord right = record;
    right.digest = storage::DigestOf(out);
    std::vector<std::byte> again(record.raw_bytes);
    fuzz::Require(storage::ChunkDecoder(*backend).Verify(right, stored, again).ok() && again == out,
                  "a chunk with the right digest is refused");
  }
  return 0;
}
