// Puts an attempt, or a file, out of the way, for a person to look at.

#ifndef TIDEMARK_STORAGE_STORE_QUARANTINE_H_
#define TIDEMARK_STORAGE_STORE_QUARANTINE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Moves the attempt from steps/ to quarantine/, which is made if need be, and syncs both. After an error the attempt is
// in one of the two, whole.
absl::Status MoveToQuarantine(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

// The same for anything in inbox/: `path`, which may have any name, gets one of its own in quarantine/. Returns the new
// path. Does not sync inbox/. kNotFound: there is nothing of that name.
absl::StatusOr<std::string> MoveFileToQuarantine(FileSystem& files, const StoreLayout& layout, const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_QUARANTINE_H_
