#include "snapshot/exchange/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/errno_status.h"
#include "storage/io/sync.h"

namespace tidemark {
namespace {

using storage::ErrnoStatus;

constexpr mode_t kMode = 0666;  // the umask's to narrow: what is exported is for others

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

// After this a power cut does not bring back the name's earlier file. Some file systems cannot sync a directory.
absl::Status SyncDirectoryOf(const std::string& path) {
  const storage::UniqueFd directory(open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return errno == EACCES ? absl::OkStatus() : ErrnoStatus(errno, "open the folder of", path);
  if (storage::SyncDirectoryNames(directory.get()) == 0 || errno == EINVAL) return absl::OkStatus();
  return ErrnoStatus(errno, "sync the folder of", path);
}

// What the names of the temporary files of `path` begin with. 32 hexadecimal digits follow.
std::string TemporaryPrefix(const std::string& path) {
  return fmt::format(".{}.", std::filesystem::path(path).filename().string());
}

std::string TemporaryName(const std::string& path) {
  return fmt::format("{}/{}{}", DirectoryOf(path), TemporaryPrefix(path), storage::ToHex(storage::RandomBytes16()));
}

// Removes the temporary files of `path` that killed processes have left. A living process holds a lock on its own.
void RemoveLeftovers(const std::string& path) {
  const std::string prefix = TemporaryPrefix(path);
  const auto is_temporary = [&](const std::string& name) {
    return name.size() == prefix.size() + 32 && name.starts_with(prefix) &&
           name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
  };
  std::error_code error;
  for (std::filesystem::directory_iterator entry(DirectoryOf(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().string();
    if (!is_temporary(entry->path().filename().string())) continue;
    const storage::UniqueFd file(open(name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info = {};
    if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(name.c_str());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path, bool replace) {
  struct stat present = {};
  if (stat(path.c_str(), &present) == 0) {
    if (S_ISDIR(present.st_mode)) return absl::AlreadyExistsError(fmt::format("{} is a directory", path));
    if (!S_ISREG(present.st_mode)) return absl::AlreadyExistsError(fmt::format("{} is not a regular file", path));
    if (!replace) return absl::AlreadyExistsError(fmt::format("{} exists; --force replaces it", path));
  }
  RemoveLeftovers(path);
  std::unique_ptr<OutputFile> file(new OutputFile(path, replace));
  if (absl::Status status = file->Open(); !status.ok()) return status;
  return file;
}

absl::Status OutputFile::Open() {
  fd_ = storage::UniqueFd(open(DirectoryOf(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  if (fd_.valid()) {
    flock(fd_.get(), LOCK_EX);
    return absl::OkStatus();
  }
  if (errno != EOPNOTSUPP && errno != EISDIR) return ErrnoStatus(errno, "create", path_);
  while (true) {
    const std::string name = TemporaryName(path_);
    fd_ = storage::UniqueFd(open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!fd_.valid()) return ErrnoStatus(errno, "create", path_);
    flock(fd_.get(), LOCK_EX);
    // Another process may have removed it as a leftover before it was locked.
    struct stat info = {};
    if (fstat(fd_.get(), &info) == 0 && info.st_nlink == 0) continue;
    temporary_ = name;
    return absl::OkStatus();
  }
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status OutputFile::Write(std::span<const std::byte> bytes) {
  if (absl::Status status = WriteAt(end_, bytes); !status.ok()) return status;
  end_ += bytes.size();
  return absl::OkStatus();
}

absl::Status OutputFile::Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }

absl::Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", path_);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (storage::SyncFileData(fd_.get()) != 0) return ErrnoStatus(errno, "sync", path_);
  const std::string own = fmt::format("/proc/self/fd/{}", fd_.get());
  if (temporary_.empty()) {
    const std::string name = replace_ ? TemporaryName(path_) : path_;
    if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return ErrnoStatus(errno, "name", path_);
    }
    if (!replace_) return SyncDirectoryOf(path_);
    temporary_ = name;
  }
  if (!replace_) {
    if (absl::Status status = NameAnew(temporary_, path_); !status.ok()) return status;
  } else if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, "name", path_);
  }
  temporary_.clear();
  return SyncDirectoryOf(path_);
}

absl::Status NameAnew(const std::string& from, const std::string& to, bool kernel_looks) {
  if (kernel_looks) {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
    if (errno != EINVAL && errno != ENOSYS) return ErrnoStatus(errno, "name", to);
  }
  struct stat info = {};
  if (lstat(from.c_str(), &info) != 0) return ErrnoStatus(errno, "look at", from);
  if (!S_ISDIR(info.st_mode)) {
    if (link(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "name", to);
    return unlink(from.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "remove", from);
  }
  if (lstat(to.c_str(), &info) == 0) return ErrnoStatus(EEXIST, "name", to);
  return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "name", to);
}

}  // namespace tidemark
