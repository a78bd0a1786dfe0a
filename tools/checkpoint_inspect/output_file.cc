#include "tools/checkpoint_inspect/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/shard/ids.h"

namespace tidemark::inspect {
namespace {

using storage::ErrnoStatus;

constexpr mode_t kMode = 0666;  // the umask's to narrow: what is exported is for others

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path, bool replace) {
  struct stat present = {};
  if (stat(path.c_str(), &present) == 0) {
    if (S_ISDIR(present.st_mode)) return absl::AlreadyExistsError(fmt::format("{} is a directory", path));
    if (!S_ISREG(present.st_mode)) return absl::AlreadyExistsError(fmt::format("{} is no regular file", path));
    if (!replace) return absl::AlreadyExistsError(fmt::format("{} is there already; --force replaces it", path));
  }
  std::unique_ptr<OutputFile> file(new OutputFile(path, replace));
  file->fd_ = storage::UniqueFd(open(DirectoryOf(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  if (!file->fd_.valid() && (errno == EOPNOTSUPP || errno == EISDIR)) {
    file->temporary_ = file->TemporaryName();
    file->fd_ =
        storage::UniqueFd(open(file->temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!file->fd_.valid()) file->temporary_.clear();
  }
  if (!file->fd_.valid()) return ErrnoStatus(errno, "create", path);
  return file;
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

std::string OutputFile::TemporaryName() const {
  return fmt::format("{}/.{}.{}", DirectoryOf(path_), std::filesystem::path(path_).filename().string(),
                     storage::ToHex(storage::RandomBytes16()));
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
  if (fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "sync", path_);
  const std::string own = fmt::format("/proc/self/fd/{}", fd_.get());
  if (temporary_.empty()) {
    const std::string name = replace_ ? TemporaryName() : path_;
    if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return ErrnoStatus(errno, "name", path_);
    }
    if (!replace_) return absl::OkStatus();
    temporary_ = name;
  }
  if (!replace_) {
    if (absl::Status status = NameAnew(temporary_, path_); !status.ok()) return status;
  } else if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, "name", path_);
  }
  temporary_.clear();
  return absl::OkStatus();
}

std::string CheckOutputPath(const std::string& path) {
  if (path.empty()) return "an empty path names no file";
  return path == "-" ? "nothing is written to standard output; './-' is the file of that name" : "";
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

}  // namespace tidemark::inspect
