// What a ring knows beforehand: memory whose pages it need not look up for each request, and one file.

#ifndef TIDEMARK_STORAGE_IO_URING_REGISTRATION_H_
#define TIDEMARK_STORAGE_IO_URING_REGISTRATION_H_

#include <liburing.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Owned by the ring's thread. Every call needs Linux 5.19 and, for memory, room under RLIMIT_MEMLOCK; without them it
// returns the kernel's answer, and the ring is as before.
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
  void RemoveMemory(std::span<const std::byte> memory);

  // The registered buffer that has all of `bytes` in it.
  std::optional<unsigned> BufferOf(std::span<const std::byte> bytes) const;

  // `file` has the descriptor `fd`.
  absl::Status SetFile(const File* file, int fd);
  void RemoveFile();
  bool IsFile(const File* file) const { return file == file_ && file != nullptr; }
  static constexpr int kFileIndex = 0;  // the registered file's, in place of its descriptor

 private:
  std::vector<std::span<const std::byte>> PiecesOf(std::span<const std::byte> memory) const;
  absl::Status Update(unsigned buffer, std::span<const std::byte> bytes);

  io_uring& ring_;
  const size_t buffer_bytes_max_;
  bool has_buffer_table_ = false;
  bool has_file_table_ = false;
  std::vector<std::span<const std::byte>> buffers_;  // by their index in the ring; empty ones are free
  const File* file_ = nullptr;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_URING_REGISTRATION_H_
