// One chunk, between its raw bytes and its stored bytes. Pure functions, no I/O. If the system has no memory they throw
// std::bad_alloc, and can be used again.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CODEC_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "storage/codec/codec_backend.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// Which chunks are compressed: byte planes and entropy coding for floating point, plain zstd for everything else.
enum class CodecPolicy {
  kAuto,        // as kThroughput, and all that shrink as long as the caller says so
  kThroughput,  // those for which there is time while the disk is busy with others
  kSpace,       // all that shrink
  kNone,        // none
};

// "auto", "throughput", "space", "none"
std::string_view CodecPolicyName(CodecPolicy policy);

// Reusable contexts and buffers of one thread. Thread-compatible; no allocation once it is warm.
class ChunkEncoder {
 public:
  explicit ChunkEncoder(const CodecBackend& backend = BestCodecBackend());
  ~ChunkEncoder();

  // Fills codec, float_bytes, raw_bytes, stored_bytes and checksum of `*record`, and returns the bytes to store: `raw`
  // itself for Codec::kRaw, else the front of `*buffer`, which is grown as needed and never shrunk. Raw if not
  // `compress`, and where compression saves less than 1/64, or would as far as a sample of the chunk tells.
  // `float_bytes` is DtypeInfo::float_bytes of the entry. The same input gives the same output, with any back end.
  // Preconditions: 1 <= raw.size() <= kChunkBytesMax, and the record's digest is DigestOf(raw), which the caller needs
  // before it knows whether the chunk must be stored at all.
  std::span<const std::byte> Encode(std::span<const std::byte> raw, uint8_t float_bytes, bool compress,
                                    std::vector<std::byte>* buffer, ChunkRecord* record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Thread-compatible; no allocation once it is warm.
class ChunkDecoder {
 public:
  explicit ChunkDecoder(const CodecBackend& backend = BestCodecBackend());
  ~ChunkDecoder();

  // Decodes `stored` into `raw` (record.raw_bytes long) and holds it against the digest. Where that fails, kDataLoss
  // says what is wrong, with expected and found: the checksum of `stored` if it differs from the record's, else what
  // went wrong in decoding, else the digest. Stored bytes that decode to the right ones are right: their checksum is
  // not looked at. A raw chunk may be decoded where it lies: `stored` and `raw` are then the same bytes, else they
  // share none. Never writes past `raw`, whatever the frame claims. After a failure `raw` holds anything.
  absl::Status Decode(const ChunkRecord& record, std::span<const std::byte> stored, std::span<std::byte> raw);

  // As Decode, but the checksum of `stored` must be right too: for those who look for damage, not for bytes.
  absl::Status Verify(const ChunkRecord& record, std::span<const std::byte> stored, std::span<std::byte> raw);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CODEC_H_
