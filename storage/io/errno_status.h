// errno, as a Status that says what was tried on which file.

#ifndef TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_
#define TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace tidemark::storage {

// "write 512 bytes at 4096 to run/ckpt/x.tmk: No space left on device (ENOSPC)", where all before the path is
// `operation`. `error` is not 0.
absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_ERRNO_STATUS_H_
