// One rank's saves in a job of several ranks: each writes its shard into the folder of a common attempt, and all of
// them are committed together or not at all. docs/ranks.md has the protocol.

#ifndef TIDEMARK_STORAGE_RANKS_RANKED_ATTEMPTS_H_
#define TIDEMARK_STORAGE_RANKS_RANKED_ATTEMPTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/ranks/commit_watch.h"
#include "storage/ranks/coordinator.h"
#include "storage/ranks/participant.h"
#include "storage/ranks/rank_board.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

struct RankedAttemptsOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Of what must be the same on all ranks; RankPart::structure.
  Digest128 structure;
  // From the beginning of an attempt on: when the coordinator gives up waiting for votes, and how much longer than that
  // the others wait for the outcome.
  absl::Duration vote_timeout = absl::Minutes(10);
  absl::Duration outcome_margin = absl::Minutes(1);
  std::function<void(std::string_view)> warn;  // the thread that saves; not null
};

// Thread-compatible: one save at a time. Calls block while they wait for other ranks, within the deadlines, unless the
// file system itself does not answer.
class RankedAttempts {
 public:
  // Of rank 0, whose process holds the store. `files` and `holder` are not owned. Removes what ranks of earlier
  // sessions have stated.
  static absl::StatusOr<std::unique_ptr<RankedAttempts>> OpenCoordinator(FileSystem& files, Store& holder,
                                                                         RankedAttemptsOptions options);

  // Of any other rank. `held`: Store::Held, handed over by the job's own means. Errors: CommitWatch::Open's. A store
  // that the ranks do not share gives kNotFound or kOutOfRange. kFailedPrecondition: RankBoard::Open's.
  static absl::StatusOr<std::unique_ptr<RankedAttempts>> OpenParticipant(FileSystem& files, const StoreLayout& layout,
                                                                         const HeldStore& held,
                                                                         RankedAttemptsOptions options);

  // Makes the attempt's folder, or finds that another rank has made it. Each attempt ends with CommitAttempt or
  // AbandonAttempt. After an error of the file system the others are told that this rank has no part in it.
  // kInvalidArgument: the step is beyond kRankedStepMax, or was saved too often in this epoch.
  absl::StatusOr<ShardIdentity> BeginAttempt(int64_t step);
  static constexpr int64_t kRankedStepMax = (int64_t{1} << 47) - 2;

  // `record` has this rank's shard, whose bytes are synced. Syncs its folders, votes, and waits for the outcome. When
  // this returns ok, the whole step survives power loss. `phases`: of rank 0; may be null. Errors:
  // - kAborted: the step never will be committed; the message names the rank, and why. Its files are removed.
  // - kUnknown: the deadline has passed, or it is not known whether the commit's entry survives.
  absl::Status CommitAttempt(const StepRecord& record, const PhasesRecord* phases = nullptr);

  // For attempts from now on, as RankedAttemptsOptions has them: a job that is about to be ended has less time.
  void SetTimeouts(absl::Duration vote_timeout, absl::Duration outcome_margin) {
    vote_timeout_ = vote_timeout;
    outcome_margin_ = outcome_margin;
  }

  // This rank could not write its shard. The other ranks hear of it. Returns what is to be told of the save: `why`; or
  // kAborted, if another rank has failed before this one did.
  absl::Status AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why);

 private:
  // From BeginAttempt on. The folders are open since before a name was made in them.
  struct Attempt {
    RankPart part;
    ShardIdentity identity;
    std::unique_ptr<Directory> steps;
    std::unique_ptr<Directory> folder;
    std::chrono::steady_clock::time_point begun;
  };

  RankedAttempts(FileSystem& files, const StoreLayout& layout, const HeldStore& held, Store* holder,
                 RankedAttemptsOptions options);

  absl::Status MakeFolder(Attempt& attempt) const;
  absl::StatusOr<Attempt> TakeOpen(int64_t step);
  absl::Status SyncFolders(const Attempt& attempt) const;
  absl::Status GiveUp(const Attempt& attempt, absl::Time created, const absl::Status& why);
  // From the vote to the outcome.
  absl::Status Conclude(const Attempt& attempt, absl::StatusOr<StepRecord> record, absl::Time created,
                        const PhasesRecord* phases);
  absl::Status Tell(const Attempt& attempt, const Participant& participant, absl::Time created);
  void Coordinate(const Attempt& attempt, Coordinator& coordinator, const PhasesRecord* phases);
  // Of rank 0: asks the store about the coordinator's commit. Returns whether that is known now.
  bool FindOut(Coordinator& coordinator, const StepFolder& folder);
  void StateOutcome(const RankOutcome& outcome);
  void Listen(Participant& participant);
  JournalSight SettleJournal(const Participant& participant);
  void RemoveFiles(const Attempt& attempt, absl::Time created, const absl::Status& why);
  void WarnOnce(std::string_view what, const absl::Status& status);

  FileSystem& files_;
  const StoreLayout layout_;
  const HeldStore held_;
  Store* const holder_;  // null but for rank 0
  const RankedAttemptsOptions options_;
  RankBoard board_;
  std::unique_ptr<CommitWatch> watch_;  // null for rank 0
  uint64_t sequence_;
  absl::Duration vote_timeout_;
  absl::Duration outcome_margin_;
  std::map<int64_t, uint64_t> saves_;  // of each step in this epoch
  std::optional<Attempt> open_;
  RankOutcomes outcomes_;  // that rank 0 has stated
  // Of rank 0: an attempt whose commit is unknown, until the store knows.
  struct Unsettled {
    Coordinator coordinator;
    StepFolder folder;
  };
  std::optional<Unsettled> unsettled_;
  bool warned_ = false;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_RANKED_ATTEMPTS_H_
