#include "storage/ranks/ranked_attempts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/exception_status.h"

namespace tidemark::storage {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank waits between two looks at what others have stated. It begins short, since ranks save alike, and
// doubles, since a folder of a thousand votes is a thousand reads.
constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// Looks past the caches of a file server are made that often, since each makes and removes a file.
constexpr absl::Duration kFreshLookInterval = absl::Seconds(1);

// How long a rank that was told tries to state what others wait for, for example on a full disk.
constexpr absl::Duration kStatingTimeout = absl::Seconds(2);

// An attempt's ordinal is made of the step and of how often it was saved, so that a rank that misses a save agrees with
// the others about the next one. Steps count from 1 here, because a holder of one rank gives out small ordinals.
constexpr int kSavesBits = 16;
constexpr uint64_t kSavesMax = (uint64_t{1} << kSavesBits) - 1;

// Longer than any job. A time point so far from now does not overflow.
constexpr absl::Duration kForever = absl::Hours(24 * 365 * 100);

bool HasPassedSince(Clock::time_point since, absl::Duration duration) {
  return Clock::now() - since >= absl::ToChronoNanoseconds(duration);
}

Appender::Result ResultOf(const absl::Status& committed) {
  if (committed.ok()) return Appender::Result::kEstablished;
  return absl::IsUnknown(committed) ? Appender::Result::kUnknown : Appender::Result::kFailed;
}

}  // namespace

RankedAttempts::RankedAttempts(FileSystem& files, const StoreLayout& layout, const HeldStore& held, Store* holder,
                               RankedAttemptsOptions options)
    : files_(files),
      layout_(layout),
      held_(held),
      holder_(holder),
      options_(std::move(options)),
      names_(files, "the store " + layout.directory()),
      board_(files, layout, held.session, options_.rank),
      sequence_(held.sequence) {
  outcomes_.session = refusals_.session = held.session;
}

absl::Status RankedAttempts::Open() {
  const bool is_coordinator = holder_ != nullptr;
  if (options_.world_size > kWorldSizeMax || options_.rank >= options_.world_size ||
      is_coordinator != (options_.rank == 0)) {
    return absl::InvalidArgumentError(fmt::format(
        "rank {} of {} as {}: expected {}", options_.rank, options_.world_size,
        is_coordinator ? "the coordinator" : "a participant", is_coordinator ? "rank 0" : "a rank from 1 on"));
  }
  if (absl::Status status = names_.Add(layout_.directory()); !status.ok()) return status;
  if (absl::Status status = names_.Add(layout_.steps()); !status.ok()) return status;
  return board_.Open();
}

absl::StatusOr<std::unique_ptr<RankedAttempts>> RankedAttempts::OpenCoordinator(FileSystem& files, Store& holder,
                                                                                RankedAttemptsOptions options) {
  std::unique_ptr<RankedAttempts> attempts(
      new RankedAttempts(files, holder.layout(), holder.Held(), &holder, std::move(options)));
  // A newer holder's session is not an earlier one.
  if (absl::Status status = holder.CheckHolds(); !status.ok()) return status;
  if (absl::Status status = attempts->Open(); !status.ok()) return status;
  attempts->board_.RemoveOtherSessions();
  return attempts;
}

absl::StatusOr<std::unique_ptr<RankedAttempts>> RankedAttempts::OpenParticipant(FileSystem& files,
                                                                                const StoreLayout& layout,
                                                                                const HeldStore& held,
                                                                                RankedAttemptsOptions options) {
  std::unique_ptr<RankedAttempts> attempts(new RankedAttempts(files, layout, held, nullptr, std::move(options)));
  auto commits = EpochCommits::Open(files, layout, held);
  if (!commits.ok()) return commits.status();
  attempts->commits_ = *std::move(commits);
  if (absl::Status status = attempts->Open(); !status.ok()) return status;
  return attempts;
}

void RankedAttempts::EndWithin(absl::Duration left) {
  const Clock::time_point now = Clock::now();
  absl::MutexLock lock(&mutex_);
  job_end_.reset();
  if (left < kForever) job_end_ = {.said = now, .by = now + absl::ToChronoNanoseconds(left)};
}

bool RankedAttempts::HasPassed(const Attempt& attempt, absl::Duration timeout, double part_of_rest) {
  Clock::time_point due = attempt.begun + absl::ToChronoNanoseconds(std::min(timeout, kForever));
  absl::MutexLock lock(&mutex_);
  if (job_end_) {
    const Clock::time_point from = std::max(attempt.begun, job_end_->said);
    const absl::Duration rest = absl::FromChrono(job_end_->by - from);
    due = std::min(due, from + absl::ToChronoNanoseconds(rest * part_of_rest));
  }
  return Clock::now() >= due;
}

absl::StatusOr<ShardIdentity> RankedAttempts::BeginAttempt(int64_t step, const Digest128& structure) {
  if (open_) {
    return absl::FailedPreconditionError(
        fmt::format("step {} is saved before the save of step {} has ended", step, open_->identity.step));
  }
  if (step < 0 || step > kRankedStepMax) {
    return absl::InvalidArgumentError(fmt::format("step {} of several ranks: expected 0 to {}", step, kRankedStepMax));
  }
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  uint64_t& saves = saves_[step];
  if (saves == kSavesMax) {
    return absl::InvalidArgumentError(
        fmt::format("step {} was saved {} times since the store was opened", step, saves));
  }
  ++saves;
  const AttemptId id = MakeAttemptId(held_.epoch, (static_cast<uint64_t>(step) + 1) << kSavesBits | saves);
  Attempt attempt{.part = {.session = held_.session,
                           .attempt = id,
                           .step = step,
                           .rank = options_.rank,
                           .world_size = options_.world_size,
                           .structure = structure},
                  .identity = {.store = held_.id,
                               .step = step,
                               .attempt = id,
                               .sequence = sequence_++,
                               .rank = options_.rank,
                               .world_size = options_.world_size},
                  .begun = Clock::now(),
                  .vote_timeout = options_.vote_timeout,
                  .deadline = options_.vote_timeout + options_.outcome_margin};
  if (absl::Status made = MakeFolder(attempt); !made.ok()) return GiveUp(attempt, absl::Now(), made);
  open_ = std::move(attempt);
  return open_->identity;
}

absl::Status RankedAttempts::MakeFolder(Attempt& attempt) const {
  absl::StatusOr<std::unique_ptr<Directory>> steps = files_.OpenDirectory(layout_.steps());
  if (!steps.ok()) return steps.status();
  attempt.steps = *std::move(steps);
  const std::string path = layout_.attempt(attempt.identity.step, attempt.identity.attempt);
  if (absl::Status made = files_.CreateDirectory(path); !made.ok() && !absl::IsAlreadyExists(made)) return made;
  absl::StatusOr<std::unique_ptr<Directory>> folder = files_.OpenDirectory(path);
  if (!folder.ok()) return folder.status();
  attempt.folder = *std::move(folder);
  return absl::OkStatus();
}

absl::StatusOr<RankedAttempts::Attempt> RankedAttempts::TakeOpen(int64_t step, std::string_view attempt) {
  if (!open_ || ToHex(open_->identity.attempt.bytes) != attempt) {
    return absl::InternalError(fmt::format("the end of step {}'s save: its attempt was not begun here", step));
  }
  Attempt taken = *std::move(open_);
  open_.reset();
  return taken;
}

absl::Status RankedAttempts::SyncFolders(const Attempt& attempt) const {
  if (absl::Status status = attempt.folder->Sync(); !status.ok()) return status;
  return attempt.steps->Sync();
}

absl::Status RankedAttempts::CommitAttempt(const StepRecord& record, const PhasesRecord* phases) {
  absl::StatusOr<Attempt> attempt = TakeOpen(record.info.step, record.info.attempt);
  if (!attempt.ok()) return attempt.status();
  absl::StatusOr<StepRecord> durable = record;
  if (absl::Status synced = SyncFolders(*attempt); !synced.ok()) durable = synced;
  return Conclude(*attempt, std::move(durable), record.info.created, phases);
}

absl::Status RankedAttempts::AbandonAttempt(const ShardIdentity& identity, absl::Time created,
                                            const absl::Status& why) {
  absl::StatusOr<Attempt> attempt = TakeOpen(identity.step, ToHex(identity.attempt.bytes));
  return attempt.ok() ? GiveUp(*attempt, created, why) : attempt.status();
}

absl::Status RankedAttempts::GiveUp(const Attempt& attempt, absl::Time created, const absl::Status& why) {
  // Where another rank has failed before, the coordinator may have removed the folder under this one.
  Participant participant(attempt.part);
  BestEffort([&] {
    if (holder_ == nullptr) Listen(participant);
  });
  if (participant.step() != Participant::Step::kNone) return Conclude(attempt, why, created, nullptr);
  const absl::Status aborted = absl::AbortedError(participant.reason());
  RemoveFiles(attempt, created, aborted);
  return aborted;
}

absl::Status RankedAttempts::Conclude(const Attempt& attempt, absl::StatusOr<StepRecord> record, absl::Time created,
                                      const PhasesRecord* phases) {
  Waiting waiting(attempt);
  Participant& participant = waiting.participant;
  IsOver(attempt) ? participant.Expire() : participant.Written(std::move(record));
  if (holder_ != nullptr) {
    waiting.coordinator.emplace(attempt.part);
    waiting.coordinator->Hear(participant.vote());
  }
  const bool has_failed = !participant.vote().yes;
  if (has_failed && holder_ == nullptr) RemoveShard(attempt);  // a full disk has room then
  absl::Duration pause = kFirstPause;
  Clock::time_point fresh = Clock::now();
  std::optional<Clock::time_point> told;  // since when nothing is left but to state what others wait for
  bool has_removed = false;
  for (;;) {
    // Where there is no memory just now, the next turn goes on.
    BestEffort([&] { TakeTurn(waiting, phases); });
    if (HasEnded(waiting)) break;
    if (!told && participant.step() == Participant::Step::kNone) {
      told = Clock::now();
      // A full disk has room for the outcome then.
      if (holder_ != nullptr && participant.result() == Participant::Result::kAborted) {
        RemoveFiles(attempt, created, absl::AbortedError(participant.reason()));
        has_removed = true;
        continue;
      }
    }
    if (told ? HasPassedSince(*told, kStatingTimeout) : IsOver(attempt)) break;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
    if (HasPassedSince(fresh, kFreshLookInterval)) {
      BestEffort([&] { board_.LookAfresh(); });
      fresh = Clock::now();
    }
  }
  BestEffort([&] {
    if (participant.step() == Participant::Step::kVote) participant.Voted();
    participant.Expire();
    if (participant.step() == Participant::Step::kSettle) participant.Settled(SettleJournal(participant));
  });
  if (participant.result() == Participant::Result::kCommitted) return absl::OkStatus();
  if (participant.result() != Participant::Result::kAborted) {
    absl::Status unknown(absl::StatusCode::kUnknown, "");  // where there is no memory for the message
    BestEffort([&] { unknown = absl::UnknownError(participant.reason()); });
    return unknown;
  }
  const absl::Status aborted = absl::AbortedError(participant.reason());
  if (!has_removed && (holder_ != nullptr || !has_failed)) RemoveFiles(attempt, created, aborted);
  return aborted;
}

// What this rank can do now. An exception leaves everything such that the next turn does the rest.
void RankedAttempts::TakeTurn(Waiting& waiting, const PhasesRecord* phases) {
  Participant& participant = waiting.participant;
  if (!waiting.vote_stated) {
    const absl::Status stated = StateVote(waiting);
    waiting.vote_stated = stated.ok();
    if (!stated.ok()) WarnOfRetry("the vote", stated);
  }
  if (participant.step() == Participant::Step::kVote) participant.Voted();
  if (!waiting.coordinator) {
    if (participant.step() == Participant::Step::kWait) Listen(participant);
    return;
  }
  Coordinate(waiting, phases);
  if (waiting.coordinator->step() != Coordinator::Step::kNone) return;
  participant.Hear(waiting.coordinator->outcome());
  StateOutcome(waiting);
}

// Whether there is nothing left to do, hear or state. A rank that was told need not state its vote, unless that is what
// the others wait for.
bool RankedAttempts::HasEnded(const Waiting& waiting) {
  if (waiting.participant.step() != Participant::Step::kNone) return false;
  return waiting.coordinator ? waiting.outcome_stated : waiting.vote_stated || waiting.participant.vote().yes;
}

// --- The coordinator's ---

void RankedAttempts::Coordinate(Waiting& waiting, const PhasesRecord* phases) {
  const Attempt& attempt = waiting.attempt;
  Coordinator& coordinator = *waiting.coordinator;
  Collect(waiting);
  if (VotesAreDue(attempt)) coordinator.Expire();
  if (coordinator.step() == Coordinator::Step::kAppend) {
    const StepRecord merged = coordinator.Merged();
    const absl::Status sound = options_.check ? options_.check(merged) : absl::OkStatus();
    if (!sound.ok()) {
      coordinator.Refuse(sound);
      return;
    }
    const absl::Status committed = holder_->CommitSynced(merged, phases);
    coordinator.Appended(ResultOf(committed), committed);
  } else if (coordinator.step() == Coordinator::Step::kSettle) {
    const absl::StatusOr<bool> committed = holder_->SettleCommit({attempt.part.step, attempt.part.attempt});
    if (committed.ok()) coordinator.Settled(*committed);
  }
}

// Reads the votes that are there by now. A rank whose vote was there at the first look was not waited for.
void RankedAttempts::Collect(Waiting& waiting) {
  Coordinator& coordinator = *waiting.coordinator;
  const std::optional<Clock::time_point> since = waiting.listening;
  if (!since) {
    waiting.listening = Clock::now();
    rank_waits_.clear();
  }
  for (uint32_t rank = 0; rank < options_.world_size && coordinator.step() == Coordinator::Step::kCollect; ++rank) {
    if (coordinator.HasVoted(rank)) continue;
    HearRank(waiting.attempt.part, rank, coordinator);
    if (!since || !coordinator.HasVoted(rank)) continue;
    if (rank_waits_.size() == kRankWaitsMax) rank_waits_.erase(rank_waits_.begin());
    rank_waits_.push_back({.rank = rank, .begin = *since, .end = Clock::now()});
  }
}

void RankedAttempts::HearRank(const RankPart& own, uint32_t rank, Coordinator& coordinator) {
  const absl::StatusOr<std::optional<RankVote>> vote = board_.ReadVote(rank);
  if (!vote.ok()) return WarnOfRetry("a rank's vote", vote.status());
  if (!vote->has_value()) return;
  const AttemptId& voted_on = (*vote)->part.attempt;
  coordinator.Hear(**vote);
  Heard& heard = heard_[rank];
  if (voted_on == own.attempt) {
    heard.voted_on = voted_on;
    return;
  }
  // What a rank has refused is there before its vote is, and changes with it.
  if (heard.voted_on != voted_on) {
    absl::StatusOr<std::optional<RankOutcomes>> refusals = board_.ReadRefusals(rank);
    if (!refusals.ok()) return WarnOfRetry("what a rank has refused", refusals.status());
    heard = {.voted_on = voted_on, .refusals = refusals->value_or(RankOutcomes())};
  }
  if (heard.refusals.session != own.session) return;
  for (const RankOutcome& refusal : heard.refusals.outcomes) {
    if (refusal.attempt != own.attempt) continue;
    RankVote no{.part = own, .reason = refusal.reason};
    no.part.rank = rank;
    coordinator.Hear(no);
  }
}

void RankedAttempts::List(const RankOutcome& outcome, RankOutcomes& list) {
  list.outcomes.push_back(outcome);
  if (list.outcomes.size() > kOutcomesKept) list.outcomes.erase(list.outcomes.begin());
}

void RankedAttempts::StateOutcome(Waiting& waiting) {
  if (!waiting.outcome_listed) List(waiting.coordinator->outcome(), outcomes_);
  waiting.outcome_listed = true;
  const absl::Status stated = board_.StateOutcomes(outcomes_);
  waiting.outcome_stated = stated.ok();
  if (!stated.ok()) WarnOfRetry("the outcome", stated);
}

// --- The others' ---

// A no is stated twice: rank 0 may read the vote only when the next one has taken its place.
absl::Status RankedAttempts::StateVote(Waiting& waiting) {
  const RankVote& vote = waiting.participant.vote();
  if (!vote.yes && holder_ == nullptr) {
    if (!waiting.refusal_listed) {
      List({.attempt = vote.part.attempt, .step = vote.part.step, .reason = vote.reason}, refusals_);
    }
    waiting.refusal_listed = true;
    if (absl::Status stated = board_.StateRefusals(refusals_); !stated.ok()) return stated;
  }
  return board_.StateVote(vote);
}

void RankedAttempts::Listen(Participant& participant) {
  const absl::StatusOr<std::optional<RankOutcomes>> outcomes = board_.ReadOutcomes();
  if (!outcomes.ok()) {
    WarnOfRetry("the list of outcomes", outcomes.status());
  } else if (outcomes->has_value() && (*outcomes)->session == held_.session) {
    for (const RankOutcome& outcome : (*outcomes)->outcomes) participant.Hear(outcome);
  }
  if (participant.step() == Participant::Step::kNone) return;
  const absl::StatusOr<JournalSight> sight = commits_->Look(participant.vote().part.attempt);
  if (!sight.ok()) {
    WarnOfRetry("the journal", sight.status());
  } else {
    participant.Look(*sight);
  }
}

JournalSight RankedAttempts::SettleJournal(const Participant& participant) {
  const RankPart& part = participant.vote().part;
  if (holder_ != nullptr) {
    const absl::StatusOr<bool> committed = holder_->SettleCommit({part.step, part.attempt});
    return {.committed = committed.ok() && *committed, .epoch = held_.epoch};
  }
  const absl::StatusOr<JournalSight> sight = commits_->Settle(part.attempt);
  if (sight.ok()) return *sight;
  WarnOfRetry("the journal", sight.status());
  return {.epoch = held_.epoch};
}

// Rank 0 removes the folder and records the failure. Another rank may have made the folder again, if it was late.
void RankedAttempts::RemoveFiles(const Attempt& attempt, absl::Time created, const absl::Status& why) {
  if (holder_ != nullptr) {
    BestEffort([&] { holder_->AbandonAttempt(attempt.identity, created, why).IgnoreError(); });
    return;
  }
  RemoveShard(attempt);
  BestEffort([&] {
    if (!names_.Check().ok()) return;
    files_.RemoveDirectory(layout_.attempt(attempt.identity.step, attempt.identity.attempt)).IgnoreError();
  });
}

// Where the directory was replaced, the files are another store's.
void RankedAttempts::RemoveShard(const Attempt& attempt) {
  BestEffort([&] {
    if (!names_.Check().ok()) return;
    const ShardIdentity& identity = attempt.identity;
    files_.RemoveFile(layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size)).IgnoreError();
  });
}

void RankedAttempts::WarnOfRetry(std::string_view what, const absl::Status& status) {
  BestEffort([&] {
    if (!warnings_.IsNew(what)) return;
    options_.warn(fmt::format("rank {}: {} could not be read or written, and is tried again: {}", options_.rank, what,
                              status.ToString()));
  });
}

}  // namespace tidemark::storage
