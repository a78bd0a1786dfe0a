// Restore: from the shards of one attempt into a trainer's state.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_H_
#define TIDEMARK_SNAPSHOT_RESTORE_H_

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/manifest_records.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/shard_reader.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// Where to restore from. Not owned.
struct RestoreSource {
  storage::FileSystem& files;
  const storage::StoreLayout& layout;
  const storage::StoreId& store;
  const storage::ShardReadOptions& read;
};

// Fills `state` from the attempt that `record` names. kInvalidArgument: it does not fit, nothing was touched.
// kDataLoss, kNotFound: the attempt is damaged or gone; tensors of the state may hold parts of it, values do not.
absl::StatusOr<RestoreReport> RestoreAttempt(const RestoreSource& source, const storage::StepRecord& record,
                                             State& state, const RestoreOptions& options);

// The attempt that `record` names, held against what was recorded when it was committed: kDataLoss if another shard
// lies in its place.
absl::StatusOr<storage::Attempt> OpenRecorded(const RestoreSource& source, const storage::StepRecord& record);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_H_
