// Which store a directory is, or whether it is one at all. Looks only: nothing on disk changes.

#ifndef TIDEMARK_STORAGE_STORE_IDENTITY_RECOVERY_H_
#define TIDEMARK_STORAGE_STORE_IDENTITY_RECOVERY_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

struct FoundIdentity {
  std::optional<StoreId> id;  // nullopt: the directory is as good as empty, and a store may be made in it
  absl::Status written;       // ok: store.json says the id. kNotFound, kDataLoss: the contents do
  int format = 0;             // as store.json says it; 0: it does not
};

// store.json is asked first; if it is missing or damaged, the index, the manifest of the first format, then the shards.
// kFailedPrecondition: there is no store.json, and something is there that no store says is its own, or the shards
// disagree. kDataLoss: store.json is damaged and nothing else says the id. kUnimplemented: the store is newer. Any
// other error: something could not be looked at.
absl::StatusOr<FoundIdentity> FindIdentity(FileSystem& files, const StoreLayout& layout);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_IDENTITY_RECOVERY_H_
