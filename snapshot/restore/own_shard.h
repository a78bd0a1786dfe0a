// The shard that a rank wrote itself, as all that it reads when the job is restarted with as many ranks: a job of
// 10,000 ranks would else read the indices of 10,000 shards on each of them.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_
#define TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_

#include "absl/status/statusor.h"
#include "snapshot/restore/restore.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/shard_format.h"
#include "storage/store/attempt_reader.h"
#include "tidemark/state.h"

namespace tidemark {

// The shard of the rank source.ranks->rank, held against what was recorded when the step was committed, as an attempt
// that has no other. Errors: those of ReadShard; kDataLoss: another one lies in its place; kNotFound: the record has
// none of that rank. Precondition: source.ranks is not null.
absl::StatusOr<storage::Attempt> OpenOwnShard(const RestoreSource& source, const storage::StepRecord& record);

// Whether the state has entries of the same names as the shard, and of each tensor the same boxes of the same shape. A
// state that has more would take these from other ranks; one that has less was another rank's.
bool HasJustTheseEntries(const State& state, const storage::ShardIndex& index);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_
