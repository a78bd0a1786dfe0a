// One chunk, between its raw bytes and its stored bytes. Pure functions, no I/O.

#ifndef TIDEMARK_STORAGE_SHARD_CHUNK_CODEC_H_
#define TIDEMARK_STORAGE_SHARD_CHUNK_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "storage/shard/shard_format.h"

namespace tidemark::storage {

// Which chunks are compressed: byte planes and entropy coding for floating point, plain zstd for everything else.
enum class CodecPolicy {
  kThroughput,  // those for which there is time while the disk is busy with others
  kSpace,       // all that shrink
  kNone,        // none
};

// "throughput", "space", "none"
std::string_view CodecPolicyName(CodecPolicy policy);

// Reusable contexts and buffers of one thread. Thread-compatible; no allocation once it is warm.
class ChunkEncoder {
 public:
  ChunkEncoder();
  ~ChunkEncoder();

  // Fills codec, float_bytes, raw_bytes, stored_bytes and checksum of `*record`, and returns the bytes to store: `raw`
  // itself for Codec::kRaw, else the front of `*buffer`, which is grown as needed and never shrunk. Raw if not
  // `compress`, and where compression saves less than 1/64. `float_bytes` is DtypeInfo::float_bytes of the entry. The
  // same input gives the same output. Preconditions: 1 <= raw.size() <= kChunkBytesMax, and the record's digest is
  // DigestOf(raw), which the caller needs before it knows whether the chunk must be stored at all.
  std::span<const std::byte> Encode(std::span<const std::byte> raw, uint8_t float_bytes, bool compress,
                                    std::vector<std::byte>* buffer, ChunkRecord* record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Thread-compatible; no allocation once it is warm.
class ChunkDecoder {
 public:
  ChunkDecoder();
  ~ChunkDecoder();

  // Checks `stored` against the record's checksum, decodes it into `raw` (record.raw_bytes long) and checks the digest.
  // kDataLoss says which of them failed, with expected and found. Never writes past `raw`, whatever the frame claims.
  // After a failure `raw` holds anything.
  absl::Status Decode(const ChunkRecord& record, std::span<const std::byte> stored, std::span<std::byte> raw);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_CHUNK_CODEC_H_
