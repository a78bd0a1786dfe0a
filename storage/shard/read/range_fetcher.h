// Reads ranges of files at depth and works on them on several threads: what reading and verifying a shard share.

#ifndef TIDEMARK_STORAGE_SHARD_READ_RANGE_FETCHER_H_
#define TIDEMARK_STORAGE_SHARD_READ_RANGE_FETCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::storage {

// Ranges that are read to their place are at least this large: for less, a copy costs less than another request.
inline constexpr uint64_t kPlacedBytesMin = 64 * 1024;

// Ranges are made about this large: a read of it keeps a disk busy, and many of them fit into the pool.
inline constexpr uint64_t kRangeBytes = 1 << 20;

struct ByteRange {
  File* file = nullptr;  // stays open until FetchRanges has returned
  uint64_t begin = 0;
  uint64_t end = 0;       // exclusive
  size_t first_item = 0;  // what lies in it, for the handler
  size_t last_item = 0;   // exclusive
  // Where the bytes are to be, with room for just them; nobody else touches it until they are handled. `begin` and this
  // are then multiples of kDirectAlignment. Null: in a buffer, which is somebody else's after the handler has returned.
  std::byte* place = nullptr;
};

// Adds item number `item`, at [begin, end) of `file`, to the last range if it lies there or close behind it and the
// range stays within kRangeBytes, or as a range of its own. Items come in ascending order of `begin` within a file.
// `place`: where the caller wants the item's bytes as they are in the file, or null; they are read to it directly if
// its alignment and size allow that and no other item shares them.
void AddToRanges(File* file, uint64_t begin, uint64_t end, size_t item, std::vector<ByteRange>* ranges,
                 std::byte* place = nullptr);

// What each thread has to itself.
struct FetchWorker {
  ChunkDecoder decoder;
  std::vector<std::byte> scratch;
};

struct FetchOptions {
  int threads = 1;
  IoQueueKind io = IoQueueKind::kAuto;
  size_t io_depth = 16;
};

// Called on one of the threads, concurrently, with the bytes [begin, end) of ranges[range] if `read` is ok, and none if
// not. A Status that is not ok ends the whole fetch. So does an exception, as ExceptionStatus.
using RangeHandler = std::function<absl::Status(size_t range, const absl::Status& read,
                                                std::span<const std::byte> bytes, FetchWorker& worker)>;

// Submits the ranges in order from this thread, into a pool of buffers of at most 64 MiB or two of the largest ranges
// that have no place, and returns when all are handled, or with the first error when nothing is in flight any more.
// `on_read`, if set, is called on this thread when a range has been read. What it throws becomes the error, too.
//
// - kResourceExhausted: no thread, or no memory for buffers or decoders.
// - Other errors are the queue's, the handler's, or what a function threw.
absl::Status FetchRanges(FileSystem& files, const FetchOptions& options, std::span<const ByteRange> ranges,
                         const RangeHandler& handler, const std::function<void(size_t range)>& on_read = nullptr);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_READ_RANGE_FETCHER_H_
