// AttemptSink: where saves are written to and committed. A Store is one for a job of one process, RankedAttempts
// (storage/ranks) for one rank of a job of several.

#ifndef TIDEMARK_STORAGE_STORE_ATTEMPT_SINK_H_
#define TIDEMARK_STORAGE_STORE_ATTEMPT_SINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// That this process waited for the vote of another rank.
struct RankWait {
  uint32_t rank = 0;
  std::chrono::steady_clock::time_point begin;  // when it had voted itself
  std::chrono::steady_clock::time_point end;    // when it read the other's vote; late by the pause between two looks
};

// Attempts go one after the other: BeginAttempt, then CommitAttempt or AbandonAttempt.
class AttemptSink {
 public:
  virtual ~AttemptSink() = default;

  // Makes the folder of a new attempt at the step, or finds that another rank has made it. `structure`: as RankPart has
  // it; a Store does not look at it.
  virtual absl::StatusOr<ShardIdentity> BeginAttempt(int64_t step, const Digest128& structure) = 0;

  // Whether the attempt's shard is there already, as a file that was retired and can be written over; see
  // retired_shard.h. Between BeginAttempt and writing the shard.
  virtual bool Recycle(const ShardIdentity& identity) = 0;

  // Syncs the folders and commits `record`, whose shards have been synced: when this returns ok, the step survives
  // power loss. kUnknown: the step may or may not be committed. `phases`: what is known by now of the save's; may be
  // null.
  virtual absl::Status CommitAttempt(const StepRecord& record, const PhasesRecord* phases) = 0;

  // The ranks that the latest CommitAttempt waited for, by the end; at most kRankWaitsMax, the longest. Empty but for
  // rank 0 of several. On the thread that commits.
  static constexpr size_t kRankWaitsMax = 8;
  virtual std::vector<RankWait> RankWaits() const { return {}; }

  // The attempt has failed for the reason `why`. Removes what there is of it, and records the failure. Best effort.
  // Returns what is to be told of the save, which is an error.
  virtual absl::Status AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_ATTEMPT_SINK_H_
