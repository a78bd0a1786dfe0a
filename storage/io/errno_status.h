// errno, as a Status that says what was tried on which file.

#ifndef TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_
#define TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_

#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace tidemark::storage {

// "write 512 bytes at 4096 to run/ckpt/x.tmk: No space left on device (ENOSPC)", where all before the path is
// `operation`. `error` is not 0.
absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path);

// The code that ErrnoStatus gave a message which ends with its words; nullopt: it ends with something else. For
// messages that went through a library which has other codes.
std::optional<absl::StatusCode> ErrnoCodeOf(std::string_view message);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_
