// Turns a sequence of appended bytes into aligned writes that are kept in flight on an IoQueue.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_BLOCK_STREAM_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_BLOCK_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/write/busy_spans.h"

namespace tidemark::storage {

// Is told of every write, by the stream's thread. What takes a while there delays the stream.
class WriteObserver {
 public:
  virtual ~WriteObserver() = default;
  virtual void Submitting(uint64_t bytes) = 0;
  virtual void Completed(uint64_t bytes) = 0;                           // well or not
  virtual void Waited(BusySpans::Time begin, BusySpans::Time end) = 0;  // for the end of one
};

// Owned by the thread that owns the queue. Bytes are copied once, into a block of a fixed pool, or not at all
// (AppendInPlace). The first failed write is kept: every later call returns it, and nothing more is submitted.
class BlockStream {
 public:
  static constexpr size_t kBlockBytes = 1 << 20;
  // Copying less than this costs less than a write of its own.
  static constexpr size_t kInPlaceBytesMin = 128 << 10;

  // Allocates `blocks` blocks; throws std::bad_alloc if the system has no memory. Precondition: at least 1.
  explicit BlockStream(size_t blocks);
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  // Where the blocks lie, for as long as the stream lives.
  std::span<const std::byte> memory() const { return pool_.span(); }

  // Begins to write `file` at `offset`, a multiple of kDirectAlignment. `file`, `queue` and `observer`, which may be
  // null, are not owned and stay until Finish has returned. Precondition: nothing is in flight, also after an exception
  // of the queue.
  void Begin(File* file, IoQueue* queue, uint64_t offset, WriteObserver* observer = nullptr);

  // Where the next byte goes.
  uint64_t offset() const { return offset_; }

  absl::Status Append(std::span<const std::byte> data);

  // Writes what `data` has of whole kDirectAlignment from where it lies, if that is worth it and address and offset()
  // allow it, and copies the rest. `data` must not change until Finish has returned.
  absl::Status AppendInPlace(std::span<const std::byte> data);

  // Zeros up to the next multiple of kDirectAlignment.
  absl::Status Align();

  // Whether a write was submitted whose end is not known yet.
  bool in_flight() const { return queue_->in_flight() > 0; }

  // Waits for the end of one. Returns the first error of any. Precondition: in_flight().
  absl::Status Wait();
  // Takes note of those that have ended by now.
  void Poll();

  // Aligns, submits what is left and waits for every write, after an error too. Returns the first error.
  absl::Status Finish();

 private:
  static constexpr uint32_t kNotABlock = ~uint32_t{0};  // the block of a write in place

  std::byte* block(size_t index) const { return pool_.data() + index * kBlockBytes; }
  // Sees to it that there is a current block with room in it.
  absl::Status NeedBlock();
  absl::Status SubmitBlock();
  absl::Status Submit(uint64_t offset, const std::byte* data, size_t size, uint32_t block);
  // Waits for the end of one. Precondition: in_flight().
  void ReapNext();
  void Reap(const IoCompletion& completion);

  const size_t blocks_;
  const AlignedBuffer pool_;
  std::vector<uint32_t> free_;  // indices of blocks
  File* file_ = nullptr;
  IoQueue* queue_ = nullptr;
  WriteObserver* observer_ = nullptr;
  uint64_t offset_ = 0;
  uint32_t current_ = 0;  // index of the block that is being filled, if used_ > 0
  size_t used_ = 0;       // bytes in it
  absl::Status status_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_BLOCK_STREAM_H_
