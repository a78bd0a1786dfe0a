// How fast a file can be written, read and synced, measured the way a shard is written.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_SPEED_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_SPEED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"

namespace tidemark::inspect {

// The size of a transfer, which is that of a shard's blocks.
inline constexpr size_t kSpeedBlockBytes = 1 << 20;

struct SpeedOptions {
  uint64_t bytes_max = uint64_t{1} << 30;          // of the file; rounded down to blocks, and at least one
  absl::Duration duration_max = absl::Seconds(2);  // of the writing and of the reading, each; at least one block goes
  std::function<bool()> cancelled;                 // asked between blocks; null: never
  // Told now and then: "writing" or "reading", and how many bytes are done of at most how many. May be null.
  std::function<void(std::string_view what, uint64_t bytes_done, uint64_t bytes_max)> progress;
};

struct DiskSpeed {
  uint64_t bytes = 0;                 // that were written; as many or fewer were read
  double write_bytes_per_second = 0;  // the sync at the end included
  double read_bytes_per_second = 0;
  bool direct = false;  // past the page cache; else what was read had just been written to it
  std::string queue;    // "io_uring" or "threads"
};

// Writes into an empty `file` blocks that no file system makes smaller, as many at a time as a shard's writer has in
// flight, syncs it, and reads them back. kCancelled; kResourceExhausted: the disk is full; else the disk's error.
absl::StatusOr<DiskSpeed> MeasureSpeed(storage::FileSystem& files, storage::File& file, const SpeedOptions& options);

struct SyncSpeed {
  size_t syncs = 0;
  absl::Duration median;
  absl::Duration longest;
};

// Writes a page to `file`, an open one that is not empty, and syncs it, over and over for `duration_max`, at least
// once. What a commit waits for is a few such syncs. kCancelled, or the disk's error.
absl::StatusOr<SyncSpeed> MeasureSyncs(storage::File& file, absl::Duration duration_max,
                                       const std::function<bool()>& cancelled);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_SPEED_H_
