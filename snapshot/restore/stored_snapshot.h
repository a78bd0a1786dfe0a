// A snapshot that is read from a committed step.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STORED_SNAPSHOT_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STORED_SNAPSHOT_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "snapshot/restore/restore.h"
#include "storage/records/manifest_records.h"
#include "tidemark/evaluator.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// Whether entries of companions (tidemark/companion.h) are looked at: they are in the step, but were not in the
// snapshot that was saved.
enum class CompanionEntries {
  kNever,       // it is to be as it was in memory
  kByPatterns,  // where there are patterns, that they match; without patterns not
};

// Reads the entries whose names match a pattern, or all if there is none, from the attempt that `record` names, each
// chunk verified, into memory of their own; no chunk of another entry is looked at. Nothing of the source is used
// afterwards. The entries are in the order in which they were saved; metrics and metadata are what was given with the
// save. If the step was saved in parts (HasParts), the entries are the wholes (see EntryParts), metrics and metadata
// are the lowest rank's, and no entry is tied. With `half`, memory for a batch of the entries as they were is taken
// beside what the result needs.
//
// kInvalidArgument: a pattern matches no entry. kNotFound: a file is gone. kDataLoss: one is damaged, or is not what
// was committed. kResourceExhausted: no memory. Else: a device could not be read, and nothing is known of
// what is on it.
absl::StatusOr<std::shared_ptr<const Snapshot>> OpenStoredSnapshot(const RestoreSource& source,
                                                                   const storage::StepRecord& record,
                                                                   std::span<const std::string> patterns,
                                                                   HalfPrecision half, CompanionEntries companions);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STORED_SNAPSHOT_H_
