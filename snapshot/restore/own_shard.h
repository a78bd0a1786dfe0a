// The shard that a rank wrote itself, as all that it reads when the job is restarted with as many ranks: a job of
// 10,000 ranks would else read the indices of 10,000 shards on each of them.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_
#define TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_

#include "absl/status/statusor.h"
#include "snapshot/restore/restore.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/format/shard_format.h"
#include "storage/store/attempt_reader.h"
#include "tidemark/state.h"

namespace tidemark {

// The shard of the rank source.ranks->rank as an attempt that has no other. Errors: those of ReadShard; kNotFound also
// if the record has no attempt. Its header says that it is of this attempt and rank. It is not compared with the
// commit, whose digest is that of all ranks' shards together. Precondition: source.ranks is not null, and the
// rank is below the record's world size.
absl::StatusOr<storage::Attempt> OpenOwnShard(const RestoreSource& source, const storage::StepRecord& record);

// Whether the state has entries of the same names as the shard, and as many elements of each tensor, of the same shape.
// If the shard has every box of the state, too (SavedEntries::Check), then it has just what the state wants, in
// whatever boxes it is stored. A state that wants more would take that from other ranks; one that wants less was
// another rank's.
bool HasAsMuch(const State& state, const storage::ShardIndex& index);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_OWN_SHARD_H_
