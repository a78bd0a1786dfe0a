#include "storage/store/store.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/exception_status.h"
#include "storage/store/garbage.h"
#include "storage/store/retired_shard.h"
#include "storage/store/warn_later.h"

namespace tidemark::storage {
namespace {

// Some 70 ms on a local SSD, for which the next save waits at most.
constexpr size_t kRemovalsPerCommitMax = 256;

}  // namespace

Store::Store(FileSystem& files, StoreOptions options)
    : files_(files),
      options_(std::move(options)),
      layout_(options_.directory),
      names_(files, "the store " + layout_.directory()) {}

Store::~Store() {
  BestEffort([this] {
    if (lock_ != nullptr && names_.Check().ok()) DropRetiredShard(files_, layout_);
  });
}

absl::Status Store::CheckIsHolder() const {
  if (is_holder()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("store {} is held by rank 0 of this job, which alone may do that", layout_.directory()));
}

absl::StatusOr<ShardIdentity> Store::BeginAttempt(int64_t step, const Digest128& /*structure*/) {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  ShardIdentity identity;
  identity.store = id_;
  identity.step = step;
  identity.attempt = MakeAttemptId(journal_->epoch(), next_ordinal_.fetch_add(1));
  identity.sequence = next_sequence_.fetch_add(1);
  // Opened before the folder is made: a failed sync that another thread has caused is reported to those that were open.
  absl::StatusOr<std::unique_ptr<Directory>> steps = files_.OpenDirectory(layout_.steps());
  if (!steps.ok()) return steps.status();
  if (absl::Status status = files_.CreateDirectory(layout_.attempt(step, identity.attempt)); !status.ok()) {
    return status;
  }
  absl::MutexLock lock(&mutex_);
  open_attempts_[identity.attempt] = *std::move(steps);
  return identity;
}

bool Store::Recycle(const ShardIdentity& identity) {
  const bool recycled =
      RecycleShard(files_, layout_, layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size));
  if (recycled) recycled_ = true;
  return recycled;
}

absl::Status Store::SyncFolders(const StepFolder& folder) {
  std::unique_ptr<Directory> steps;
  {
    absl::MutexLock lock(&mutex_);
    const auto open = open_attempts_.find(folder.attempt);
    if (open == open_attempts_.end()) {
      return absl::InternalError(fmt::format("commit of step {}: its attempt was not begun here", folder.step));
    }
    steps = std::move(open->second);
    open_attempts_.erase(open);
  }
  absl::Status status = files_.SyncDirectory(layout_.attempt(folder.step, folder.attempt));
  if (status.ok()) status = steps->Sync();
  // A shard that was recycled came from there: until both directories are synced power loss may take it back.
  if (status.ok() && recycled_.exchange(false)) {
    status = files_.SyncDirectory(layout_.directory());
    if (!status.ok()) recycled_ = true;
  }
  return status;
}

// Whether the catalog names the attempt: as its step's, or as one that was, which only RemoveGarbage may remove.
absl::StatusOr<bool> Store::WasCommitted(const StepFolder& folder) const {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog().Find(folder.step);
  if (!record.ok()) return record.status();
  if (record->has_value() && (*record)->info.attempt == ToHex(folder.attempt.bytes)) return true;
  const absl::StatusOr<std::vector<DeletionRecord>> deletions = catalog().Deletions();
  if (!deletions.ok()) return deletions.status();
  return std::any_of(deletions->begin(), deletions->end(),
                     [&](const DeletionRecord& deletion) { return deletion.attempt == folder.attempt; });
}

// Removes attempts whose commits have failed, once it is known that they are not there. Best effort.
void Store::RemoveFailedCommits() {
  std::vector<StepFolder> failed;
  {
    absl::MutexLock lock(&mutex_);
    failed.swap(failed_commits_);
  }
  for (const StepFolder& folder : failed) {
    const absl::StatusOr<bool> was_committed = WasCommitted(folder);
    if (was_committed.ok() && *was_committed) continue;
    absl::Status status = was_committed.status();
    if (status.ok()) status = RemoveTree(files_, layout_.attempt(folder.step, folder.attempt));
    if (!status.ok()) {
      options_.warn(fmt::format("files of step {}'s failed save could not be removed: {}", folder.step,
                                std::string(status.message())));
    }
  }
}

absl::Status Store::Change(StoreJournal::Compose compose, Journal::Room room) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  std::optional<PhasesRecord> phases;
  // An entry that frees room has none for them.
  if (room == Journal::Room::kAny) {
    absl::MutexLock lock(&mutex_);
    phases.swap(noted_phases_);
  }
  bool appends = false;
  const absl::Status status = journal_->Change(
      [&](const StepCatalog& catalog) -> absl::StatusOr<Facts> {
        absl::StatusOr<Facts> facts = compose(catalog);
        appends = facts.ok() && !facts->empty();
        if (appends && phases) facts->push_back(PhasesFact{*phases});
        return facts;
      },
      room);
  if (phases && !(appends && status.ok())) {
    absl::MutexLock lock(&mutex_);
    if (!noted_phases_) noted_phases_ = std::move(phases);
  }
  return OfAnotherHolder(status);
}

absl::Status Store::OfAnotherHolder(const absl::Status& status) const {
  if (!absl::IsAborted(status)) return status;
  return absl::FailedPreconditionError(fmt::format("another process has opened the store {} for writing: {}",
                                                   layout_.directory(), std::string(status.message())));
}

HeldStore Store::Held() const {
  return {.id = id_,
          .session = session_,
          .epoch = journal_->epoch(),
          .place = journal_->applied(),
          .sequence = next_sequence_.load()};
}

absl::StatusOr<bool> Store::SettleCommit(const StepFolder& folder) {
  // A newer epoch does not change what is before it.
  if (absl::Status status = journal_->CheckHolds(); !status.ok() && !absl::IsAborted(status)) return status;
  return WasCommitted(folder);
}

absl::Status Store::CommitAttempt(const StepRecord& record, const PhasesRecord* phases) {
  return Commit(
      record, phases, [this](const StepFolder& folder) { return SyncFolders(folder); },
      [](const StepCatalog&) { return absl::OkStatus(); });
}

absl::Status Store::CommitSynced(const StepRecord& record, const PhasesRecord* phases) {
  return Commit(
      record, phases, [](const StepFolder&) { return absl::OkStatus(); },
      [&](const StepCatalog& catalog) { return CheckReferencesAreKept(catalog, record); });
}

absl::Status Store::Commit(const StepRecord& record, const PhasesRecord* phases,
                           absl::FunctionRef<absl::Status(const StepFolder&)> sync,
                           absl::FunctionRef<absl::Status(const StepCatalog&)> check) {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  const auto id = FromHex(record.info.attempt);
  if (!id) {
    return absl::InternalError(
        fmt::format("commit of step {}: attempt '{}' is not an id", record.info.step, record.info.attempt));
  }
  const StepFolder folder{record.info.step, AttemptId{*id}};
  const WarnLater later(options_.warn);
  absl::Status status = names_.Check();
  if (status.ok()) status = sync(folder);
  if (status.ok()) {
    status = Change([&](const StepCatalog& catalog) -> absl::StatusOr<Facts> {
      if (absl::Status checked = check(catalog); !checked.ok()) return checked;
      return CommitFacts(catalog, record, phases, later.warn);
    });
  }
  if (status.ok()) {
    // An entry of ours is established, so it is known which earlier ones are there.
    BestEffort([this] { RemoveFailedCommits(); });
    RemoveReplaced(later);
    return status;
  }
  // Where nothing was appended, the next save may need the room at once. Where the directory was moved or another
  // process holds the store, the files are not this process's to remove.
  bool removed = false;
  if (!absl::IsUnknown(status) && !absl::IsFailedPrecondition(status)) {
    BestEffort([&] { removed = RemoveTree(files_, layout_.attempt(folder.step, folder.attempt)).ok(); });
  }
  absl::MutexLock lock(&mutex_);
  BestEffort([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!removed) failed_commits_.push_back(folder);
  });
  return status;
}

void Store::NotePhases(PhasesRecord phases) {
  if (!is_holder()) return;
  absl::MutexLock lock(&mutex_);
  noted_phases_ = std::move(phases);
}

absl::Status Store::RecordNotedPhases() {
  std::optional<PhasesRecord> phases;
  {
    absl::MutexLock lock(&mutex_);
    phases.swap(noted_phases_);
  }
  if (!phases) return absl::OkStatus();
  absl::Status status = Change([&](const StepCatalog&) -> absl::StatusOr<Facts> { return Facts{PhasesFact{*phases}}; });
  if (!status.ok()) {
    absl::MutexLock lock(&mutex_);
    if (!noted_phases_) noted_phases_ = std::move(phases);
  }
  return status;
}

absl::Status Store::AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) {
  BestEffort([&] {
    {
      absl::MutexLock lock(&mutex_);
      open_attempts_.erase(identity.attempt);
    }
    // Where the directory was replaced, the files are not this process's to remove.
    absl::Status status = names_.Check();
    if (status.ok()) status = RemoveTree(files_, layout_.attempt(identity.step, identity.attempt));
    if (!status.ok()) {
      options_.warn(fmt::format("files of step {}'s failed save could not be removed: {}", identity.step,
                                std::string(status.message())));
    }
    bool appended = false;
    const absl::Status recorded = Change([&](const StepCatalog& catalog) {
      absl::StatusOr<Facts> facts = FailureFacts(catalog, identity.step, identity.sequence, created, why.ToString());
      appended = facts.ok() && !facts->empty();
      return facts;
    });
    if (!recorded.ok()) {
      options_.warn(fmt::format("the failure of step {} could not be recorded: {}", identity.step,
                                std::string(recorded.message())));
    } else if (appended) {
      RemoveFailedCommits();  // the next save may need their room
    }
  });
  return why;
}

absl::StatusOr<std::vector<Fact>> Store::Look() {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  if (absl::StatusOr<bool> looked = journal_->Look(); !looked.ok()) return looked.status();
  return journal_->TakeNews();
}

absl::Status Store::LookAfresh() {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  return journal_->LookAfresh().status();
}

absl::Status Store::Pin(int64_t step, std::string_view note, std::optional<AttemptId> attempt) {
  return Change([&](const StepCatalog& catalog) { return PinFacts(catalog, step, note, attempt); });
}

absl::Status Store::Unpin(int64_t step, std::optional<AttemptId> attempt) {
  return Change([&](const StepCatalog& catalog) { return UnpinFacts(catalog, step, attempt); });
}

absl::Status Store::Tag(int64_t step, std::string_view name, std::optional<AttemptId> attempt) {
  return Change([&](const StepCatalog& catalog) { return TagFacts(catalog, step, name, attempt); });
}

absl::Status Store::Untag(int64_t step, std::string_view name, std::optional<AttemptId> attempt) {
  return Change([&](const StepCatalog& catalog) { return UntagFacts(catalog, step, name, attempt); });
}

absl::Status Store::MarkStep(int64_t step, const std::string& attempt, StepState state, std::string_view reason) {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  return Change([&](const StepCatalog& catalog) { return MarkFacts(catalog, step, attempt, state, reason); });
}

absl::Status Store::RecordUnsaved(const StepInfo& info) {
  return Change([&](const StepCatalog& catalog) { return UnsavedFacts(catalog, info); });
}

absl::StatusOr<std::vector<ReportOutcome>> Store::RecordReports(std::span<const EvaluationFact> reports) {
  std::vector<ReportOutcome> outcomes;
  absl::Status status = Change([&](const StepCatalog& catalog) { return ReportFacts(catalog, reports, outcomes); });
  if (!status.ok()) return status;
  return outcomes;
}

absl::StatusOr<BestModes> Store::AddBestModes(const BestModes& modes) {
  absl::Status status = Change([&](const StepCatalog& catalog) { return BestModesFacts(catalog, modes); });
  if (!status.ok()) return status;
  return catalog().RecordedBestModes();
}

absl::StatusOr<NotedSteps> Store::NoteSteps(const std::vector<StepNote>& notes, std::optional<int64_t> discard_after) {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  NotedSteps noted;
  absl::Status status = Change(
      [&](const StepCatalog& catalog) { return NoteFacts(catalog, notes, discard_after, kNotedBytesMax, noted); },
      Journal::Room::kReserve);
  if (!status.ok()) return status;
  return noted;
}

absl::Status Store::Answer(std::span<const AnswerFact> answers, size_t* answered) {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  size_t done = 0;
  if (answered == nullptr) answered = &done;
  for (*answered = 0; *answered < answers.size();) {
    Facts facts;
    size_t bytes = 0;
    for (const AnswerFact& answer : answers.subspan(*answered)) {
      const absl::StatusOr<std::string> encoded = EncodeFact(answer);
      if (!encoded.ok()) return encoded.status();
      bytes += encoded->size();
      if (!facts.empty() && bytes > kNotedBytesMax) break;
      facts.push_back(answer);
    }
    const absl::Status status =
        Change([&](const StepCatalog&) -> absl::StatusOr<Facts> { return facts; }, Journal::Room::kReserve);
    if (!status.ok()) return status;
    *answered += facts.size();
  }
  return absl::OkStatus();
}

// Of an older holder, which must not remove what a newer one may need: FailedPrecondition.
absl::Status Store::CheckHolds() {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  return OfAnotherHolder(journal_->CheckHolds());
}

absl::StatusOr<bool> Store::RemoveDeleted(const std::set<AttemptId>& in_use, size_t removals_max) {
  if (absl::Status holds = CheckHolds(); !holds.ok()) return holds;
  const WarnLater later(options_.warn);
  absl::MutexLock deleting(&deletions_mutex_);
  return RemoveDeletedLocked(in_use, removals_max, later);
}

absl::StatusOr<bool> Store::RemoveDeletedLocked(const std::set<AttemptId>& in_use, size_t removals_max,
                                                const WarnLater& later) {
  absl::StatusOr<RemovedGarbage> garbage = RemoveGarbage(files_, layout_, catalog(), in_use, removals_max, later.warn);
  if (!garbage.ok()) return garbage.status();
  journal_->ForgetGarbage(garbage->removed);
  return garbage->more;
}

// Behind a commit, whose caller must not wait for another thread's removals: then the rest is left to the next call of
// RemoveDeleted. Best effort.
void Store::RemoveReplaced(const WarnLater& later) {
  absl::Status status;
  bool holds = false;
  BestEffort([&] {
    status = CheckHolds();
    holds = status.ok();
  });
  if (holds && deletions_mutex_.TryLock()) {
    BestEffort([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(deletions_mutex_) {
      status = RemoveDeletedLocked(/*in_use=*/{}, kRemovalsPerCommitMax, later).status();
    });
    deletions_mutex_.Unlock();
  }
  if (status.ok()) return;
  BestEffort([&] {
    later.warn(
        fmt::format("files of steps that were replaced or deleted are still there: {}", std::string(status.message())));
  });
}

absl::Status Store::Maintain() {
  if (absl::Status holder = CheckIsHolder(); !holder.ok()) return holder;
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  return journal_->Maintain();
}

absl::Status Store::SweepUncommitted(const std::set<AttemptId>& in_use,
                                     const std::function<void(std::string_view)>& warn) {
  if (absl::Status holds = CheckHolds(); !holds.ok()) return holds;
  return Sweep(in_use, warn ? warn : options_.warn);
}

absl::Status Store::Sweep(const std::set<AttemptId>& in_use, const std::function<void(std::string_view)>& warn) {
  std::vector<StepFolder> swept;
  absl::Status status;
  {
    const WarnLater later(warn);
    absl::MutexLock deleting(&deletions_mutex_);
    status = storage::SweepUncommitted(
        files_, layout_, id_, catalog(), journal_->epoch(), in_use,
        [&](const StepFolder& folder) { swept.push_back(folder); }, later.warn);
  }
  for (const StepFolder& folder : swept) {
    if (!options_.note) break;
    options_.note(fmt::format("removed what an earlier process left of its unfinished save of step {}", folder.step));
  }
  return status;
}

}  // namespace tidemark::storage
