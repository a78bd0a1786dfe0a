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
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/io/held_names.h"
#include "storage/io/warn_once.h"
#include "storage/ranks/coordinator.h"
#include "storage/ranks/epoch_commits.h"
#include "storage/ranks/participant.h"
#include "storage/ranks/rank_board.h"
#include "storage/store/attempt_sink.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

struct RankedAttemptsOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // From BeginAttempt on: when the coordinator gives up waiting for votes, and how much longer than that the others
  // wait for the outcome. Each rank counts from its own call, so the margin must be more than the ranks are apart.
  absl::Duration vote_timeout = absl::Minutes(10);
  absl::Duration outcome_margin = absl::Minutes(1);
  // Of rank 0, on the thread that saves: asked before the commit, when every rank has voted yes. An error is why the
  // step is not committed. Null: nothing is asked.
  std::function<absl::Status(const StepRecord& merged)> check = nullptr;
  std::function<void(std::string_view)> warn;  // the thread that saves; not null
};

// Thread-compatible: one save at a time. Calls block while they wait for other ranks, within the deadlines, unless the
// file system itself does not answer.
class RankedAttempts final : public AttemptSink {
 public:
  // Of rank 0, whose process holds the store; once for each Store. `files` and `holder` are not owned. Removes what
  // ranks of earlier sessions have stated. Errors: those of FileSystem and of Store::CheckHolds; kInvalidArgument: the
  // options are not those of rank 0.
  static absl::StatusOr<std::unique_ptr<RankedAttempts>> OpenCoordinator(FileSystem& files, Store& holder,
                                                                         RankedAttemptsOptions options);

  // Of any other rank. `held`: Store::Held, handed over by the job's own means. Errors: EpochCommits::Open's. A store
  // that the ranks do not share gives kNotFound or kOutOfRange. kFailedPrecondition: RankBoard::Open's.
  // kInvalidArgument: the options have no such rank.
  static absl::StatusOr<std::unique_ptr<RankedAttempts>> OpenParticipant(FileSystem& files, const StoreLayout& layout,
                                                                         const HeldStore& held,
                                                                         RankedAttemptsOptions options);

  // Errors:
  // - kAborted: this rank can have no part in it, and the others are told so.
  // - kFailedPrecondition: the attempt before has not ended; or the store was moved or replaced.
  // - kInvalidArgument: the step is beyond kRankedStepMax, or was saved too often in this session.
  absl::StatusOr<ShardIdentity> BeginAttempt(int64_t step, const Digest128& structure = {}) override;
  static constexpr int64_t kRankedStepMax = (int64_t{1} << 47) - 2;

  // `record` has this rank's shard, whose bytes are synced. Syncs its folders, votes, and waits for the outcome. When
  // this returns ok, the whole step survives power loss. `phases`: of rank 0; may be null. Errors:
  // - kAborted: the step never will be committed; the message names the rank, and why. Rank 0 removes the attempt's
  //   files, another rank its shard, as far as they can.
  // - kUnknown: the deadline has passed, or it is not known whether the commit's entry survives.
  // - kInternal: no such attempt is open.
  absl::Status CommitAttempt(const StepRecord& record, const PhasesRecord* phases = nullptr) override;

  std::vector<RankWait> RankWaits() const override { return rank_waits_; }

  // The job ends when `left` is over. The open attempt, and later ones, then end by that time, even if the options have
  // a later deadline. Rank 0 waits for votes until four fifths of the time are over, counted from this call, or from
  // the begin of a later attempt. Infinite: the job does not end. Thread-safe.
  void EndWithin(absl::Duration left);

  // This rank could not write its shard, for the reason `why`. The other ranks hear of it. Returns what is to be told
  // of the save, kAborted: the message has `why`, or what another rank has failed of before.
  absl::Status AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) override;

  bool Recycle(const ShardIdentity&) override { return false; }

 private:
  // From BeginAttempt on. The folders are open since before a name was made in them.
  struct Attempt {
    RankPart part;
    ShardIdentity identity;
    std::unique_ptr<Directory> steps;
    std::unique_ptr<Directory> folder;
    std::chrono::steady_clock::time_point begun;
    absl::Duration vote_timeout;
    absl::Duration deadline;  // of the participant
  };
  // What EndWithin said, and when.
  struct JobEnd {
    std::chrono::steady_clock::time_point said;
    std::chrono::steady_clock::time_point by;
  };
  // What rank 0 has read of a rank last: the attempt of its vote, and what it had refused by an earlier one.
  struct Heard {
    AttemptId voted_on;
    RankOutcomes refusals;
  };
  // A save that waits for its outcome.
  struct Waiting {
    explicit Waiting(const Attempt& of) : attempt(of), participant(of.part) {}
    const Attempt& attempt;
    Participant participant;
    std::optional<Coordinator> coordinator;  // of rank 0
    std::optional<std::chrono::steady_clock::time_point> listening;  // of rank 0: since its first look at the votes
    bool refusal_listed = false;
    bool vote_stated = false;
    bool outcome_listed = false;
    bool outcome_stated = false;
  };

  static constexpr double kVotePart = 0.8;

  RankedAttempts(FileSystem& files, const StoreLayout& layout, const HeldStore& held, Store* holder,
                 RankedAttemptsOptions options);

  absl::Status Open();
  absl::Status MakeFolder(Attempt& attempt) const;
  absl::StatusOr<Attempt> TakeOpen(int64_t step, std::string_view attempt);
  absl::Status SyncFolders(const Attempt& attempt) const;
  // Whether rank 0 stops waiting for votes.
  bool VotesAreDue(const Attempt& attempt) { return HasPassed(attempt, attempt.vote_timeout, kVotePart); }
  // Whether this rank stops waiting for the outcome.
  bool IsOver(const Attempt& attempt) { return HasPassed(attempt, attempt.deadline, 1); }
  // Whether `timeout` has passed since the attempt began, or this part of the time that the job had left.
  bool HasPassed(const Attempt& attempt, absl::Duration timeout, double part_of_rest);
  absl::Status GiveUp(const Attempt& attempt, absl::Time created, const absl::Status& why);
  // From the vote to the outcome.
  absl::Status Conclude(const Attempt& attempt, absl::StatusOr<StepRecord> record, absl::Time created,
                        const PhasesRecord* phases);
  void TakeTurn(Waiting& waiting, const PhasesRecord* phases);
  static bool HasEnded(const Waiting& waiting);
  void Coordinate(Waiting& waiting, const PhasesRecord* phases);
  void Collect(Waiting& waiting);
  void StateOutcome(Waiting& waiting);
  // Of rank 0: what the rank says of the attempt. A vote on another attempt may have taken the place of a no.
  void HearRank(const RankPart& own, uint32_t rank, Coordinator& coordinator);
  // Appends it to what this rank states, and drops the oldest of too many.
  static void List(const RankOutcome& outcome, RankOutcomes& list);
  absl::Status StateVote(Waiting& waiting);
  void Listen(Participant& participant);
  JournalSight SettleJournal(const Participant& participant);
  void RemoveFiles(const Attempt& attempt, absl::Time created, const absl::Status& why);
  void RemoveShard(const Attempt& attempt);
  void WarnOfRetry(std::string_view what, const absl::Status& status);

  FileSystem& files_;
  const StoreLayout layout_;
  const HeldStore held_;
  Store* const holder_;  // null but for rank 0
  const RankedAttemptsOptions options_;
  HeldNames names_;
  RankBoard board_;
  std::unique_ptr<EpochCommits> commits_;  // null for rank 0
  uint64_t sequence_;
  absl::Mutex mutex_;
  std::optional<JobEnd> job_end_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, uint64_t> saves_;  // of each step in this session
  std::optional<Attempt> open_;
  RankOutcomes outcomes_;                      // that rank 0 has decided
  RankOutcomes refusals_;                      // attempts on which this rank has voted no
  std::map<uint32_t, Heard> heard_;            // of rank 0, by rank
  std::vector<RankWait> rank_waits_;           // of rank 0
  WarnOnce warnings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_RANKED_ATTEMPTS_H_
