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

// An attempt's ordinal is made of the step and of how often it was saved, so that a rank that misses a save agrees with
// the others about the next one. Steps count from 1 here, because a holder of one rank gives out small ordinals.
constexpr int kSavesBits = 16;
constexpr uint64_t kSavesMax = (uint64_t{1} << kSavesBits) - 1;

bool HasPassed(Clock::time_point since, absl::Duration duration) {
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
      board_(files, layout, held.session, options_.rank),
      sequence_(held.sequence),
      vote_timeout_(options_.vote_timeout),
      outcome_margin_(options_.outcome_margin) {
  outcomes_.session = held.session;
}

absl::StatusOr<std::unique_ptr<RankedAttempts>> RankedAttempts::OpenCoordinator(FileSystem& files, Store& holder,
                                                                                RankedAttemptsOptions options) {
  std::unique_ptr<RankedAttempts> attempts(
      new RankedAttempts(files, holder.layout(), holder.Held(), &holder, std::move(options)));
  // Ranks of earlier epochs that still run find out from the journal.
  if (absl::Status status = RemoveTree(files, holder.layout().ranks()); !status.ok()) return status;
  if (absl::Status status = attempts->board_.Open(); !status.ok()) return status;
  return attempts;
}

absl::StatusOr<std::unique_ptr<RankedAttempts>> RankedAttempts::OpenParticipant(FileSystem& files,
                                                                                const StoreLayout& layout,
                                                                                const HeldStore& held,
                                                                                RankedAttemptsOptions options) {
  std::unique_ptr<RankedAttempts> attempts(new RankedAttempts(files, layout, held, nullptr, std::move(options)));
  auto watch = CommitWatch::Open(files, layout, held);
  if (!watch.ok()) return watch.status();
  attempts->watch_ = *std::move(watch);
  if (absl::Status status = attempts->board_.Open(); !status.ok()) return status;
  return attempts;
}

absl::StatusOr<ShardIdentity> RankedAttempts::BeginAttempt(int64_t step) {
  if (step < 0 || step > kRankedStepMax) {
    return absl::InvalidArgumentError(fmt::format("step {} of several ranks: expected 0 to {}", step, kRankedStepMax));
  }
  uint64_t& saves = saves_[step];
  if (saves == kSavesMax) {
    return absl::InvalidArgumentError(
        fmt::format("step {} was saved {} times since the store was opened", step, saves));
  }
  ++saves;
  const AttemptId id = MakeAttemptId(held_.epoch, (static_cast<uint64_t>(step) + 1) << kSavesBits | saves);
  Attempt attempt;
  attempt.begun = Clock::now();
  attempt.part = {.session = held_.session,
                  .attempt = id,
                  .step = step,
                  .rank = options_.rank,
                  .world_size = options_.world_size,
                  .structure = options_.structure};
  attempt.identity = {.store = held_.id,
                      .step = step,
                      .attempt = id,
                      .sequence = sequence_++,
                      .rank = options_.rank,
                      .world_size = options_.world_size};
  if (absl::Status made = MakeFolder(attempt); !made.ok()) {
    return GiveUp(attempt, absl::Now(), made);  // the others need not wait for the deadline
  }
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

absl::StatusOr<RankedAttempts::Attempt> RankedAttempts::TakeOpen(int64_t step) {
  if (!open_ || open_->identity.step != step) {
    return absl::InternalError(fmt::format("the end of step {}'s save: its attempt was not begun here", step));
  }
  Attempt attempt = *std::move(open_);
  open_.reset();
  return attempt;
}

absl::Status RankedAttempts::SyncFolders(const Attempt& attempt) const {
  if (absl::Status status = attempt.folder->Sync(); !status.ok()) return status;
  return attempt.steps->Sync();
}

absl::Status RankedAttempts::CommitAttempt(const StepRecord& record, const PhasesRecord* phases) {
  absl::StatusOr<Attempt> attempt = TakeOpen(record.info.step);
  if (!attempt.ok()) return attempt.status();
  absl::StatusOr<StepRecord> durable = record;
  if (absl::Status synced = SyncFolders(*attempt); !synced.ok()) durable = synced;
  return Conclude(*attempt, std::move(durable), record.info.created, phases);
}

absl::Status RankedAttempts::AbandonAttempt(const ShardIdentity& identity, absl::Time created,
                                            const absl::Status& why) {
  absl::StatusOr<Attempt> attempt = TakeOpen(identity.step);
  return attempt.ok() ? GiveUp(*attempt, created, why) : attempt.status();
}

absl::Status RankedAttempts::GiveUp(const Attempt& attempt, absl::Time created, const absl::Status& why) {
  absl::Status told = why;
  BestEffort([&] {
    // Where another rank has failed before, the coordinator may have removed the folder under this one.
    Participant participant(attempt.part);
    if (holder_ == nullptr) Listen(participant);
    if (participant.step() == Participant::Step::kNone) {
      told = Tell(attempt, participant, created);
    } else {
      Conclude(attempt, why, created, nullptr).IgnoreError();
    }
  });
  return told;
}

absl::Status RankedAttempts::Conclude(const Attempt& attempt, absl::StatusOr<StepRecord> record, absl::Time created,
                                      const PhasesRecord* phases) {
  const StepFolder folder{attempt.part.step, attempt.part.attempt};
  Participant participant(attempt.part);
  participant.Written(std::move(record));
  if (absl::Status stated = board_.StateVote(participant.vote()); !stated.ok()) WarnOnce("a vote", stated);
  std::optional<Coordinator> coordinator;
  if (holder_ != nullptr) {
    if (unsettled_ && FindOut(unsettled_->coordinator, unsettled_->folder)) unsettled_.reset();
    coordinator.emplace(attempt.part);
    if (coordinator->Hear(participant.vote()) == Coordinator::Step::kNone) StateOutcome(coordinator->outcome());
  }
  participant.Voted();

  absl::Duration pause = kFirstPause;
  Clock::time_point fresh = Clock::now();
  const absl::Duration deadline = vote_timeout_ + outcome_margin_;
  // A coordinator goes on after its own rank has been told.
  while (participant.step() != Participant::Step::kNone ||
         (coordinator && coordinator->step() != Coordinator::Step::kNone)) {
    if (coordinator) {
      Coordinate(attempt, *coordinator, phases);
      if (coordinator->step() == Coordinator::Step::kNone) {
        participant.Hear(coordinator->outcome());
        continue;
      }
    } else {
      Listen(participant);
    }
    if (participant.step() == Participant::Step::kNone && !coordinator) break;
    if (HasPassed(attempt.begun, deadline)) {
      participant.Expire();
      if (participant.step() == Participant::Step::kSettle) participant.Settled(SettleJournal(participant));
      break;
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
    if (HasPassed(fresh, kFreshLookInterval)) {
      board_.LookAfresh();
      fresh = Clock::now();
    }
  }
  if (coordinator && coordinator->step() == Coordinator::Step::kSettle) unsettled_ = {*coordinator, folder};

  return Tell(attempt, participant, created);
}

absl::Status RankedAttempts::Tell(const Attempt& attempt, const Participant& participant, absl::Time created) {
  switch (participant.result()) {
    case Participant::Result::kCommitted:
      return absl::OkStatus();
    case Participant::Result::kAborted: {
      const absl::Status aborted = absl::AbortedError(participant.reason());
      RemoveFiles(attempt, created, aborted);
      return aborted;
    }
    default:
      return absl::UnknownError(participant.reason());
  }
}

// --- The coordinator's ---

void RankedAttempts::Coordinate(const Attempt& attempt, Coordinator& coordinator, const PhasesRecord* phases) {
  for (uint32_t rank = 0; rank < options_.world_size && coordinator.step() == Coordinator::Step::kCollect; ++rank) {
    if (coordinator.HasVoted(rank)) continue;
    absl::StatusOr<std::optional<RankVote>> vote = board_.ReadVote(rank);
    if (!vote.ok()) {
      WarnOnce("a vote", vote.status());
    } else if (vote->has_value()) {
      coordinator.Hear(**vote);
    }
  }
  if (HasPassed(attempt.begun, vote_timeout_)) coordinator.Expire();
  const StepFolder folder{attempt.part.step, attempt.part.attempt};
  if (coordinator.step() == Coordinator::Step::kAppend) {
    const absl::Status committed = holder_->CommitSynced(coordinator.Merged(), phases);
    coordinator.Appended(ResultOf(committed), committed);
  } else if (coordinator.step() == Coordinator::Step::kSettle) {
    FindOut(coordinator, folder);
    return;  // which has stated it
  }
  if (coordinator.step() == Coordinator::Step::kNone) StateOutcome(coordinator.outcome());
}

bool RankedAttempts::FindOut(Coordinator& coordinator, const StepFolder& folder) {
  const absl::StatusOr<bool> committed = holder_->FindOut(folder);
  coordinator.Settled(committed.ok() ? std::make_optional(*committed) : std::nullopt);
  if (!committed.ok()) return false;
  StateOutcome(coordinator.outcome());
  return true;
}

void RankedAttempts::StateOutcome(const RankOutcome& outcome) {
  std::vector<RankOutcome>& list = outcomes_.outcomes;
  if (list.size() == kOutcomesKept) list.erase(list.begin());
  list.push_back(outcome);
  if (absl::Status stated = board_.StateOutcomes(outcomes_); !stated.ok()) WarnOnce("an outcome", stated);
}

// --- The others' ---

void RankedAttempts::Listen(Participant& participant) {
  absl::StatusOr<std::optional<RankOutcomes>> outcomes = board_.ReadOutcomes();
  if (!outcomes.ok()) {
    WarnOnce("the list of outcomes", outcomes.status());
  } else if (outcomes->has_value() && (*outcomes)->session == held_.session) {
    for (const RankOutcome& outcome : (*outcomes)->outcomes) participant.Hear(outcome);
  }
  if (participant.step() == Participant::Step::kNone) return;
  const absl::StatusOr<JournalSight> sight = watch_->Look(participant.vote().part.attempt);
  if (!sight.ok()) {
    WarnOnce("the journal", sight.status());
  } else {
    participant.Look(*sight);
  }
}

JournalSight RankedAttempts::SettleJournal(const Participant& participant) {
  const RankPart& part = participant.vote().part;
  if (holder_ != nullptr) {
    const absl::StatusOr<bool> committed = holder_->FindOut({part.step, part.attempt});
    return {.committed = committed.ok() && *committed, .epoch = held_.epoch};
  }
  const absl::StatusOr<JournalSight> sight = watch_->Settle(part.attempt);
  if (sight.ok()) return *sight;
  WarnOnce("the journal", sight.status());
  return {.epoch = held_.epoch};
}

// Rank 0 removes the folder and records the failure. The others remove what is theirs, since they may be late.
void RankedAttempts::RemoveFiles(const Attempt& attempt, absl::Time created, const absl::Status& why) {
  BestEffort([&] {
    if (holder_ != nullptr) {
      holder_->AbandonAttempt(attempt.identity, created, why);
      return;
    }
    const ShardIdentity& identity = attempt.identity;
    const std::string shard = layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size);
    files_.RemoveFile(shard).IgnoreError();
    files_.RemoveDirectory(layout_.attempt(identity.step, identity.attempt)).IgnoreError();
  });
}

void RankedAttempts::WarnOnce(std::string_view what, const absl::Status& status) {
  if (std::exchange(warned_, true)) return;
  options_.warn(fmt::format("rank {}: {} could not be read or written: {}", options_.rank, what, status.ToString()));
}

}  // namespace tidemark::storage
