// Reads one shard, and the chunks of other shards that it refers to.

#ifndef TIDEMARK_STORAGE_SHARD_READ_SHARD_READER_H_
#define TIDEMARK_STORAGE_SHARD_READ_SHARD_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

struct ShardReadOptions {
  int codec_threads = 1;  // 1 or more
  IoQueueKind io = IoQueueKind::kAuto;
  size_t io_depth = 16;  // 1 to 256
  // A chunk that does not verify is read and decoded once more, in memory of the reader's own, before it is called
  // damaged. False: it is called damaged at once, without that memory (up to two chunks). That is for files that a
  // stranger made.
  bool tries_again = true;
};

// One entry to be read: all of its bytes, to `destination`, which is as long as they are. With `begin`, a window of
// them: [begin, begin + destination.size()).
struct EntryRead {
  size_t entry = 0;  // index into index().entries
  std::span<std::byte> destination;
  std::optional<uint64_t> begin = std::nullopt;
};

// Immutable after Open, and thread-safe: every call of Read brings its own queue and threads. See shard_verify.h for
// looking for damage.
class ShardReader {
 public:
  // Reads and checks header, footer and index, and the index's base, nothing else. `steps_directory` is where the
  // folders of referenced shards are. `files` is not owned. kDataLoss, kUnimplemented: see shard_format.h, with the
  // path. kNotFound: no such file, or the base's is gone. kResourceExhausted: no memory for the index.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(FileSystem& files, const std::string& path,
                                                           const std::string& steps_directory);
  ~ShardReader();

  const std::string& path() const;
  const ShardHeader& header() const;
  const ShardIndex& index() const;
  const IndexBase& index_base() const;
  const ShardFooter& footer() const;

  // Of one entry, in whatever file they lie. Precondition of all: `entry` < index().entries.size().
  uint64_t StoredBytes(size_t entry) const;
  uint64_t ReusedBytes(size_t entry) const;  // the part of them that lies in other shards
  uint64_t RawBytes(size_t entry) const;     // the size of its destination

  // Reads with direct I/O at depth, in the order of the files, and decodes on `codec_threads` threads straight into the
  // destinations, every chunk verified; raw chunks whose destination begins at a multiple of kDirectAlignment are read
  // to it and copied no more. Only chunks with a wanted byte are read and checked, as a whole. An entry may be read to
  // several destinations. A chunk that does not verify is read and decoded once more, in memory of our own. It is
  // damaged only if it does not verify there either: a bit may have flipped on the way, or another thread may have
  // written to the destination.
  //
  // `on_read`, if set, is called on this thread when a range has been read, with the bytes of destinations that it is
  // for. What it throws becomes the error, as ExceptionStatus.
  //
  // The first error is returned, with path, entry, chunk and offset; destinations then hold anything.
  // - kInvalidArgument: no such entry, a destination of another size, or two destinations that overlap. Nothing has
  //   been written then.
  // - kOutOfRange: a window that does not lie in its entry. Nothing has been written then.
  // - kDataLoss: a chunk is damaged.
  // - kNotFound: a referenced shard is gone.
  // - kResourceExhausted: the system gives no thread, or no memory.
  absl::Status Read(std::span<const EntryRead> reads, const ShardReadOptions& options,
                    const std::function<void(uint64_t bytes)>& on_read = nullptr) const;

 private:
  ShardReader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_READ_SHARD_READER_H_
