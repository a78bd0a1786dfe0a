// Paths that no link can lead astray. What a store is made of may come from anybody; a link among it must not lead to a
// file elsewhere, be it the last name of a path or one before it.
//
// The kernel is asked to refuse every link on the way (openat2, RESOLVE_NO_SYMLINKS). Where it has no openat2 the same
// is done name by name. The links that a user's own path to the store goes through are taken out of it first, once.
// Names in a HeldDirectory are looked up from its descriptor. RESOLVE_BENEATH is not needed: the names in a store are
// made from numbers, so no name is "..", and without links a path cannot leave its directory.

#ifndef TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_
#define TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark::storage {

// A name in a directory, for the system calls that take both. The name may be there or not, and be a link.
struct Place {
  UniqueFd folder;  // O_PATH: good for naming, not for reading
  std::string name;
  const char* c_str() const { return name.c_str(); }
};

// A directory that stays the same one when its path changes. Thread-safe; without a mutex, which a forked child could
// inherit locked.
class HeldDirectory {
 public:
  // Does not look for it yet. `path`: absolute, without links.
  explicit HeldDirectory(std::string path) : path_(std::move(path)) {}
  ~HeldDirectory();
  HeldDirectory(const HeldDirectory&) = delete;
  HeldDirectory& operator=(const HeldDirectory&) = delete;

  // The relative path from the directory to `path`, which begins with the directory's own; "." for itself. nullopt:
  // `path` begins otherwise.
  std::optional<std::string> Below(const std::string& path) const;

  // The descriptor (O_PATH) of the directory that had the path at the first call that found one. Until then -1, and
  // errno.
  int Find() const;

 private:
  const std::string path_;
  mutable std::atomic<int> fd_{-1};  // owned; does not change once it is valid
};

// In the functions below, `held` may be null. If it is not, names in that directory are looked up from its descriptor.
// Other names are looked up as with null; so is the directory itself until it exists.

// ErrnoStatus. Where the path was refused for a link on it: ELOOP, and which of its names that is.
absl::Status PathStatus(int error, std::string_view operation, const std::string& path);

// Where `path` leads. Slashes at its end do not count. Errors as open(2) has them, with `operation`: kNotFound where a
// directory on the way is missing, kFailedPrecondition (ELOOP) where there is a link in its place.
absl::StatusOr<Place> FindPlace(std::string_view operation, const std::string& path,
                                const HeldDirectory* held = nullptr);

// open(2) without O_CREAT, and in no case through a link.
absl::StatusOr<UniqueFd> OpenWithoutLinks(std::string_view operation, const std::string& path, int flags,
                                          const HeldDirectory* held = nullptr);

// The same for what must be a regular file: anything else is kFailedPrecondition and, since opening alone can do
// something to a device, is not even opened. Does not wait for a fifo's writer; the descriptor has O_NONBLOCK.
absl::StatusOr<UniqueFd> OpenRegularFile(std::string_view operation, const std::string& path, int flags,
                                         const HeldDirectory* held = nullptr);

// kFailedPrecondition, "`operation` `path`: a fifo, not a regular file", unless the mode is that of one.
absl::Status CheckRegular(mode_t mode, std::string_view operation, std::string_view path);

// lstat(2), and in no case through a link.
int StatWithoutLinks(const std::string& path, struct stat* info, const HeldDirectory* held = nullptr);

// The absolute path, so that a later change of the current directory does not change its meaning. If the current
// directory has been removed, a relative path is returned as it is.
std::string AbsolutePath(std::string path);

// The absolute path of a directory, with links resolved, even if there is no directory there. A path without links
// stays as it is. Use it for paths that a user names, not for paths within a store.
std::string FollowLinks(const std::string& path);

// The same for a file: a link of its own name stays in the path.
std::string FollowLinksToFile(const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_
