// What a ring knows beforehand: memory whose pages it need not look up for each request, and one file.

#ifndef TIDEMARK_STORAGE_IO_QUEUES_URING_REGISTRATION_H_
#define TIDEMARK_STORAGE_IO_QUEUES_URING_REGISTRATION_H_

#include <liburing.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Owned by the ring's thread. To add needs Linux 5.19 and, for memory, room under RLIMIT_MEMLOCK; without them it
// returns the kernel's answer, and what was added before stays.
//
// What is removed is never used again, even where the kernel, short of memory, refuses to forget it: to go on with
// pages that another mapping has replaced would be to write wrong bytes.
class UringRegistration {
 public:
  // Of one registered buffer; longer memory is registered in pieces.
  static constexpr size_t kBufferBytesMax = size_t{1} << 30;
  static constexpr unsigned kBuffersMax = 64;

  // `ring` is not owned, and is created before the first call.
  explicit UringRegistration(io_uring& ring, size_t buffer_bytes_max = kBufferBytesMax)
      : ring_(ring), buffer_bytes_max_(buffer_bytes_max), buffers_(kBuffersMax) {}
  UringRegistration(const UringRegistration&) = delete;
  UringRegistration& operator=(const UringRegistration&) = delete;

  absl::Status AddMemory(std::span<const std::byte> memory);
  // Where the kernel refuses, all memory is removed, not only this; where it refuses that too, there is none for this
  // ring any more, and AddMemory answers kFailedPrecondition.
  void RemoveMemory(std::span<const std::byte> memory);

  // The registered buffer that has all of `bytes` in it.
  std::optional<unsigned> BufferOf(std::span<const std::byte> bytes) const;

  // In place of the one before, also if it fails. `file` has the descriptor `fd`.
  absl::Status SetFile(const File* file, int fd);
  // Where the kernel refuses, it keeps the file open until another is set or the ring goes.
  void RemoveFile();
  bool IsFile(const File* file) const { return file == file_ && file != nullptr; }
  static constexpr int kFileIndex = 0;  // the registered file's, in place of its descriptor

 private:
  std::vector<std::span<const std::byte>> PiecesOf(std::span<const std::byte> memory) const;
  absl::Status Update(unsigned buffer, std::span<const std::byte> bytes);
  absl::Status AddPiece(std::span<const std::byte> piece);
  void RemoveBuffer(unsigned buffer);
  void RemoveAllBuffers();

  io_uring& ring_;
  const size_t buffer_bytes_max_;
  bool has_buffer_table_ = false;
  bool keeps_old_buffers_ = false;  // the kernel could not forget some
  bool has_file_table_ = false;
  std::vector<std::span<const std::byte>> buffers_;  // by their index in the ring; empty ones are free
  const File* file_ = nullptr;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_QUEUES_URING_REGISTRATION_H_
