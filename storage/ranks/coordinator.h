// Decides whether an attempt of several ranks is committed, as a state machine. docs/ranks.md has the protocol. It is
// in the process that holds the store.
//
// The caller carries out each step and reports what came of it:
//   kCollect  hear votes, until the deadline
//   kAppend   append the commit to the journal, in the attempt's epoch
//   kSettle   append an entry to the journal, until it is known whether the commit stands
//   kNone     state outcome()
// A test shows that each of these rules is needed:
// - Every rank must have voted yes, on this very attempt.
// - An abort is final before it is stated. It needs no entry in the journal: no other process can commit the attempt,
//   and its epoch ends with this process.
// - The commit is appended in its epoch, so it is refused where a newer one stands before it.
// - Committed is stated when the entry is established. While that is unknown, nothing is stated: the entry may be read
//   by others, and it may be lost.
//
// Pure: no I/O, no clock, no thread.

#ifndef TIDEMARK_STORAGE_RANKS_COORDINATOR_H_
#define TIDEMARK_STORAGE_RANKS_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/journal/appender.h"
#include "storage/ranks/statements.h"

namespace tidemark::storage {

// Value type: a test that explores what ranks can do copies and compares it. Thread-compatible.
class Coordinator {
 public:
  enum class Step { kCollect, kAppend, kSettle, kNone };

  // `part`: that of its own rank. What the other ranks say must agree with it.
  explicit Coordinator(const RankPart& part) : part_(part), votes_(part.world_size), elsewhere_(part.world_size) {}

  Step step() const { return step_; }
  const RankOutcome& outcome() const { return outcome_; }  // once step() is kNone

  // Whether the rank has voted yes.
  bool HasVoted(uint32_t rank) const { return votes_[rank].has_value(); }
  // In kAppend: the record that is to be committed.
  StepRecord Merged() const;

  // May come at any time. Ignored where it is about another session or attempt, or is not waited for any more.
  Step Hear(const RankVote& vote);
  // The deadline has passed.
  Step Expire();
  // The answer to kAppend. `result` is not kPending.
  Step Appended(Appender::Result result, const absl::Status& status);
  // An answer to kAppend: nothing was appended, because the shards do not make up a step.
  Step Refuse(const absl::Status& why);
  // The answer to kSettle, once it is known.
  Step Settled(bool committed);

  template <typename H>
  friend H AbslHashValue(H h, const Coordinator& coordinator) {
    for (const std::optional<RankVote>& vote : coordinator.votes_) {
      h = vote ? H::combine(std::move(h), true, *vote) : H::combine(std::move(h), false);
    }
    return H::combine(std::move(h), coordinator.part_, coordinator.step_, coordinator.outcome_);
  }

 private:
  Step Abort(std::string reason);
  Step Commit();

  RankPart part_;
  Step step_ = Step::kCollect;
  std::vector<std::optional<RankVote>> votes_;
  std::vector<std::optional<int64_t>> elsewhere_;  // the step of each rank's last vote on another attempt; for messages
  RankOutcome outcome_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_COORDINATOR_H_
