#include "storage/io/link_free_path.h"

#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/posix_call.h"

namespace tidemark::storage {
namespace {

constexpr int kFolderFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

// One after the other, to what is not there: as many as the kernel follows. They may lead in a circle.
constexpr int kDanglingLinksMax = 40;

// Name by name. -1 and errno where it does not lead to a directory, a link included.
int WalkTo(std::string_view path) {
  UniqueFd at(open(path.starts_with('/') ? "/" : ".", kFolderFlags));
  while (at.valid() && !path.empty()) {
    const std::string name(path.substr(0, path.find('/')));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (name.empty()) continue;
    const int next = openat(at.get(), name.c_str(), kFolderFlags | O_NOFOLLOW);
    if (next < 0 && errno == ENOTDIR) {
      // So it is called too where it is a link.
      struct stat info;
      const bool link = fstatat(at.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
      errno = link ? ELOOP : ENOTDIR;
      return -1;
    }
    at = UniqueFd(next);
  }
  return at.Release();
}

int OpenFolder(const std::string& path) {
  open_how how = {};
  how.flags = kFolderFlags;
  how.resolve = RESOLVE_NO_SYMLINKS;
  const auto fd =
      static_cast<int>(RetryOnEintr([&] { return syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof(how)); }));
  // EPERM is what older container managers answer for what they do not know; O_PATH itself is never refused so. EAGAIN:
  // something was renamed on the way.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EAGAIN)) return fd;
  return WalkTo(path);
}

std::pair<std::string, std::string> Split(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/") return {"/", "."};
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", std::move(path)};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Where a link leads, in its own words; nothing where there is none.
std::optional<std::string> ReadLink(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  if (size <= 0) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(size));
}

const char* TypeName(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a fifo";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The front of the path that is a link, if any is. For a message: what it finds may be another a moment later.
std::optional<std::string> FirstLink(const std::string& path) {
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    std::string front = path.substr(0, end);
    struct stat info;
    if (lstat(front.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) return front;
  }
  return std::nullopt;
}

}  // namespace

absl::Status PathStatus(int error, std::string_view operation, const std::string& path) {
  // ENOTDIR is what O_DIRECTORY says of a link.
  if (error == ELOOP || error == ENOTDIR) {
    if (const std::optional<std::string> link = FirstLink(path)) {
      return ErrnoStatus(ELOOP, operation, fmt::format("{} ({} is a link, and none is followed here)", path, *link));
    }
  }
  return ErrnoStatus(error, operation, path);
}

absl::StatusOr<Place> FindPlace(std::string_view operation, const std::string& path) {
  auto [folder, name] = Split(path);
  UniqueFd fd(OpenFolder(folder));
  if (!fd.valid()) return PathStatus(errno, operation, path);
  return Place{std::move(fd), std::move(name)};
}

absl::StatusOr<UniqueFd> OpenWithoutLinks(std::string_view operation, const std::string& path, int flags) {
  absl::StatusOr<Place> place = FindPlace(operation, path);
  if (!place.ok()) return place.status();
  UniqueFd fd(RetryOnEintr(
      [&] { return openat(place->folder.get(), place->c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY); }));
  if (!fd.valid()) return PathStatus(errno, operation, path);
  return fd;
}

absl::StatusOr<UniqueFd> OpenRegularFile(std::string_view operation, const std::string& path, int flags) {
  absl::StatusOr<Place> place = FindPlace(operation, path);
  if (!place.ok()) return place.status();
  struct stat info;
  if (fstatat(place->folder.get(), place->c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return PathStatus(errno, operation, path);
  }
  if (S_ISLNK(info.st_mode)) return PathStatus(ELOOP, operation, path);
  if (absl::Status regular = CheckRegular(info.st_mode, operation, path); !regular.ok()) return regular;
  // Looked at again by who opens it: something else may have come into its place meanwhile.
  UniqueFd fd(RetryOnEintr([&] {
    return openat(place->folder.get(), place->c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  }));
  if (!fd.valid()) return PathStatus(errno, operation, path);
  return fd;
}

absl::Status CheckRegular(mode_t mode, std::string_view operation, std::string_view path) {
  if (S_ISREG(mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{} {}: {}, not a regular file", operation, path, TypeName(mode)));
}

int StatWithoutLinks(const char* path, struct stat* info) {
  const auto [folder, name] = Split(path);
  const UniqueFd fd(OpenFolder(folder));
  return fd.valid() ? fstatat(fd.get(), name.c_str(), info, AT_SYMLINK_NOFOLLOW) : -1;
}

std::string FollowLinks(const std::string& path) {
  // The longest front of it that is there, and what is not.
  std::string front = path.empty() ? "." : path;
  std::string rest;
  int dangling = 0;
  for (;;) {
    if (const UniqueFd direct(OpenFolder(front)); direct.valid()) return dangling == 0 ? path : front + rest;
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(front.c_str(), nullptr), &std::free);
    if (real != nullptr) return real.get() + rest;
    auto [folder, name] = Split(front);
    // A link may be there before what it leads to.
    if (std::optional<std::string> target = ReadLink(folder + "/" + name)) {
      if (++dangling > kDanglingLinksMax) return path;
      front = target->starts_with('/') ? *std::move(target) : folder + "/" + *target;
      continue;
    }
    if (folder == front || name == ".") return dangling == 0 ? path : front + rest;
    rest = "/" + name + rest;
    front = std::move(folder);
  }
}

std::string FollowLinksToFile(const std::string& path) {
  const auto [folder, name] = Split(path);
  const std::string followed = FollowLinks(folder);
  return followed == folder ? path : followed + "/" + name;
}

}  // namespace tidemark::storage
