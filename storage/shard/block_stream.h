// Turns a sequence of appended bytes into aligned writes that are kept in flight on an IoQueue.

#ifndef TIDEMARK_STORAGE_SHARD_BLOCK_STREAM_H_
#define TIDEMARK_STORAGE_SHARD_BLOCK_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/shard/aligned_buffer.h"

namespace tidemark::storage {

// Owned by the thread that owns the queue. Bytes are copied once, into a block of a fixed pool, or not at all
// (AppendInPlace). The first failed write is kept: every later call returns it, and nothing more is submitted.
class BlockStream {
 public:
  static constexpr size_t kBlockBytes = 1 << 20;

  // Allocates `blocks` blocks; precondition: at least 1.
  explicit BlockStream(size_t blocks);
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  // Begins to write `file` at `offset`, a multiple of kDirectAlignment. `file` and `queue` are not owned and stay until
  // Finish has returned. Precondition: nothing is in flight.
  void Begin(File* file, IoQueue* queue, uint64_t offset);

  // Where the next byte goes.
  uint64_t offset() const { return offset_; }

  absl::Status Append(std::span<const std::byte> data);

  // Writes the whole aligned blocks of `data` from where they lie, if address and offset() allow it, and copies the
  // rest. `data` must not change until Finish has returned.
  absl::Status AppendInPlace(std::span<const std::byte> data);

  // Zeros up to the next multiple of kDirectAlignment.
  absl::Status Align();

  // Aligns, submits what is left and waits for every write, after an error too. Returns the first error.
  absl::Status Finish();

 private:
  static constexpr uint64_t kNotABlock = ~uint64_t{0};  // the tag of a write in place

  // Sees to it that there is a current block with room in it.
  absl::Status NeedBlock();
  absl::Status SubmitBlock();
  absl::Status Submit(uint64_t offset, const std::byte* data, size_t size, uint64_t tag);
  void Reap();

  const std::vector<AlignedBuffer> blocks_;
  std::vector<size_t> free_;  // indices of blocks
  File* file_ = nullptr;
  IoQueue* queue_ = nullptr;
  uint64_t offset_ = 0;
  size_t current_ = 0;  // index of the block that is being filled, if used_ > 0
  size_t used_ = 0;     // bytes in it
  absl::Status status_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_BLOCK_STREAM_H_
