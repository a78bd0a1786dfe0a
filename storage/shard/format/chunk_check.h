// The assertion between the encoder and the disk: what is about to be stored of a chunk is the chunk.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CHECK_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CHECK_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::storage {

// Thread-compatible; no allocation once it is warm.
class ChunkCheck {
 public:
  enum class Depth {
    kSizes,  // sizes in the record and in the head of the frame: costs nothing
    kBytes,  // and what the stored bytes decode to: each chunk is decoded once
  };
#ifdef NDEBUG
  static constexpr Depth kDefaultDepth = Depth::kSizes;
#else
  static constexpr Depth kDefaultDepth = Depth::kBytes;
#endif

  explicit ChunkCheck(Depth depth = kDefaultDepth) {
    if (depth == Depth::kBytes) decoder_.emplace();
  }

  // `stored` and `record` are what ChunkEncoder made of `raw`. kInternal, with expected and found: they are not.
  absl::Status Check(std::span<const std::byte> raw, const ChunkRecord& record, std::span<const std::byte> stored);

 private:
  std::optional<ChunkDecoder> decoder_;  // nullopt: Depth::kSizes
  std::vector<std::byte> decoded_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_CHUNK_CHECK_H_
