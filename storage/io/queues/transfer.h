// What the answer to one read(2) or write(2) means for the transfer that it is part of: go on, done, or failed. Pure,
// and the same for blocking calls and for io_uring completions.

#ifndef TIDEMARK_STORAGE_IO_QUEUES_TRANSFER_H_
#define TIDEMARK_STORAGE_IO_QUEUES_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// The largest offset that a file can have, and so the largest size.
inline constexpr uint64_t kOffsetMax = std::numeric_limits<int64_t>::max();

// One read or write of `size` bytes at `offset` and how far it has come. Thread-compatible.
class Transfer {
 public:
  Transfer() = default;

  // `path` is only for messages and must outlive the transfer. `direct`: the file bypasses the page cache.
  Transfer(IoRequest::Kind kind, std::string_view path, bool direct, uint64_t offset, size_t size)
      : kind_(kind), path_(path), direct_(direct), offset_(offset), size_(size) {}

  // kInvalidArgument if the range reaches past the largest offset that a file can have. To be asked before anything is
  // transferred: io_uring takes an offset of all ones for "wherever the file stands".
  absl::Status CheckRange() const;

  // Bytes that are transferred for good.
  size_t done() const { return done_; }
  // Where the next piece starts in the file, and how long it is: what is left, at most 1 GiB (the kernel takes less
  // than 2 GiB at once, and io_uring's length has 32 bits).
  uint64_t next_offset() const { return offset_ + done_; }
  size_t next_size() const;

  // `result`: bytes that the next piece transferred, or -errno. nullopt: transfer the next piece (some bytes were
  // transferred, or the answer was EINTR or EAGAIN). A status: finished. Ok: every byte was transferred; kDataLoss: the
  // file ended before that; otherwise the system's error.
  std::optional<absl::Status> Advance(int64_t result);

 private:
  absl::Status Stuck(size_t reached) const;

  IoRequest::Kind kind_ = IoRequest::Kind::kRead;
  std::string_view path_;
  bool direct_ = false;
  uint64_t offset_ = 0;
  size_t size_ = 0;
  size_t done_ = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_QUEUES_TRANSFER_H_
