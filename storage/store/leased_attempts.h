// The attempts that somebody may be reading, as far as names tell.

#ifndef TIDEMARK_STORAGE_STORE_LEASED_ATTEMPTS_H_
#define TIDEMARK_STORAGE_STORE_LEASED_ATTEMPTS_H_

#include <set>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Of every lease in leases/, whether its holder lives or not: to tell a dead one apart takes time and a look at its
// lock, and where files are about to be removed the cautious answer is the right one. Whoever watches leases removes
// dead ones; see lease.h. What is no regular file, or has another name than a lease, is passed over, here as there:
// nobody would ever remove it. Empty if there is no such folder.
absl::StatusOr<std::set<AttemptId>> LeasedAttempts(FileSystem& files, const StoreLayout& layout);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_LEASED_ATTEMPTS_H_
