// Deletion marks: deleted.json in the folder of an attempt that was deleted, but whose files stay for a while. The
// manifest's mark says that they are to go; this one says it too, so that a rebuild from the folders does not take the
// step for a committed one, and an opening knows it again where the manifest has lost it. Its note is why.

#ifndef TIDEMARK_STORAGE_MANIFEST_DELETION_MARK_H_
#define TIDEMARK_STORAGE_MANIFEST_DELETION_MARK_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"

namespace tidemark::storage {

// When this returns ok the mark survives power loss. After an error it is there or not. Of a reason that is too long it
// takes the beginning.
absl::Status WriteDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder,
                               std::string_view reason);

// Where it is, or would be.
std::string DeletionMarkPath(const StoreLayout& layout, const StepFolder& folder);

// When this returns ok power loss does not bring the mark back. Ok where there is none.
absl::Status RemoveDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

// Costs one look at the folder.
absl::StatusOr<bool> HasDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

// The reason, empty where it cannot be read or understood; nullopt: there is no mark.
absl::StatusOr<std::optional<std::string>> ReadDeletionMark(FileSystem& files, const StoreLayout& layout,
                                                            const StepFolder& folder);

// Removes the attempt's folder, if it is there. The mark goes once nothing else in it can come back: a crash that left
// a shard without it would leave what a rebuild takes for a committed step. Whoever calls syncs steps/.
absl::Status RemoveAttempt(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_DELETION_MARK_H_
