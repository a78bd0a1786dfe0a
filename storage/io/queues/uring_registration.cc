#include "storage/io/queues/uring_registration.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"
#include "storage/io/errno_status.h"

namespace tidemark::storage {
namespace {

bool Contains(std::span<const std::byte> outer, std::span<const std::byte> inner) {
  return inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

bool IsSame(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() == b.data() && a.size() == b.size();
}

}  // namespace

absl::Status UringRegistration::AddMemory(std::span<const std::byte> memory) {
  if (keeps_old_buffers_) {
    return absl::FailedPreconditionError(
        "register memory with io_uring: the earlier registration could not be removed");
  }
  if (!has_buffer_table_) {
    const int result = io_uring_register_buffers_sparse(&ring_, kBuffersMax);
    if (result < 0) return ErrnoStatus(-result, "register memory with", "io_uring");
    has_buffer_table_ = true;
  }
  const std::vector<std::span<const std::byte>> before = buffers_;
  for (const std::span<const std::byte> piece : PiecesOf(memory)) {
    absl::Status status = AddPiece(piece);
    if (status.ok()) continue;
    for (unsigned i = 0; i < kBuffersMax; ++i) {
      if (before[i].empty() && !buffers_[i].empty()) RemoveBuffer(i);
    }
    return status;
  }
  return absl::OkStatus();
}

absl::Status UringRegistration::AddPiece(std::span<const std::byte> piece) {
  const auto is_piece = [&](std::span<const std::byte> buffer) { return IsSame(buffer, piece); };
  if (std::any_of(buffers_.begin(), buffers_.end(), is_piece)) return absl::OkStatus();
  const auto free = std::find_if(buffers_.begin(), buffers_.end(), [](const auto& buffer) { return buffer.empty(); });
  if (free == buffers_.end()) {
    return absl::ResourceExhaustedError(
        fmt::format("register memory with io_uring: {} pieces are registered already", kBuffersMax));
  }
  return Update(static_cast<unsigned>(free - buffers_.begin()), piece);
}

void UringRegistration::RemoveMemory(std::span<const std::byte> memory) {
  for (const std::span<const std::byte> piece : PiecesOf(memory)) {
    for (unsigned i = 0; i < kBuffersMax; ++i) {
      if (IsSame(buffers_[i], piece)) RemoveBuffer(i);
    }
  }
}

void UringRegistration::RemoveBuffer(unsigned buffer) {
  if (!Update(buffer, {}).ok()) RemoveAllBuffers();
}

// Needs no memory of the kernel, unlike an update of the table.
void UringRegistration::RemoveAllBuffers() {
  std::fill(buffers_.begin(), buffers_.end(), std::span<const std::byte>());
  int result = -EINTR;
  while (result == -EINTR) result = io_uring_unregister_buffers(&ring_);
  has_buffer_table_ = false;
  keeps_old_buffers_ = result < 0;
}

std::optional<unsigned> UringRegistration::BufferOf(std::span<const std::byte> bytes) const {
  if (!has_buffer_table_) return std::nullopt;
  for (unsigned i = 0; i < kBuffersMax; ++i) {
    if (!buffers_[i].empty() && Contains(buffers_[i], bytes)) return i;
  }
  return std::nullopt;
}

std::vector<std::span<const std::byte>> UringRegistration::PiecesOf(std::span<const std::byte> memory) const {
  std::vector<std::span<const std::byte>> pieces;
  while (!memory.empty()) {
    const size_t size = std::min(memory.size(), buffer_bytes_max_);
    pieces.push_back(memory.first(size));
    memory = memory.subspan(size);
  }
  return pieces;
}

absl::Status UringRegistration::Update(unsigned buffer, std::span<const std::byte> bytes) {
  const iovec memory = {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  const int result = io_uring_register_buffers_update_tag(&ring_, buffer, &memory, nullptr, 1);
  if (result < 0)
    return ErrnoStatus(-result, fmt::format("register {} bytes of memory with", bytes.size()), "io_uring");
  buffers_[buffer] = bytes;
  return absl::OkStatus();
}

absl::Status UringRegistration::SetFile(const File* file, int fd) {
  file_ = nullptr;
  int result = has_file_table_ ? 0 : io_uring_register_files_sparse(&ring_, 1);
  has_file_table_ = has_file_table_ || result == 0;
  if (result == 0) result = io_uring_register_files_update(&ring_, kFileIndex, &fd, 1);
  if (result < 0) return ErrnoStatus(-result, "register with io_uring the file", file->path());
  file_ = file;
  return absl::OkStatus();
}

void UringRegistration::RemoveFile() {
  if (file_ == nullptr) return;
  file_ = nullptr;
  const int none = -1;
  if (io_uring_register_files_update(&ring_, kFileIndex, &none, 1) >= 0) return;
  int result = -EINTR;
  while (result == -EINTR) result = io_uring_unregister_files(&ring_);
  has_file_table_ = result < 0;
}

}  // namespace tidemark::storage
