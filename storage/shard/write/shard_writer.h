// Writes one shard: codec threads hash and compress chunks as they become ready, the calling thread packs them into
// aligned blocks and keeps the disk's queue full.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_SHARD_WRITER_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_SHARD_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/chunk_codec.h"
#include "storage/shard/format/reusable_shard.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/write/busy_spans.h"

namespace tidemark::storage {

inline constexpr int kCodecThreadsMax = 256;
inline constexpr size_t kIoDepthMax = 256;
inline constexpr uint64_t kWriteRateMin = 1 << 20;  // bytes per second; with less no save would end

struct ShardWriterOptions {
  CodecPolicy policy = CodecPolicy::kSpace;
  uint32_t chunk_bytes = 1 << 20;  // see IsValidChunkBytes
  int codec_threads = 1;           // 1 to kCodecThreadsMax, beside the calling thread; fewer with large chunks
  IoQueueKind io = IoQueueKind::kAuto;
  size_t io_depth = 16;               // writes in flight, 1 to kIoDepthMax; a block of 1 MiB is kept for each
  uint64_t bytes_per_second_max = 0;  // of writes to the disk, at least kWriteRateMin; 0: no cap
  // Added to the niceness of the codec threads and of the thread that calls Write, 0 to 19.
  int nice = 0;
  bool idle_io = false;  // writes only when the disk has nothing else to do (the kernel's idle I/O class)
  // No shard refers to one whose sequence is lower by more than this; 0: no limit. See ChunkReuse::CanRefer.
  uint64_t reuse_saves_max = 0;
};

// What goes into a shard. The bytes are not owned and must not change until Write returns.
struct ShardContents {
  // A box may become several entries of the shard, its tiles (tiles.h), unless `release` is set.
  struct Entry {
    EntrySpec spec;
    std::span<const std::byte> bytes;  // written from where they lie if they begin at a multiple of kDirectAlignment
    int64_t alias_of = -1;             // an earlier entry whose chunks it shares; `bytes` is then not looked at
  };
  std::vector<Entry> entries;
  // Null: all bytes are there. Else it blocks until the first `end` bytes of `entries[entry]` are, which are not looked
  // at before; an error becomes that of Write. Called by codec threads, which must not be kept for ever.
  std::function<absl::Status(size_t entry, uint64_t end)> wait_until_ready;
  // Of CodecPolicy::kAuto: whether to compress what shrinks, though the disk waits for it. Asked for each chunk or
  // batch of small ones, by codec threads. Null: no.
  std::function<bool()> compress_all;
  // Null: the bytes stay until Write returns. Else they are copied on their way to the disk, and it is told that the
  // first `end` bytes of `entries[entry]`, and with wait_until_ready all that lies before these in memory, are not
  // looked at any more. So contents of any size go through memory that is given back behind the writer. On the thread
  // of Write.
  std::function<void(size_t entry, uint64_t end)> release;
  // Memory in which most of the entries lie: the ring is told of it once, and not at every write. The kernel holds its
  // pages from then on, until the Write after the one in which `memory_lifetime` has expired, which it must have before
  // the memory is unmapped or any of its pages are given back to the system. Not used while that is empty.
  std::span<const std::byte> memory;
  std::weak_ptr<const void> memory_lifetime;
  // There is a file of that name, an earlier shard that nobody needs: it is written over instead of a new one, if
  // nobody has it open, and replaced if somebody has.
  bool recycle = false;
  // Null: nothing is reused. A chunk with the same digest as the same chunk of the same entry there is referred to.
  // Nothing is reused from a shard of another chunk size.
  const ReusableShard* reuse = nullptr;
  int64_t created_unix_ns = 0;
  // How long the save held the trainer; asked once all bytes are there. Null: 0.
  std::function<uint64_t()> blocked_ns;
  std::map<std::string, double> metrics;
  std::string user_metadata = "{}";
  // The writer adds "library_version", "compression", "chunk_bytes", "reuse": "step 12", to whose chunks it could
  // refer, or "none", "direct_io", "io" and "io_registered": "true" if the ring knew memory and file beforehand, or why
  // not. (Not codec_threads and io_depth: where the clock decides nothing, the file has the same bytes whatever they
  // are.) Unless nothing is compressed: "vectors": "avx512", "avx2" or "portable", which the codec uses. Where it is
  // so: "io_reason", why the kernel refused io_uring; "allocate": "false", the file system cannot; "nice", "idle_io"
  // and "write_bytes_per_second_max" as in the options, and "priority", why the kernel refused one of them.
  std::map<std::string, std::string> properties;
};

// When a shard was written, by the clock of BusySpans.
struct WriteTimes {
  BusySpans::Time begin;            // Write was called
  BusySpans::Time opened;           // the file is there, and the first chunk is awaited
  BusySpans::Time landed;           // everything but the header has been written
  BusySpans::Time end;              // the file is synced and closed
  BusySpans disk_waits;             // of the calling thread, for a write to end, or until it may submit the next one
  BusySpans encoder_waits;          // of the calling thread, with nothing in flight
  std::vector<BusySpans> encoding;  // by codec thread; the bytes as they were before
};

struct WrittenShard {
  ShardFooter footer;
  uint64_t logical_bytes = 0;  // of all entries, tied ones counted once
  uint64_t reused_bytes = 0;   // stored bytes of chunks that lie in other shards
  uint64_t entry_count = 0;    // of the shard: a box that is stored in tiles counts as these
  std::map<std::string, std::string> properties;
  WriteTimes times;
  std::shared_ptr<const ReusableShard>
      reusable;  // this shard, for the next save; its index.files are the shards that must stay
};

// Owned by the thread that first calls Write, since that is then the one that owns the I/O queue; another may create
// and destroy it. Threads and buffers are kept from one Write to the next.
class ShardWriter {
 public:
  // `files` is not owned. kUnavailable: IoQueueKind::kUring on a kernel that has none for us. kInvalidArgument: an
  // option out of its range. kResourceExhausted: the system gives no thread, or no memory for blocks and encoders.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(FileSystem& files, const ShardWriterOptions& options);
  ~ShardWriter();

  // Creates `path`, unless it is to be recycled, writes the shard, and syncs its data; the caller syncs the directory.
  // The same identity and contents give the same bytes, but for CodecPolicy::kThroughput and kAuto, which follow the
  // clock, and for contents that are waited for, whose chunks lie in the order of their addresses, and for properties
  // that say what the system refused. kInvalidArgument if `contents` breaks a rule of ValidateEntry or
  // ValidateShardTexts, names an entry twice (but as boxes of one tensor that do not overlap: EntryNames), has the
  // wrong number of bytes, or needs an index of more than kIndexBytesMax: then no file was made or written over. After
  // any other error there may be one, of unknown contents, which must be removed; the writer can be used again. The
  // error is the first one of the file system's, with nothing in flight any more. kAlreadyExists: there is something of
  // that name. kResourceExhausted: the disk has no room, or the system no memory. kInternal: what a function of
  // `contents`, or `cancelled`, threw. kCancelled if `cancelled`, asked between chunks on this thread, returned true.
  // An error of wait_until_ready is returned as it is; whatever the error, no thread is inside wait_until_ready any
  // more.
  absl::StatusOr<WrittenShard> Write(const std::string& path, const ShardIdentity& identity, ShardContents contents,
                                     const std::function<bool()>& cancelled = nullptr);

 private:
  ShardWriter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_SHARD_WRITER_H_
