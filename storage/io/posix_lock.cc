#include "storage/io/posix_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"
#include "storage/io/lock_note.h"
#include "storage/io/posix_call.h"
#include "storage/io/sync.h"

namespace tidemark::storage {
namespace {

// How long somebody who only looks at the file may keep it from being locked, as OpenForRead does for as long as a file
// is open, and one who asks whether anybody has the lock for a moment.
constexpr int kLooksMax = 100;
constexpr std::chrono::milliseconds kBetweenLooks(2);

absl::StatusOr<UniqueFd> OpenLockFile(const std::string& path, int flags, const HeldDirectory* held) {
  const absl::StatusOr<Place> place = FindPlace("open lock file", path, held);
  if (!place.ok()) return place.status();
  struct stat info;
  // To open a device or a fifo may do something to it.
  if (fstatat(place->folder.get(), place->c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISLNK(info.st_mode)) return PathStatus(ELOOP, "open lock file", path);
    if (absl::Status regular = CheckRegular(info.st_mode, "open lock file", path); !regular.ok()) return regular;
  } else if (errno != ENOENT || (flags & O_CREAT) == 0) {
    return ErrnoStatus(errno, "open lock file", path);
  }
  // Something else may have come into its place meanwhile.
  UniqueFd fd(RetryOnEintr([&] {
    return openat(place->folder.get(), place->c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  }));
  if (!fd.valid()) return PathStatus(errno, "open lock file", path);
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat lock file", path);
  if (absl::Status regular = CheckRegular(info.st_mode, "open lock file", path); !regular.ok()) return regular;
  return fd;
}

absl::Status HeldByAnother(int fd, const std::string& path) {
  std::string note(kNoteBytesMax, '\0');
  const ssize_t size = RetryOnEintr([&] { return pread(fd, note.data(), note.size(), 0); });
  note.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return LockIsHeld(path, note);
}

// Whether nobody has the file locked but for looking at it.
bool IsOnlyLookedAt(int fd) {
  if (RetryOnEintr([&] { return flock(fd, LOCK_SH | LOCK_NB); }) != 0) return false;
  RetryOnEintr([&] { return flock(fd, LOCK_UN); });
  return true;
}

absl::StatusOr<bool> IsNamed(int fd, const std::string& path, const HeldDirectory* held) {
  struct stat locked;
  if (fstat(fd, &locked) != 0) return ErrnoStatus(errno, "stat lock file", path);
  struct stat named;
  if (StatWithoutLinks(path, &named, held) != 0) {
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, "stat lock file", path);
  }
  return locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> PosixLock::TryLock(const std::string& path, const HeldDirectory* held) {
  // Between open and flock another holder may have removed the file; a lock on what has no name keeps nobody out.
  for (int looks = 0;;) {
    absl::StatusOr<UnsharedFd> fd = UnsharedFd::Take([&] { return OpenLockFile(path, O_RDWR | O_CREAT, held); });
    if (!fd.ok()) return fd.status();
    if (RetryOnEintr([&] { return flock(fd->get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
      if (!IsOnlyLookedAt(fd->get()) || ++looks == kLooksMax) return HeldByAnother(fd->get(), path);
      std::this_thread::sleep_for(kBetweenLooks);
      continue;
    }
    absl::StatusOr<bool> named = IsNamed(fd->get(), path, held);
    if (!named.ok()) return named.status();
    if (!*named) continue;
    if (RetryOnEintr([&] { return ftruncate(fd->get(), 0); }) != 0) return ErrnoStatus(errno, "erase note in", path);
    return std::unique_ptr<FileLock>(new PosixLock(*std::move(fd), path));
  }
}

absl::StatusOr<std::string> PosixLock::ReadNote(const std::string& path, size_t bytes_max, const HeldDirectory* held) {
  absl::StatusOr<UniqueFd> fd = OpenLockFile(path, O_RDONLY, held);
  if (!fd.ok()) return fd.status();
  std::string note(bytes_max + 1, '\0');
  size_t size = 0;
  while (size < note.size()) {
    const ssize_t result = RetryOnEintr(
        [&] { return pread(fd->get(), note.data() + size, note.size() - size, static_cast<off_t>(size)); });
    if (result < 0) return ErrnoStatus(errno, "read note in", path);
    if (result == 0) break;
    size += static_cast<size_t>(result);
  }
  if (size > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("read note in {}: more than {} bytes, where fewer are expected", path, bytes_max));
  }
  note.resize(size);
  return note;
}

PosixLock::PosixLock(UnsharedFd fd, std::string path) : path_(std::move(path)), fd_(std::move(fd)) {}

// Unlocks before it closes: a child that has just been forked may not have closed its copy yet. In the child the
// descriptor is not valid any more, and nothing happens.
PosixLock::~PosixLock() { flock(fd_.get(), LOCK_UN); }

// The new note goes over the old one before the rest is cut off: who reads meanwhile never finds it empty.
absl::Status PosixLock::WriteNote(std::string_view note) {
  size_t written = 0;
  while (written < note.size()) {
    const ssize_t result = RetryOnEintr(
        [&] { return pwrite(fd_.get(), note.data() + written, note.size() - written, static_cast<off_t>(written)); });
    if (result < 0) return ErrnoStatus(errno, "write note to", path_);
    written += static_cast<size_t>(result);
  }
  if (RetryOnEintr([&] { return ftruncate(fd_.get(), static_cast<off_t>(note.size())); }) != 0) {
    return ErrnoStatus(errno, "cut note in", path_);
  }
  if (SyncFileData(fd_.get()) != 0) return ErrnoStatus(errno, "sync note in", path_);
  return absl::OkStatus();
}

}  // namespace tidemark::storage
