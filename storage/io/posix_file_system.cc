#include "storage/io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"
#include "storage/io/posix_call.h"
#include "storage/io/posix_file.h"
#include "storage/io/posix_lock.h"
#include "storage/io/printable_text.h"
#include "storage/io/queues/thread_queue.h"
#include "storage/io/queues/uring_queue.h"
#include "storage/io/sync.h"
#include "storage/io/unique_fd.h"
#include "storage/io/unshared_fd.h"

namespace tidemark::storage {
namespace {

// As many transfers as a disk needs to be busy, and a bound for the memory behind them.
constexpr size_t kDepthMax = 256;

FileType TypeOfMode(mode_t mode) {
  if (S_ISREG(mode)) return FileType::kRegular;
  return S_ISDIR(mode) ? FileType::kDirectory : FileType::kOther;
}

absl::StatusOr<UniqueFd> OpenDirectoryFd(const std::string& path, const HeldDirectory* held) {
  return OpenWithoutLinks("open directory", path, O_RDONLY | O_DIRECTORY, held);
}

absl::StatusOr<std::unique_ptr<File>> CreateWithMode(const std::string& path, bool direct, mode_t mode,
                                                     const HeldDirectory* held) {
  const absl::StatusOr<Place> place = FindPlace("create", path, held);
  if (!place.ok()) return place.status();
  UniqueFd fd(RetryOnEintr([&] {
    return openat(place->folder.get(), place->c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  }));
  if (!fd.valid()) return PathStatus(errno, "create", path);
  return PosixFile::Adopt(UnsharedFd(std::move(fd)), path, direct);
}

}  // namespace

PosixFiles::PosixFiles(std::unique_ptr<const HeldDirectory> held)
    : new_uring_queue_(
          [](size_t depth) -> absl::StatusOr<std::unique_ptr<IoQueue>> { return UringQueue::Create(depth); }),
      held_(std::move(held)) {}

PosixFiles::PosixFiles(UringFactory new_uring_queue) : new_uring_queue_(std::move(new_uring_queue)) {}

absl::Status PosixFiles::CreateDirectory(const std::string& path) {
  const absl::StatusOr<Place> place = FindPlace("create directory", path, held_.get());
  if (!place.ok()) return place.status();
  if (mkdirat(place->folder.get(), place->c_str(), 0700) != 0) return ErrnoStatus(errno, "create directory", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirectoryEntry>> PosixFiles::ListDirectory(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenDirectoryFd(path, held_.get());
  if (!fd.ok()) return fd.status();
  std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd->get()), closedir);
  if (directory == nullptr) return ErrnoStatus(errno, "list", path);
  const int descriptor = fd->Release();
  std::vector<DirectoryEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info;
    if (entry->d_type != DT_UNKNOWN) {
      entries.push_back({.name = std::string(name), .type = TypeOfMode(DTTOIF(entry->d_type))});
    } else if (fstatat(descriptor, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
      entries.push_back({.name = std::string(name), .type = TypeOfMode(info.st_mode)});
    } else if (errno != ENOENT) {  // removed since it was listed
      return ErrnoStatus(errno, fmt::format("stat {} in", PrintableText(name)), path);
    }
  }
  if (errno != 0) return ErrnoStatus(errno, "list", path);
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

absl::StatusOr<FileType> PosixFiles::TypeOf(const std::string& path) {
  struct stat info;
  if (StatWithoutLinks(path, &info, held_.get()) != 0) return PathStatus(errno, "stat", path);
  return TypeOfMode(info.st_mode);
}

absl::StatusOr<FileId> PosixFiles::Identify(const std::string& path) {
  struct stat info;
  if (StatWithoutLinks(path, &info, held_.get()) != 0) return PathStatus(errno, "stat", path);
  const FileId id{.device = info.st_dev, .inode = info.st_ino};
  if (held_ == nullptr || !held_->Below(path)) return id;
  const bool found = StatWithoutLinks(path, &info) == 0;
  if (!found && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) return PathStatus(errno, "stat", path);
  if (found && id == FileId{.device = info.st_dev, .inode = info.st_ino}) return id;
  return absl::FailedPreconditionError(fmt::format("{}: its directory was moved or replaced: {} at that path", path,
                                                   found ? "another is there" : "none is found"));
}

// Adopt turns O_NONBLOCK off again.
absl::StatusOr<std::unique_ptr<File>> PosixFiles::OpenForRead(const std::string& path, bool direct) {
  absl::StatusOr<UnsharedFd> fd =
      UnsharedFd::Take([&] { return OpenRegularFile("open", path, O_RDONLY, held_.get()); });
  if (!fd.ok()) return fd.status();
  // Shared with other readers, and gone with the descriptor. A file system without locks has no rewriters either.
  const bool locked = RetryOnEintr([&] { return flock(fd->get(), LOCK_SH | LOCK_NB); }) == 0;
  if (!locked && errno == EWOULDBLOCK) {
    return absl::NotFoundError(fmt::format("open {}: its contents are gone: the file is being overwritten", path));
  }
  return PosixFile::Adopt(*std::move(fd), path, direct, locked);
}

absl::StatusOr<std::unique_ptr<File>> PosixFiles::OpenForRewrite(const std::string& path, bool direct) {
  absl::StatusOr<UnsharedFd> fd =
      UnsharedFd::Take([&] { return OpenRegularFile("open to overwrite", path, O_RDWR, held_.get()); });
  if (!fd.ok()) return fd.status();
  if (RetryOnEintr([&] { return flock(fd->get(), LOCK_EX | LOCK_NB); }) != 0) {
    return absl::UnavailableError(ErrnoStatus(errno, "lock to overwrite", path).message());
  }
  struct stat info;
  if (fstat(fd->get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (info.st_nlink > 1) {
    return absl::FailedPreconditionError(fmt::format("open to overwrite {}: it has {} names", path, info.st_nlink));
  }
  return PosixFile::Adopt(*std::move(fd), path, direct, /*locked=*/true);
}

absl::StatusOr<std::unique_ptr<File>> PosixFiles::Create(const std::string& path, bool direct) {
  return CreateWithMode(path, direct, 0600, held_.get());
}

absl::StatusOr<std::unique_ptr<File>> PosixFiles::CreateReadable(const std::string& path) {
  return CreateWithMode(path, /*direct=*/false, 0644, held_.get());
}

absl::Status PosixFiles::Rename(const std::string& from, const std::string& to) {
  const std::string operation = fmt::format("rename {} to", from);
  const absl::StatusOr<Place> source = FindPlace("rename", from, held_.get());
  if (!source.ok()) return source.status();
  const absl::StatusOr<Place> target = FindPlace(operation, to, held_.get());
  if (!target.ok()) return target.status();
  if (renameat(source->folder.get(), source->c_str(), target->folder.get(), target->c_str()) != 0) {
    return ErrnoStatus(errno, operation, to);
  }
  return absl::OkStatus();
}

absl::Status PosixFiles::RenameToNew(const std::string& from, const std::string& to) {
  const std::string operation = fmt::format("rename {} to new", from);
  const absl::StatusOr<Place> source = FindPlace("rename", from, held_.get());
  if (!source.ok()) return source.status();
  const absl::StatusOr<Place> target = FindPlace(operation, to, held_.get());
  if (!target.ok()) return target.status();
  const int old_folder = source->folder.get();
  const int new_folder = target->folder.get();
  if (renameat2(old_folder, source->c_str(), new_folder, target->c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, operation, to);
  // The file system cannot do that, as NFS. The first caller that links has the name.
  if (linkat(old_folder, source->c_str(), new_folder, target->c_str(), 0) != 0) {
    return ErrnoStatus(errno, operation, to);
  }
  unlinkat(old_folder, source->c_str(), 0);
  return absl::OkStatus();
}

absl::Status PosixFiles::HardLink(const std::string& path, const std::string& new_path) {
  const std::string operation = fmt::format("link {} to", path);
  const absl::StatusOr<Place> source = FindPlace("link", path, held_.get());
  if (!source.ok()) return source.status();
  const absl::StatusOr<Place> target = FindPlace(operation, new_path, held_.get());
  if (!target.ok()) return target.status();
  struct stat info;
  if (fstatat(source->folder.get(), source->c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, operation, new_path);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(fmt::format("{} {}: {} is not a regular file", operation, new_path, path));
  }
  if (linkat(source->folder.get(), source->c_str(), target->folder.get(), target->c_str(), 0) != 0) {
    return ErrnoStatus(errno, operation, new_path);
  }
  return absl::OkStatus();
}

absl::Status PosixFiles::RemoveFile(const std::string& path) {
  const absl::StatusOr<Place> place = FindPlace("remove", path, held_.get());
  if (!place.ok()) return place.status();
  if (unlinkat(place->folder.get(), place->c_str(), 0) != 0) return ErrnoStatus(errno, "remove", path);
  return absl::OkStatus();
}

absl::Status PosixFiles::RemoveDirectory(const std::string& path) {
  const absl::StatusOr<Place> place = FindPlace("remove directory", path, held_.get());
  if (!place.ok()) return place.status();
  if (unlinkat(place->folder.get(), place->c_str(), AT_REMOVEDIR) != 0)
    return ErrnoStatus(errno, "remove directory", path);
  return absl::OkStatus();
}

absl::Status PosixFiles::SyncDirectory(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenDirectoryFd(path, held_.get());
  if (!fd.ok()) return fd.status();
  if (SyncDirectoryNames(fd->get()) != 0) return ErrnoStatus(errno, "sync directory", path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Directory>> PosixFiles::OpenDirectory(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenDirectoryFd(path, held_.get());
  if (!fd.ok()) return fd.status();
  return NewDirectory([path, shared = std::make_shared<const UniqueFd>(*std::move(fd))] {
    return SyncDirectoryNames(shared->get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "sync directory", path);
  });
}

absl::StatusOr<std::unique_ptr<FileLock>> PosixFiles::TryLock(const std::string& path) {
  return PosixLock::TryLock(path, held_.get());
}

absl::StatusOr<std::string> PosixFiles::ReadNote(const std::string& path, size_t bytes_max) {
  return PosixLock::ReadNote(path, bytes_max, held_.get());
}

absl::StatusOr<std::unique_ptr<IoQueue>> PosixFiles::NewIoQueue(IoQueueKind kind, size_t depth) {
  if (depth < 1 || depth > kDepthMax) {
    return absl::InvalidArgumentError(fmt::format("I/O queue of depth {}: it must be 1 to {}", depth, kDepthMax));
  }
  std::string note;
  if (kind != IoQueueKind::kThreads) {
    absl::StatusOr<std::unique_ptr<IoQueue>> queue = new_uring_queue_(depth);
    if (queue.ok() || kind == IoQueueKind::kUring) return queue;
    note = std::string(queue.status().message());
  }
  return ThreadQueue::Create(depth, std::move(note));
}

FileSystem& PosixFileSystem() {
  static FileSystem& files = *new PosixFiles;
  return files;
}

std::unique_ptr<FileSystem> PosixFileSystemAt(std::string directory) {
  return std::make_unique<PosixFiles>(std::make_unique<const HeldDirectory>(std::move(directory)));
}

}  // namespace tidemark::storage
