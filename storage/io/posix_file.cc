#include "storage/io/posix_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"
#include "storage/io/posix_call.h"
#include "storage/io/queues/transfer.h"
#include "storage/io/sync.h"

namespace tidemark::storage {
namespace {

// Sets the status flags of `fd` to O_DIRECT alone or to none, and says which. O_DIRECT comes by fcntl and not by
// open(O_CREAT): an open that is refused leaves the new file behind. Some file systems take the flag and refuse the
// first transfer (overlays on top of others), so one block is read; any error but EINVAL will come up again later.
absl::StatusOr<bool> SetDirect(int fd, const std::string& path, bool direct) {
  if (direct && fcntl(fd, F_SETFL, O_DIRECT) == 0) {
    alignas(kDirectAlignment) std::byte block[kDirectAlignment];
    if (pread(fd, block, sizeof(block), 0) >= 0 || errno != EINVAL) return true;
  } else if (direct && errno != EINVAL) {
    return ErrnoStatus(errno, "set O_DIRECT on", path);
  }
  if (fcntl(fd, F_SETFL, 0) != 0) return ErrnoStatus(errno, "set status flags of", path);
  return false;
}

absl::Status CheckSize(uint64_t bytes, std::string_view operation, const std::string& path) {
  if (bytes <= kOffsetMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} {} to {} bytes: the largest size is {}", operation, path, bytes, kOffsetMax));
}

}  // namespace

absl::StatusOr<std::unique_ptr<File>> PosixFile::Adopt(UnsharedFd fd, std::string path, bool direct, bool locked) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (absl::Status regular = CheckRegular(info.st_mode, "open", path); !regular.ok()) return regular;
  absl::StatusOr<bool> is_direct = SetDirect(fd.get(), path, direct);
  if (!is_direct.ok()) return is_direct.status();
  return std::unique_ptr<File>(new PosixFile(std::move(fd), std::move(path), *is_direct, locked));
}

absl::StatusOr<uint64_t> PosixFile::Size() {
  struct stat info;
  if (fstat(fd(), &info) != 0) return ErrnoStatus(errno, "stat", path_);
  return static_cast<uint64_t>(info.st_size);
}

absl::Status PosixFile::ReadAt(uint64_t offset, std::span<std::byte> out) {
  Transfer transfer(IoRequest::Kind::kRead, path_, direct_, offset, out.size());
  std::optional<absl::Status> finished;
  if (absl::Status range = transfer.CheckRange(); !range.ok()) return range;
  while (!finished) {
    const ssize_t result =
        pread(fd(), out.data() + transfer.done(), transfer.next_size(), static_cast<off_t>(transfer.next_offset()));
    finished = transfer.Advance(result < 0 ? -errno : result);
  }
  return *std::move(finished);
}

absl::Status PosixFile::WriteAt(uint64_t offset, std::span<const std::byte> data) {
  Transfer transfer(IoRequest::Kind::kWrite, path_, direct_, offset, data.size());
  std::optional<absl::Status> finished;
  if (absl::Status range = transfer.CheckRange(); !range.ok()) return range;
  while (!finished) {
    const ssize_t result =
        pwrite(fd(), data.data() + transfer.done(), transfer.next_size(), static_cast<off_t>(transfer.next_offset()));
    finished = transfer.Advance(result < 0 ? -errno : result);
  }
  return *std::move(finished);
}

// fallocate(2) and never posix_fallocate(3), which writes into every block where the file system has no fallocate.
absl::Status PosixFile::Allocate(uint64_t bytes) {
  if (absl::Status size = CheckSize(bytes, "allocate", path_); !size.ok()) return size;
  if (RetryOnEintr([&] { return fallocate(fd(), 0, 0, static_cast<off_t>(bytes)); }) != 0)
    return ErrnoStatus(errno, fmt::format("allocate {} bytes for", bytes), path_);
  return absl::OkStatus();
}

absl::Status PosixFile::Truncate(uint64_t bytes) {
  if (absl::Status size = CheckSize(bytes, "truncate", path_); !size.ok()) return size;
  if (RetryOnEintr([&] { return ftruncate(fd(), static_cast<off_t>(bytes)); }) != 0)
    return ErrnoStatus(errno, fmt::format("truncate to {} bytes", bytes), path_);
  return absl::OkStatus();
}

absl::Status PosixFile::SyncData() {
  if (SyncFileData(fd()) != 0) return ErrnoStatus(errno, "sync", path_);
  return absl::OkStatus();
}

PosixFile::~PosixFile() { Unlock(); }

// Unlocks before it closes: a ring may close its own reference to the file later, and a child that has just been forked
// may not have closed its copy yet.
void PosixFile::Unlock() {
  if (!fd_.valid() || !locked_) return;
  RetryOnEintr([&] { return flock(fd(), LOCK_UN); });
}

// The descriptor is gone whatever close(2) says; closing again could hit a file that another thread has opened since.
absl::Status PosixFile::Close() {
  if (!fd_.valid()) return absl::OkStatus();
  Unlock();
  if (close(fd_.Release()) != 0) return ErrnoStatus(errno, "close", path_);
  return absl::OkStatus();
}

}  // namespace tidemark::storage
