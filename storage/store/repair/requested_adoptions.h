// The steps that a person asks a repair to commit (adoption.h). A part of a repair (repair.h).

#ifndef TIDEMARK_STORAGE_STORE_REPAIR_REQUESTED_ADOPTIONS_H_
#define TIDEMARK_STORAGE_STORE_REPAIR_REQUESTED_ADOPTIONS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/store/attempt_verify.h"
#include "storage/store/repair/adoption.h"
#include "storage/store/repair/repair.h"
#include "storage/store/repair/store_change.h"
#include "storage/store/store.h"

namespace tidemark::storage {

// Used once, by one thread: List, Verify, Adopt, in this order. All errors name the step: kInvalidArgument where
// nothing of it is there; those of FindAdoptables, VerifyAdoptable and CommitCopyOf; kCancelled, see RepairOptions.
class RequestedAdoptions {
 public:
  // `options`, `progress` and `tell` outlive this. `progress` grows by what is read and copied.
  RequestedAdoptions(FileSystem& files, const RepairOptions& options, AdoptionMode mode, RepairProgress& progress,
                     const OnStoreChange& tell)
      : files_(files), options_(options), mode_(mode), progress_(progress), tell_(tell) {}

  // Before anything is read that takes hours: finds an attempt for each step that is not committed.
  absl::Status List(const Store& store);
  // Before the first change, so that all of the steps are adopted or none: keeps of each step the newest attempt of
  // which every byte is sound.
  absl::Status Verify(const Store& store);
  // Whether one of those has chunks in the files of this attempt.
  bool ReferTo(const AttemptId& attempt) const;
  // Commits the steps that are not committed now, and takes them out of what the report calls lost.
  absl::Status Adopt(Store& store, RepairReport& report);

 private:
  AttemptVerifyOptions Options(int64_t step);

  FileSystem& files_;
  const RepairOptions& options_;
  const AdoptionMode mode_;
  RepairProgress& progress_;
  const OnStoreChange& tell_;
  std::map<int64_t, std::vector<Adoptable>> found_;  // by step; the newest first
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REPAIR_REQUESTED_ADOPTIONS_H_
