// Retention at work: plans, marks, deletes. Record first, then files, then record: it resumes after a kill, and a
// reader's lease that comes in between keeps the files until it ends.

#ifndef TIDEMARK_STORAGE_MANIFEST_RETENTION_H_
#define TIDEMARK_STORAGE_MANIFEST_RETENTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/manifest/lease.h"
#include "storage/manifest/retention_plan.h"
#include "storage/manifest/store.h"

namespace tidemark::storage {

// Thread-compatible: owned by the thread that keeps house. Refers to what it is made with.
class Retention {
 public:
  Retention(FileSystem& files, Store& store, RetentionOptions options, std::function<void(std::string_view)> warn);

  // What Apply would do, with `claims` of this process beside the leases of others.
  absl::StatusOr<std::vector<RetentionDecision>> Plan(const Claims& claims);

  // Marks what the plan lets go as deleted, with the reason, notes on the others why they stay, all in one synced
  // batch, and removes the files that nobody refers to or reads. Returns what was marked. Files that cannot be removed
  // keep their mark, with a warning, and the next call tries again.
  absl::StatusOr<std::vector<RetentionDecision>> Apply(const Claims& claims);

 private:
  FileSystem& files_;
  Store& store_;
  const RetentionOptions options_;
  const std::function<void(std::string_view)> warn_;
  LeaseObserver leases_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_RETENTION_H_
