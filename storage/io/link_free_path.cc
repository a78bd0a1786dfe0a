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

// Name by name, beginning at `from`. -1 and errno: the path does not lead to a directory, or has a link.
int WalkTo(int from, std::string_view path) {
  UniqueFd at(openat(from, path.starts_with('/') ? "/" : ".", kFolderFlags));
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

// `from`: where a relative path begins.
int OpenFolder(const std::string& path, int from = AT_FDCWD) {
  open_how how = {};
  how.flags = kFolderFlags;
  how.resolve = RESOLVE_NO_SYMLINKS;
  const auto fd =
      static_cast<int>(RetryOnEintr([&] { return syscall(SYS_openat2, from, path.c_str(), &how, sizeof(how)); }));
  // EPERM is what older container managers answer for what they do not know; O_PATH itself is never refused so. EAGAIN:
  // something was renamed on the way.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EAGAIN)) return fd;
  return WalkTo(from, path);
}

std::pair<std::string, std::string> Split(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/") return {"/", "."};
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", std::move(path)};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// The directory and the name. If there is no such directory, the descriptor is not valid, and errno is set.
std::pair<UniqueFd, std::string> Resolve(const std::string& path, const HeldDirectory* held) {
  const std::optional<std::string> below = held == nullptr ? std::nullopt : held->Below(path);
  if (below) {
    if (const int from = held->Find(); from >= 0) {
      auto [folder, name] = Split(*below);
      return {UniqueFd(OpenFolder(folder, from)), std::move(name)};
    }
    if (*below != ".") return {UniqueFd(), ""};
  }
  auto [folder, name] = Split(path);
  return {UniqueFd(OpenFolder(folder)), std::move(name)};
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
      return ErrnoStatus(ELOOP, operation,
                         fmt::format("{} ({} is a link, and links are not followed here)", path, *link));
    }
  }
  return ErrnoStatus(error, operation, path);
}

std::optional<std::string> HeldDirectory::Below(const std::string& path) const {
  if (!path.starts_with(path_)) return std::nullopt;
  size_t begin = path_.size();
  if (begin < path.size() && path[begin] != '/' && !path_.ends_with('/')) return std::nullopt;
  while (begin < path.size() && path[begin] == '/') ++begin;
  return begin == path.size() ? "." : path.substr(begin);
}

HeldDirectory::~HeldDirectory() { const UniqueFd held(fd_.load()); }

int HeldDirectory::Find() const {
  int found = fd_.load();
  if (found >= 0) return found;
  UniqueFd own(OpenFolder(path_));
  if (!own.valid()) return -1;
  // Of two threads that look for it at once, one wins.
  return fd_.compare_exchange_strong(found, own.get()) ? own.Release() : found;
}

absl::StatusOr<Place> FindPlace(std::string_view operation, const std::string& path, const HeldDirectory* held) {
  auto [fd, name] = Resolve(path, held);
  if (!fd.valid()) return PathStatus(errno, operation, path);
  return Place{std::move(fd), std::move(name)};
}

absl::StatusOr<UniqueFd> OpenWithoutLinks(std::string_view operation, const std::string& path, int flags,
                                          const HeldDirectory* held) {
  absl::StatusOr<Place> place = FindPlace(operation, path, held);
  if (!place.ok()) return place.status();
  UniqueFd fd(RetryOnEintr(
      [&] { return openat(place->folder.get(), place->c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY); }));
  if (!fd.valid()) return PathStatus(errno, operation, path);
  return fd;
}

absl::StatusOr<UniqueFd> OpenRegularFile(std::string_view operation, const std::string& path, int flags,
                                         const HeldDirectory* held) {
  absl::StatusOr<Place> place = FindPlace(operation, path, held);
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

int StatWithoutLinks(const std::string& path, struct stat* info, const HeldDirectory* held) {
  const auto [fd, name] = Resolve(path, held);
  return fd.valid() ? fstatat(fd.get(), name.c_str(), info, AT_SYMLINK_NOFOLLOW) : -1;
}

std::string AbsolutePath(std::string path) {
  if (path.empty() || path.starts_with('/')) return path;
  const std::unique_ptr<char, decltype(&std::free)> here(getcwd(nullptr, 0), &std::free);
  if (here == nullptr || here.get()[0] != '/') return path;
  while (path.starts_with("./")) path.erase(0, path.find_first_not_of('/', 1));
  const std::string front = here.get();
  if (path.empty() || path == ".") return front;
  return (front == "/" ? "" : front) + "/" + path;
}

std::string FollowLinks(const std::string& given) {
  const std::string path = AbsolutePath(given);
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
  return followed == folder ? path : (followed == "/" ? "" : followed) + "/" + name;
}

}  // namespace tidemark::storage
