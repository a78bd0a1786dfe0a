// Reads one shard, and the chunks of other shards that it refers to.

#ifndef TIDEMARK_STORAGE_SHARD_SHARD_READER_H_
#define TIDEMARK_STORAGE_SHARD_SHARD_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/shard_format.h"

namespace tidemark::storage {

struct ShardReadOptions {
  int codec_threads = 1;
  IoQueueKind io = IoQueueKind::kAuto;
  size_t io_depth = 16;
};

// One entry to be read: all of its bytes, to `destination`, which is as long as they are.
struct EntryRead {
  size_t entry = 0;  // index into index().entries
  std::span<std::byte> destination;
};

struct ShardDamage {
  std::string path;
  std::string what;
  std::vector<size_t>
      entries;  // indices of the entries that lose data; empty: the shard cannot be read at all, or none do
};

// Immutable after Open, and thread-safe: every call brings its own queue and threads.
class ShardReader {
 public:
  // Reads and checks header, footer and index, nothing else. `steps_directory` is where the folders of referenced
  // shards are. kDataLoss, kUnimplemented: see shard_format.h, with the path. kNotFound: no such file.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(FileSystem& files, const std::string& path,
                                                           const std::string& steps_directory);
  ~ShardReader();

  const std::string& path() const;
  const ShardHeader& header() const;
  const ShardIndex& index() const;
  const ShardFooter& footer() const;

  // Stored bytes of one entry, in whatever file they lie.
  uint64_t StoredBytes(size_t entry) const;

  // Reads with direct I/O at depth, in the order of the file, and decodes on `codec_threads` threads straight into the
  // destinations, every chunk verified. The first error is returned; destinations then hold anything. Destinations may
  // not overlap.
  absl::Status Read(std::span<const EntryRead> reads, const ShardReadOptions& options) const;

  // Reads the whole file and every referenced chunk: header, index and footer again, every chunk's checksum, decoding
  // and digest, and that all other bytes are zero. Damage is appended to `damage`; a Status that is not ok means that
  // reading itself failed. `progress(n)` is called on this thread with the bytes read since the last call.
  absl::Status Verify(const ShardReadOptions& options, const std::function<void(uint64_t)>& progress,
                      std::vector<ShardDamage>* damage) const;

  // Bytes that Verify will read.
  uint64_t VerifyBytes() const;

 private:
  ShardReader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_SHARD_READER_H_
