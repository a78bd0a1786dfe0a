#include "storage/ranks/participant.h"

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/check.h"

namespace tidemark::storage {

Participant::Step Participant::Written(absl::StatusOr<StepRecord> record) {
  Check(step_ == Step::kWrite, "an answer to a writing that was not asked for");
  vote_.yes = record.ok();
  if (record.ok()) {
    vote_.record = *std::move(record);
  } else {
    vote_.reason = record.status().ToString();
  }
  return step_ = Step::kVote;
}

Participant::Step Participant::Voted() {
  Check(step_ == Step::kVote, "an answer to a vote that was not asked for");
  if (!vote_.yes) return End(Result::kAborted, fmt::format("rank {}: {}", vote_.part.rank, vote_.reason));
  return step_ = Step::kWait;
}

Participant::Step Participant::Settled(const JournalSight& sight) {
  Check(step_ == Step::kSettle, "an answer to a settling that was not asked for");
  if (Look(sight) == Step::kNone) return step_;
  return End(Result::kUnknown, "the deadline has passed, and the journal does not say whether the step is committed");
}

Participant::Step Participant::Hear(const RankOutcome& outcome) {
  if (step_ == Step::kNone || outcome.attempt != vote_.part.attempt) return step_;
  return outcome.committed ? End(Result::kCommitted) : End(Result::kAborted, outcome.reason);
}

Participant::Step Participant::Look(const JournalSight& sight) {
  if (step_ == Step::kNone) return step_;
  if (sight.committed) return End(Result::kCommitted);
  const uint64_t epoch = EpochOf(vote_.part.attempt);
  if (sight.epoch <= epoch) return step_;
  return End(Result::kAborted,
             fmt::format("another process has opened the store for writing since: its epoch is {}, the attempt's is {}",
                         sight.epoch, epoch));
}

Participant::Step Participant::Expire() {
  switch (step_) {
    case Step::kWrite:
      return Written(absl::DeadlineExceededError("the shard was not durable at the deadline"));
    case Step::kVote:  // a yes may have been heard
      return vote_.yes ? step_ = Step::kSettle : step_;
    case Step::kWait:
      return step_ = Step::kSettle;
    case Step::kSettle:
    case Step::kNone:
      return step_;
  }
  return step_;
}

Participant::Step Participant::End(Result result, std::string reason) {
  result_ = result;
  reason_ = std::move(reason);
  return step_ = Step::kNone;
}

}  // namespace tidemark::storage
