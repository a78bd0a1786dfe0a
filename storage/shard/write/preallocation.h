// Disk blocks for a file, a step ahead of where it is written.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_PREALLOCATION_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_PREALLOCATION_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Blocks have to be there before they are written: extending writes wait for each other on the inode. Taking all that a
// file can need at worst would be as fast, but would refuse a disk that has room for what it does need. Owned by one
// thread.
class Preallocation {
 public:
  // Large enough that the calls do not show, which they do not from 64 MiB on.
  static constexpr uint64_t kStepBytes = 256 << 20;

  // `file` is not owned. It will not grow beyond `bytes_max` by much.
  Preallocation(File* file, uint64_t bytes_max) : file_(file), bytes_max_(bytes_max) {}

  // To be called before [.., end) is written. kResourceExhausted: the disk has no room for that much, be there room for
  // a step or not. Ok where the file system cannot allocate.
  absl::Status Reserve(uint64_t end) {
    if (end <= reserved_ || !possible_) return absl::OkStatus();
    uint64_t bytes = std::max(end, std::min(end + step_bytes_, bytes_max_));
    absl::Status status = file_->Allocate(bytes);
    if (absl::IsResourceExhausted(status) && bytes > end) {
      // Nearly full. Asking for less ahead every time, this soon asks for nothing that is not needed.
      step_bytes_ = (bytes - end) / 2;
      bytes = end;
      status = file_->Allocate(bytes);
    }
    if (absl::IsUnimplemented(status)) {
      possible_ = false;
      return absl::OkStatus();
    }
    if (status.ok()) reserved_ = bytes;
    return status;
  }

  // Whether the file system can, as far as is known.
  bool possible() const { return possible_; }

 private:
  File* const file_;
  const uint64_t bytes_max_;
  uint64_t reserved_ = 0;
  uint64_t step_bytes_ = kStepBytes;
  bool possible_ = true;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_PREALLOCATION_H_
