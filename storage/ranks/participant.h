// One rank's part in the commit of an attempt, as a state machine. docs/ranks.md has the protocol.
//
// The caller carries out each step and reports what came of it:
//   kWrite   open the attempt's folder and steps/, write the shard, sync it, and sync both folders through what was
//            opened. The descriptors are opened before a name is made, because the kernel reports a failed write-back
//            once, to those that were open
//   kVote    state vote()
//   kWait    hear outcomes and look at the journal, until the deadline
//   kSettle  append to the journal an entry without facts, and look at the journal
//   kNone    the caller is told result()
// A test shows that each of these rules is needed:
// - A yes needs every sync to have worked: the commit is an entry about shards that must outlive it.
// - Only statements about this very attempt are heard, because old ones stay readable.
// - Of the journal only established entries count. A commit that is only visible can be lost with the power, and a
//   newer epoch that is only visible may stand behind such a commit.
// - At the deadline the result is unknown unless the journal says more. Only the coordinator, and the end of its epoch,
//   make an attempt one that never will be committed.
//
// A rank that votes no is told at once that the attempt is aborted: without its yes there is no commit.
//
// Pure: no I/O, no clock, no thread.

#ifndef TIDEMARK_STORAGE_RANKS_PARTICIPANT_H_
#define TIDEMARK_STORAGE_RANKS_PARTICIPANT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/ranks/statements.h"

namespace tidemark::storage {

// What a look at the journal says, of established entries alone.
struct JournalSight {
  bool committed = false;  // the attempt's commit stands, and counts
  uint64_t epoch = 0;      // the newest one that has begun

  friend bool operator==(const JournalSight&, const JournalSight&) = default;
};

// Value type: a test that explores what ranks can do copies and compares it. Thread-compatible.
class Participant {
 public:
  enum class Step { kWrite, kVote, kWait, kSettle, kNone };
  enum class Result {
    kPending,
    kCommitted,
    kAborted,  // the attempt never will be committed: reason() says why
    kUnknown,  // the deadline has passed; it may be committed or not
  };

  explicit Participant(const RankPart& part) { vote_.part = part; }

  Step step() const { return step_; }
  const RankVote& vote() const { return vote_; }  // from kVote on
  Result result() const { return result_; }       // kPending until step() is kNone
  const std::string& reason() const { return reason_; }

  // The answers to the steps of these names. Each returns the next step. `record`: RankVote::record.
  Step Written(absl::StatusOr<StepRecord> record);
  Step Voted();  // whether or not it could be stated
  Step Settled(const JournalSight& sight);

  // May come at any time. Ignored where they say nothing of this attempt, or the result is known.
  Step Hear(const RankOutcome& outcome);
  Step Look(const JournalSight& sight);
  // The deadline has passed. In kWrite that is an answer, and the vote is no.
  Step Expire();

  template <typename H>
  friend H AbslHashValue(H h, const Participant& participant) {
    return H::combine(std::move(h), participant.step_, participant.vote_, participant.result_, participant.reason_);
  }

 private:
  Step End(Result result, std::string reason = {});

  Step step_ = Step::kWrite;
  RankVote vote_;
  Result result_ = Result::kPending;
  std::string reason_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_PARTICIPANT_H_
