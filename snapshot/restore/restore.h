// Restore: from the shards of one attempt into a trainer's state.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_RESTORE_H_
#define TIDEMARK_SNAPSHOT_RESTORE_RESTORE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store_layout.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/companion.h"

namespace tidemark {

// Entries that cannot be decoded into their place pass through memory of our own, this many bytes at a time or one
// entry: neither a state on a device nor a snapshot that is converted is ever doubled on the host.
inline constexpr uint64_t kBounceBytesMax = 256 << 20;

// Where to restore from. Not owned.
struct RestoreSource {
  storage::FileSystem& files;
  const storage::StoreLayout& layout;
  const storage::StoreId& store;
  const storage::ShardReadOptions& read;
  std::span<const std::shared_ptr<Companion>> companions;  // restored with the state
  const RankOptions* ranks = nullptr;                      // of the job that restores; null: it has one process
};

// What came of trying one attempt.
struct RestoreResult {
  enum class Cause {
    kNone,        // it was restored
    kCheckpoint,  // its files are damaged, gone or not what was committed
    kDevice,      // they could not be read; nothing is known about them
    kState,       // it does not fit, or the state refused it
  };
  absl::Status status;
  Cause cause = Cause::kNone;
  RestoreReport report;  // if ok
  // Tensors of the state that were written, or may have been where it failed. Values change only when it is ok. Without
  // those of companions, whose present entries do not outlive a restore in any case.
  std::vector<std::string> written;
  std::vector<std::string> values;  // of the state, that were set
  // In a job of several ranks: another one has failed, and not this one.
  bool is_of_other_rank = false;
  std::vector<std::string> reset;  // prefixes of companions of which the attempt has nothing
};

// Fills `state`, and the companions, from the attempt that `record` names. Whatever does not fit is found before
// anything is written.
//
// A rank of a job of as many ranks as have saved the step reads its own shard only, if its state has just the entries
// and boxes that it saved there, and none of them was left to another rank to write. Else all shards are opened.
RestoreResult RestoreAttempt(const RestoreSource& source, const storage::StepRecord& record, State& state,
                             const RestoreOptions& options);

// The attempt that `record` names, held against what was recorded when it was committed: kDataLoss if another shard
// lies in its place.
absl::StatusOr<storage::Attempt> OpenRecorded(const RestoreSource& source, const storage::StepRecord& record);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_RESTORE_H_
