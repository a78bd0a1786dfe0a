#include "tools/checkpoint_inspect/exchange/imported_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"

namespace tidemark::inspect {

using storage::ErrnoStatus;

// Looks before it opens, for opening alone can do something to a device; O_NONBLOCK for what is put there in between.
absl::StatusOr<ImportedFile> ImportedFile::Open(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "open", path);
  if (absl::Status status = storage::CheckRegular(info.st_mode, "open", path); !status.ok()) return status;
  storage::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "open", path);
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (absl::Status status = storage::CheckRegular(info.st_mode, "open", path); !status.ok()) return status;
  return ImportedFile(path, std::move(fd), static_cast<uint64_t>(info.st_size));
}

absl::Status ImportedFile::ReadAt(uint64_t offset, std::span<std::byte> destination) const {
  while (!destination.empty()) {
    const ssize_t got = pread(fd_.get(), destination.data(), destination.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, fmt::format("read {} bytes at {} of", destination.size(), offset), path_);
    if (got == 0)
      return absl::DataLossError(
          fmt::format("{}: it became shorter while it was read: it ends at byte {}", path_, offset));
    offset += static_cast<uint64_t>(got);
    destination = destination.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
}

}  // namespace tidemark::inspect
