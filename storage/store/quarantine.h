// Puts an attempt out of the way, for a person to look at.

#ifndef TIDEMARK_STORAGE_STORE_QUARANTINE_H_
#define TIDEMARK_STORAGE_STORE_QUARANTINE_H_

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Moves the attempt from steps/ to quarantine/, which is made if need be, and syncs both. After an error the attempt is
// in one of the two, whole.
absl::Status MoveToQuarantine(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_QUARANTINE_H_
