#include "tests/storage/ranks/rank_world.h"

#include <algorithm>

#include "absl/status/status.h"
#include "fmt/format.h"

namespace tidemark::storage {
namespace {

constexpr uint64_t kFirstEpoch = 1;

StepRecord RecordOf(const RankPart& part) {
  StepRecord record;
  record.info.step = part.step;
  record.info.attempt = ToHex(part.attempt.bytes);
  record.info.world_size = part.world_size;
  record.shards.Add(part.rank, 0, {});
  return record;
}

const absl::Status& SyncFailed() {
  static const absl::Status status = absl::InternalError("the sync failed");
  return status;
}

}  // namespace

RankWorld::RankWorld(const RanksSetting& setting)
    : setting_(&setting),
      journal_{{.kind = Entry::Kind::kEpoch, .epoch = kFirstEpoch}},
      durable_(1),
      folders_(setting.attempts, Name::kNone),
      shards_(setting.attempts, std::vector<Shard>(setting.ranks)),
      takers_(setting.takers),
      told_(setting.attempts),
      failed_syncs_(setting.failed_syncs),
      power_losses_(setting.power_losses),
      old_listings_(setting.old_listings) {
  for (uint32_t rank = 0; rank < setting.ranks; ++rank) ranks_.emplace_back(PartOf(rank, 0));
  holder_.emplace(PartOf(0, 0));
}

RankPart RankWorld::PartOf(uint32_t rank, int attempt) const {
  return {.attempt = MakeAttemptId(kFirstEpoch, static_cast<uint64_t>(attempt)),
          .step = attempt,
          .rank = rank,
          .world_size = setting_->ranks};
}

// --- The journal ---

void RankWorld::Read(Reader& reader, size_t entries) const {
  reader.seen = std::max(reader.seen, entries);
  for (size_t i = 0; i < reader.seen; ++i) reader.established = std::max(reader.established, journal_[i].durable);
}

void RankWorld::Append(Reader& reader, Entry entry) {
  Read(reader, journal_.size());
  entry.durable = reader.established;
  journal_.push_back(entry);
  reader.seen = reader.entry = journal_.size();
}

void RankWorld::SyncEntry(Reader& reader, bool works) {
  if (works) {
    durable_ = std::max(durable_, reader.entry);
    reader.established = std::max(reader.established, reader.entry);
  } else {
    --failed_syncs_;
  }
  reader.entry = 0;
}

uint64_t RankWorld::NewestEpoch(size_t entries) const {
  uint64_t newest = 0;
  for (size_t i = 0; i < entries; ++i) {
    if (journal_[i].kind == Entry::Kind::kEpoch) newest = std::max(newest, journal_[i].epoch);
  }
  return newest;
}

bool RankWorld::IsCommitted(int attempt, size_t entries) const {
  return std::any_of(journal_.begin(), journal_.begin() + static_cast<ptrdiff_t>(entries), [&](const Entry& entry) {
    return entry.kind == Entry::Kind::kCommit && entry.counts && entry.attempt == attempt;
  });
}

JournalSight RankWorld::SightOf(const Rank& rank) const {
  const Reader& reader = rank.journal;
  const size_t commits = IsLeftOut(LeftOutOfRanks::kLookEstablished) ? reader.seen : reader.established;
  const size_t epochs = IsLeftOut(LeftOutOfRanks::kEpochEstablished) ? reader.seen : reader.established;
  return {.committed = IsCommitted(rank.attempt, commits), .epoch = NewestEpoch(epochs)};
}

// --- Participants ---

bool RankWorld::Survives(int attempt, size_t rank) const {
  const Shard& shard = shards_[attempt][rank];
  return shard.synced && shard.name == Name::kDurable && folders_[attempt] == Name::kDurable;
}

void RankWorld::RemoveFiles(int attempt) {
  folders_[attempt] = Name::kNone;
  shards_[attempt].assign(setting_->ranks, Shard());
}

void RankWorld::EndAttempt(Rank& rank) {
  if (rank.participant.step() != Participant::Step::kNone) return;
  const Participant::Result result = rank.participant.result();
  if (result != Participant::Result::kUnknown) Tell(rank.attempt, result == Participant::Result::kCommitted);
  rank.last_result = result;
  rank.participant = Participant(PartOf(rank.participant.vote().part.rank, ++rank.attempt));
  rank.has_written = false;
  rank.heard = false;
}

void RankWorld::Write(size_t r) {
  Rank& rank = ranks_[r];
  rank.has_written = true;
  if (folders_[rank.attempt] == Name::kNone) folders_[rank.attempt] = Name::kVisible;
  shards_[rank.attempt][r] = {.synced = false, .name = Name::kVisible};
  if (IsLeftOut(LeftOutOfRanks::kVoteAfterSync)) rank.participant.Written(RecordOf(rank.participant.vote().part));
}

bool RankWorld::HearsOfFailure(size_t rank) const {
  return ranks_[rank].heard && !IsLeftOut(LeftOutOfRanks::kDescriptorFirst);
}

void RankWorld::Sync(size_t r, bool works) {
  Rank& rank = ranks_[r];
  const bool fails = !works && !HearsOfFailure(r);
  if (HearsOfFailure(r)) works = false;
  if (works) shards_[rank.attempt][r].synced = true;
  if (works || fails) {
    const auto settle = [&](Name& name) {
      if (name == Name::kVisible) name = works ? Name::kDurable : Name::kUncertain;
    };
    for (Name& folder : folders_) settle(folder);
    for (Shard& shard : shards_[rank.attempt]) settle(shard.name);
  }
  if (fails) {
    --failed_syncs_;
    for (Rank& other : ranks_) other.heard = other.has_written;
  }
  rank.heard = false;
  if (works || IsLeftOut(LeftOutOfRanks::kFailedSyncIsNo)) {
    rank.participant.Written(RecordOf(rank.participant.vote().part));
  } else {
    rank.participant.Written(SyncFailed());
  }
}

void RankWorld::Vote(size_t r) {
  Rank& rank = ranks_[r];
  votes_.push_back(rank.participant.vote());
  rank.participant.Voted();
  EndAttempt(rank);
}

void RankWorld::HearOutcome(size_t r, RankOutcome outcome) {
  Rank& rank = ranks_[r];
  if (IsLeftOut(LeftOutOfRanks::kOutcomeIdentity)) outcome.attempt = rank.participant.vote().part.attempt;
  rank.participant.Hear(outcome);
  EndAttempt(rank);
}

void RankWorld::Look(size_t r, size_t entries) {
  Rank& rank = ranks_[r];
  if (entries < journal_.size()) --old_listings_;
  Read(rank.journal, entries);
  rank.participant.Look(SightOf(rank));
  EndAttempt(rank);
}

void RankWorld::Expire(size_t r) {
  Rank& rank = ranks_[r];
  if (IsLeftOut(LeftOutOfRanks::kDeadlineIsUnknown)) {
    rank.participant.Hear({.attempt = rank.participant.vote().part.attempt});
  } else {
    rank.participant.Expire();
  }
  EndAttempt(rank);
}

void RankWorld::BeginSettling(size_t r) { Append(ranks_[r].journal, {.kind = Entry::Kind::kSettles}); }

void RankWorld::EndSettling(size_t r, bool works) {
  Rank& rank = ranks_[r];
  if (rank.journal.entry != 0) SyncEntry(rank.journal, works);
  rank.participant.Settled(SightOf(rank));
  EndAttempt(rank);
}

// --- The coordinator ---

void RankWorld::HearVote(RankVote vote) {
  if (IsLeftOut(LeftOutOfRanks::kVoteIdentity)) {
    vote.part.attempt = PartOf(0, holder_->attempt).attempt;
    vote.part.step = holder_->attempt;
  }
  holder_->coordinator.Hear(vote);
  if (!IsLeftOut(LeftOutOfRanks::kEveryVote)) return;
  RankVote last{.part = PartOf(setting_->ranks - 1, holder_->attempt), .yes = true};
  if (vote.yes && vote.part.attempt == last.part.attempt) holder_->coordinator.Hear(last);
}

void RankWorld::ExpireHolder() {
  if (!IsLeftOut(LeftOutOfRanks::kAbortIsFinal)) {
    holder_->coordinator.Expire();
    return;
  }
  Coordinator other = holder_->coordinator;
  other.Expire();
  if (std::find(outcomes_.begin(), outcomes_.end(), other.outcome()) == outcomes_.end()) {
    outcomes_.push_back(other.outcome());
  }
}

void RankWorld::BeginAppend() {
  Holder& holder = *holder_;
  if (holder.coordinator.step() == Coordinator::Step::kSettle) {
    Append(holder.journal, {.kind = Entry::Kind::kSettles});
    return;
  }
  if (NewestEpoch(journal_.size()) != kFirstEpoch && !IsLeftOut(LeftOutOfRanks::kFence)) {
    Read(holder.journal, journal_.size());
    holder.coordinator.Appended(Appender::Result::kRefused, absl::AbortedError("a newer epoch has begun"));
    return;
  }
  Append(holder.journal, {.kind = Entry::Kind::kCommit, .epoch = kFirstEpoch, .attempt = holder.attempt});
  if (IsLeftOut(LeftOutOfRanks::kOutcomeEstablished)) {
    holder.journal.entry = 0;
    holder.coordinator.Appended(Appender::Result::kEstablished, absl::OkStatus());
  }
}

void RankWorld::EndAppend(bool works) {
  Holder& holder = *holder_;
  SyncEntry(holder.journal, works);
  if (holder.coordinator.step() == Coordinator::Step::kSettle) {
    if (works) holder.coordinator.Settled(IsCommitted(holder.attempt, holder.journal.established));
  } else if (works) {
    holder.coordinator.Appended(Appender::Result::kEstablished, absl::OkStatus());
  } else {
    const bool taken_for_failed = IsLeftOut(LeftOutOfRanks::kUnknownIsNoOutcome);
    holder.coordinator.Appended(taken_for_failed ? Appender::Result::kFailed : Appender::Result::kUnknown,
                                SyncFailed());
  }
}

void RankWorld::FailAppend() {
  --failed_syncs_;
  holder_->coordinator.Appended(Appender::Result::kFailed, absl::ResourceExhaustedError("the disk is full"));
}

void RankWorld::StateOutcome() {
  Holder& holder = *holder_;
  outcomes_.push_back(holder.coordinator.outcome());
  Tell(holder.attempt, holder.coordinator.outcome().committed);
  holder.coordinator = Coordinator(PartOf(0, ++holder.attempt));
}

// --- Others ---

void RankWorld::BeginTaking(size_t t) {
  Taker& taker = takers_[t];
  Append(taker.journal, {.kind = taker.has_begun ? Entry::Kind::kSettles : Entry::Kind::kEpoch,
                         .epoch = NewestEpoch(journal_.size()) + 1});
  taker.has_begun = true;
}

void RankWorld::EndTaking(size_t t, bool works) {
  Taker& taker = takers_[t];
  SyncEntry(taker.journal, works);
  if (!works) return;
  taker.is_done = true;
  // It restores what is committed, and removes the files of what is not.
  for (int attempt = 0; attempt < setting_->attempts; ++attempt) {
    const bool committed = IsCommitted(attempt, taker.journal.established);
    Tell(attempt, committed);
    if (!committed) RemoveFiles(attempt);
  }
}

void RankWorld::LosePower(size_t kept) {
  --power_losses_;
  journal_.resize(kept);
  durable_ = kept;
  for (int attempt = 0; attempt < setting_->attempts; ++attempt) {
    for (uint32_t rank = 0; rank < setting_->ranks; ++rank) {
      if (!Survives(attempt, rank)) shards_[attempt][rank] = Shard();
    }
  }
  ranks_.clear();
  holder_.reset();
  votes_.clear();
  outcomes_.clear();
  takers_.assign(1, Taker());
}

std::string RankWorld::Violation() const {
  for (size_t kept = durable_; kept <= journal_.size(); ++kept) {
    for (int attempt = 0; attempt < setting_->attempts; ++attempt) {
      const bool committed = IsCommitted(attempt, kept);
      if (told_[attempt].committed && !committed) return fmt::format("told committed, and can be lost: {}", attempt);
      if (told_[attempt].aborted && committed) return fmt::format("told aborted, and is committed: {}", attempt);
      if (!committed) continue;
      for (uint32_t rank = 0; rank < setting_->ranks; ++rank) {
        if (!Survives(attempt, rank)) {
          return fmt::format("committed without the shard of rank {}: {}", rank, attempt);
        }
      }
    }
  }
  return "";
}

std::ostream& operator<<(std::ostream& out, LeftOutOfRanks rule) {
  switch (rule) {
    case LeftOutOfRanks::kNothing:
      return out << "Nothing";
    case LeftOutOfRanks::kVoteAfterSync:
      return out << "VoteAfterSync";
    case LeftOutOfRanks::kFailedSyncIsNo:
      return out << "FailedSyncIsNo";
    case LeftOutOfRanks::kDescriptorFirst:
      return out << "DescriptorFirst";
    case LeftOutOfRanks::kOutcomeIdentity:
      return out << "OutcomeIdentity";
    case LeftOutOfRanks::kLookEstablished:
      return out << "LookEstablished";
    case LeftOutOfRanks::kEpochEstablished:
      return out << "EpochEstablished";
    case LeftOutOfRanks::kDeadlineIsUnknown:
      return out << "DeadlineIsUnknown";
    case LeftOutOfRanks::kEveryVote:
      return out << "EveryVote";
    case LeftOutOfRanks::kVoteIdentity:
      return out << "VoteIdentity";
    case LeftOutOfRanks::kAbortIsFinal:
      return out << "AbortIsFinal";
    case LeftOutOfRanks::kFence:
      return out << "Fence";
    case LeftOutOfRanks::kOutcomeEstablished:
      return out << "OutcomeEstablished";
    case LeftOutOfRanks::kUnknownIsNoOutcome:
      return out << "UnknownIsNoOutcome";
  }
  return out;
}

}  // namespace tidemark::storage
