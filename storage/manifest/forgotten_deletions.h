// Steps that were deleted, as their folders say, and that the manifest calls committed, for it has lost the end of its
// log since.

#ifndef TIDEMARK_STORAGE_MANIFEST_FORGOTTEN_DELETIONS_H_
#define TIDEMARK_STORAGE_MANIFEST_FORGOTTEN_DELETIONS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/reconciliation.h"
#include "storage/manifest/store.h"

namespace tidemark::storage {

// Lets go of them once more, by the rules of any deletion: what is pinned stays, and so does the latest. The mark of
// one that stays is removed, for a rebuild of the manifest would believe it. False: there is a mark that could not be;
// each opening looks at everything until it is gone.
absl::StatusOr<bool> SettleForgotten(FileSystem& files, Store& store,
                                     const std::vector<Reconciliation::Forgotten>& forgotten,
                                     const StoreOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_FORGOTTEN_DELETIONS_H_
