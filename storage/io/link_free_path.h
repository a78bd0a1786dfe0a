// Paths that no link can lead astray. What a store is made of may come from anybody; a link among it must not lead to a
// file elsewhere, be it the last name of a path or one before it.
//
// The kernel is asked to refuse every link on the way (openat2, RESOLVE_NO_SYMLINKS), and not to stay beneath a
// directory that is held open (RESOLVE_BENEATH): the names behind the store's own directory are made from numbers, so
// none of them is "..", and without links a path cannot leave what it names. Where the kernel has no openat2 the same
// is done name by name. The links that a user's own path to the store goes through are taken out of it first, once.

#ifndef TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_
#define TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark::storage {

// A name in a directory, for the system calls that take both. The name may be there or not, and be a link.
struct Place {
  UniqueFd folder;  // O_PATH: good for naming, not for reading
  std::string name;
  const char* c_str() const { return name.c_str(); }
};

// ErrnoStatus. Where the path was refused for a link on it: ELOOP, and which of its names that is.
absl::Status PathStatus(int error, std::string_view operation, const std::string& path);

// Where `path` leads. Slashes at its end do not count. Errors as open(2) has them, with `operation`: kNotFound where a
// directory on the way is missing, kFailedPrecondition (ELOOP) where there is a link in its place.
absl::StatusOr<Place> FindPlace(std::string_view operation, const std::string& path);

// open(2) without O_CREAT, and in no case through a link.
absl::StatusOr<UniqueFd> OpenWithoutLinks(std::string_view operation, const std::string& path, int flags);

// The same for what must be a regular file: anything else is kFailedPrecondition and, since opening alone can do
// something to a device, is not even opened. Does not wait for a fifo's writer; the descriptor has O_NONBLOCK.
absl::StatusOr<UniqueFd> OpenRegularFile(std::string_view operation, const std::string& path, int flags);

// kFailedPrecondition, "`operation` `path`: a fifo, not a regular file", unless the mode is that of one.
absl::Status CheckRegular(mode_t mode, std::string_view operation, std::string_view path);

// lstat(2), and in no case through a link.
int StatWithoutLinks(const char* path, struct stat* info);

// The path of a directory itself, if there is no link on it; else where it leads to, be it there or not. For paths that
// a user names and not for any that a store is made of.
std::string FollowLinks(const std::string& path);

// The same for a file: a link of its own name stays in the path.
std::string FollowLinksToFile(const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_LINK_FREE_PATH_H_
