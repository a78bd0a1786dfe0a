#include "storage/io/errno_status.h"

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    // No room on the disk, no memory, or no descriptors. A person must free some; a later try may succeed.
    case ENOSPC:
    case EDQUOT:
    case EMLINK:  // of a directory: subdirectories
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    // The caller named the wrong kind of thing.
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENXIO:
    case EXDEV:  // a part of the store is mounted there
      return absl::StatusCode::kFailedPrecondition;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case EOPNOTSUPP:
    case ENOSYS:
      return absl::StatusCode::kUnimplemented;
    case EAGAIN:
    case EBUSY:
    case ETIMEDOUT:
      return absl::StatusCode::kUnavailable;
    case ECANCELED:
      return absl::StatusCode::kCancelled;
    // EIO and what nobody expected: the device failed; it says nothing about bytes that were read before.
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path) {
  const char* name = strerrorname_np(error);
  return absl::Status(CodeOf(error), fmt::format("{} {}: {} ({})", operation, path,
                                                 strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error",
                                                 name ? name : fmt::format("errno {}", error)));
}

std::optional<absl::StatusCode> ErrnoCodeOf(std::string_view message) {
  constexpr int kErrnoMax = 133;  // EHWPOISON
  for (int error = 1; error <= kErrnoMax; ++error) {
    const char* name = strerrorname_np(error);
    if (name != nullptr && message.ends_with(fmt::format("({})", name))) return CodeOf(error);
  }
  return std::nullopt;
}

}  // namespace tidemark::storage
