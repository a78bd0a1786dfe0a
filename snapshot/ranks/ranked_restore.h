// A restore of all ranks of a job: rank 0 chooses a step, every rank restores from it, and if one of them finds it
// damaged all go on to the next one. So they end with the same step, or with the same error.

#ifndef TIDEMARK_SNAPSHOT_RANKS_RANKED_RESTORE_H_
#define TIDEMARK_SNAPSHOT_RANKS_RANKED_RESTORE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/ranks/rank_exchange.h"
#include "snapshot/restore/restore.h"
#include "storage/records/manifest_records.h"
#include "tidemark/restore_options.h"

namespace tidemark {

// Fills this rank's state from the record's attempt.
using RestoreHere = absl::FunctionRef<RestoreResult(const storage::StepRecord& record)>;

// Of rank 0: has all ranks restore from the record. What is returned is what came of it on all of them: the worst cause
// counts, with the lowest rank that has it; the report is this rank's.
RestoreResult RestoreOnAllRanks(RankExchange& exchange, const storage::StepRecord& record, RestoreHere restore);

// Of rank 0, at the end of every restore: tells the others what came of it. Returns what all ranks return.
absl::StatusOr<RestoreReport> EndRestore(RankExchange& exchange, absl::StatusOr<RestoreReport> report);

// Of any other rank: restores what rank 0 says, until it says that the restore has ended. Calls `damage_seen` after each
// step that a rank could not read.
absl::StatusOr<RestoreReport> FollowRestore(RankExchange& exchange, RestoreHere restore,
                                            absl::FunctionRef<void()> damage_seen);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RANKS_RANKED_RESTORE_H_
