// Adoption: a save is cut short where its process is killed, or its disk fails, before the journal has the step. If all
// of its files are there even so, a person may ask that the step be committed. A part of a repair (repair.h).

#ifndef TIDEMARK_STORAGE_STORE_REPAIR_ADOPTION_H_
#define TIDEMARK_STORAGE_STORE_REPAIR_ADOPTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/records/manifest_records.h"
#include "storage/records/step_catalog.h"
#include "storage/store/attempt_verify.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// An attempt that was never committed, and whose shards are all there.
struct Adoptable {
  StepFolder folder;
  StepRecord record;  // as its shards tell it
};

// Those at the step, the newest first, as headers, footers and indices tell; chunks are not read. kNotFound: there is
// no attempt at it that was never committed. kDataLoss: none of them has all its shards, or headers and indices are
// damaged; kFailedPrecondition, kUnimplemented: they belong to another store, or to a newer version. The message says
// what is wrong with the newest. Any other error is the disk's.
absl::StatusOr<std::vector<Adoptable>> FindAdoptables(FileSystem& files, const StoreLayout& layout,
                                                      const StoreId& store, const StepCatalog& catalog, int64_t step);

// Reads every byte of the attempt and of what it refers to. kDataLoss: one is damaged, or it refers to an attempt that
// no step has or refers to, which a sweep may remove at any time. kCancelled: see AttemptVerifyOptions.
absl::Status VerifyAdoptable(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                             const StepCatalog& catalog, const Adoptable& found, const AttemptVerifyOptions& options);

// How the new attempt gets its shards. On a file system that keeps changes in memory, links take none.
enum class AdoptionMode { kCopy, kLink };

// Copies the shards into a new attempt, verifies every byte of the copies and commits that attempt. The one that was
// found stays for the sweep. `options.progress` is told of copied bytes, too. Precondition: VerifyAdoptable has found it
// sound. Errors: kDataLoss, kCancelled, the disk's: nothing is committed, and nothing of the copy is left, if it can be
// removed; those of Store::CommitAttempt.
absl::Status CommitCopyOf(FileSystem& files, Store& store, const Adoptable& found, AdoptionMode mode,
                          const AttemptVerifyOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REPAIR_ADOPTION_H_
