// Files that no step needs: those of attempts that were deleted or replaced, and those of attempts that were never
// committed. What is garbage follows from the journal; nothing on the disk marks it.

#ifndef TIDEMARK_STORAGE_STORE_GARBAGE_H_
#define TIDEMARK_STORAGE_STORE_GARBAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/records/manifest_records.h"
#include "storage/records/step_catalog.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Attempts of the first format have random ids; so an epoch beyond this one is none.
inline constexpr uint64_t kEpochMax = uint64_t{1} << 48;

// Whether the step with this record has the attempt, and may have its files.
bool IsAttemptOf(const std::optional<StepRecord>& record, const AttemptId& attempt);

// Before the first attempt of `epoch`. kDataLoss: an attempt in steps/ that no step has is of that epoch or a later
// one, so the journal that gave the epoch out has lost entries.
absl::Status CheckEpochs(FileSystem& files, const StoreLayout& layout, const StepCatalog& catalog, uint64_t epoch);

struct RemovedGarbage {
  std::vector<AttemptId> removed;  // their files are gone, and that is synced
  bool more = false;               // there are others that can be removed
};

// Removes the files of the catalog's garbage (StepCatalog::Deletions), but for those that a step refers to, that are in
// `in_use` or leased, and what these refer to. It finds out what no step refers to any more, then what is leased: so no
// reader is overlooked that took a lease and then found the step committed.
//
// Removes the files of `removals_max` attempts at most, the newest first. Files that cannot be removed are warned of
// and do not count; the next call tries again. The deletions must be established: a reader that looks from now on must
// find them.
absl::StatusOr<RemovedGarbage> RemoveGarbage(FileSystem& files, const StoreLayout& layout, const StepCatalog& catalog,
                                             const std::set<AttemptId>& in_use, size_t removals_max,
                                             const std::function<void(std::string_view)>& warn);

// Removes the attempts of epochs before `epoch`, and of the first format, that no record names: their saves were cut
// short, or failed. Final: what was not committed when `epoch` began never will be. So the call may come late. `tell`
// hears of each.
//
// Attempts that a step refers to, that are in `in_use` or that are leased stay, with what these refer to, and so do
// deletions, which are RemoveGarbage's.
// Names in steps/ that are no attempts stay, with a warning; so do attempts with a shard of another store or of a newer
// version.
absl::Status SweepUncommitted(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                              const StepCatalog& catalog, uint64_t epoch, const std::set<AttemptId>& in_use,
                              const std::function<void(const StepFolder&)>& tell,
                              const std::function<void(std::string_view)>& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_GARBAGE_H_
