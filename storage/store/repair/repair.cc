#include "storage/store/repair/repair.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "fmt/format.h"
#include "storage/io/draft_file_system.h"
#include "storage/io/lock_note.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/attempt_verify.h"
#include "storage/store/first_format/convert.h"
#include "storage/store/identity_recovery.h"
#include "storage/store/quarantine.h"
#include "storage/store/repair/adoption.h"
#include "storage/store/repair/leftovers.h"
#include "storage/store/repair/requested_adoptions.h"
#include "storage/store/store.h"

namespace tidemark::storage {
namespace {

StoreChange ChangeOf(StoreChange::Kind kind, int64_t step, std::string path, const std::vector<ShardDamage>& damage) {
  StoreChange change{.kind = kind, .step = step, .path = std::move(path), .why = damage.front().what};
  if (damage.size() > 1) change.why += fmt::format(", and {} more", damage.size() - 1);
  std::set<std::string> entries;
  for (const ShardDamage& place : damage) entries.insert(place.entries.begin(), place.entries.end());
  change.entries.assign(entries.begin(), entries.end());
  return change;
}

// One repair. Used once, by one thread.
class Repair {
 public:
  // `draft`: files_ keeps in memory what is written, so no shard is copied.
  Repair(FileSystem& files, const RepairOptions& options, bool draft)
      : files_(files),
        options_(options),
        draft_(draft),
        layout_(options.directory),
        adoptions_(files, options, draft ? AdoptionMode::kLink : AdoptionMode::kCopy, progress_, tell_) {}

  absl::StatusOr<RepairReport> Run();

 private:
  // What reading all of a step came to.
  struct Verdict {
    StepRecord record;
    StepFolder folder;
    std::vector<ShardDamage> damage;
  };

  absl::Status CheckCancelled() const;
  absl::Status OpenStore();
  absl::Status VerifyAll();
  absl::Status Verify(Verdict& verdict);
  absl::Status LookAtLost(Verdict verdict);
  absl::Status PutOutOfService(const Verdict& verdict);
  absl::Status PutAway(const Verdict& verdict);
  absl::Status MarkLost(const Verdict& verdict, std::string why);
  absl::Status MarkDamaged(const Verdict& verdict);
  absl::Status CommitAgain(const Verdict& verdict);
  absl::Status Conclude();
  bool IsNeeded(const Verdict& damaged) const;
  bool IsGone(const StepFolder& folder) const;

  FileSystem& files_;
  const RepairOptions& options_;
  const bool draft_;
  const StoreLayout layout_;
  std::vector<std::string> warnings_;  // of the store, in its own words
  std::unique_ptr<Store> store_;
  bool had_retired_ = false;  // opening makes another one
  std::vector<Verdict> sound_, damaged_;
  RepairProgress progress_;
  RepairReport report_;
  const OnStoreChange tell_ = [this](StoreChange change) {
    auto& list = change.kind == StoreChange::Kind::kLeftAlone ? report_.left_alone : report_.changes;
    list.push_back(std::move(change));
  };
  RequestedAdoptions adoptions_;
};

absl::Status Repair::CheckCancelled() const {
  if (options_.cancelled == nullptr || !options_.cancelled()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("the repair of {} was cancelled", layout_.directory()));
}

absl::Status Repair::OpenStore() {
  // Opening would make a store where there is none.
  absl::StatusOr<FileType> type = files_.TypeOf(layout_.directory());
  if (!type.ok()) return type.status();
  if (*type != FileType::kDirectory) {
    return absl::NotFoundError(fmt::format("{} is not a directory", layout_.directory()));
  }
  absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_);
  if (absl::IsFailedPrecondition(identity.status())) return absl::NotFoundError(identity.status().message());
  if (!identity.ok()) return identity.status();
  if (!identity->id) return absl::NotFoundError(fmt::format("there is no store in {}", layout_.directory()));
  had_retired_ = files_.TypeOf(layout_.retired()).ok();
  const absl::StatusOr<bool> first_format = IsOfFirstFormat(files_, layout_);
  if (!first_format.ok()) return first_format.status();
  if (*first_format && !options_.adopt.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("nothing is adopted: {} is of the first format; its conversion commits every attempt that is whole",
                    layout_.directory()));
  }
  const absl::StatusOr<StepsOfAttempts> attempts = AttemptsOf(files_, layout_);
  if (!attempts.ok()) return attempts.status();
  const absl::StatusOr<FileId> journal = files_.Identify(layout_.journal());
  absl::StatusOr<std::unique_ptr<Store>> store =
      Store::Open(files_, {.directory = options_.directory,
                           .warn = [this](std::string_view line) { warnings_.emplace_back(line); },
                           .read = options_.read,
                           .checks_journal = true});
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  report_.store = store_->id();
  if (!identity->written.ok()) {
    tell_({.kind = StoreChange::Kind::kIdentityWritten,
           .path = layout_.identity(),
           .why = std::string(identity->written.message())});
  }
  const std::string said = warnings_.empty() ? "it is missing, or it was not closed" : absl::StrJoin(warnings_, "; ");
  const absl::StatusOr<FileId> journal_now = files_.Identify(layout_.journal());
  const bool rebuilt = !journal.ok() || !journal_now.ok() || *journal != *journal_now;
  if (*first_format) {
    tell_({.kind = StoreChange::Kind::kConverted,
           .path = layout_.manifest(),
           .why = warnings_.empty() ? "the store is of the first format" : said});
  } else if (rebuilt) {
    tell_({.kind = StoreChange::Kind::kJournalRebuilt, .path = layout_.journal(), .why = said});
  } else if (store_->index_is_new()) {
    tell_({.kind = StoreChange::Kind::kIndexMade, .path = layout_.index(), .why = said});
  } else {
    for (const std::string& line : warnings_) tell_({.path = layout_.directory(), .why = line});
  }
  const absl::StatusOr<StepsOfAttempts> after = AttemptsOf(files_, layout_);
  if (!after.ok()) return after.status();
  TellOfMissing(files_, layout_, *attempts, *after, tell_);
  return absl::OkStatus();
}

// Reads every byte of the step. An error says that reading failed, or that it came upon what is not this store's.
absl::Status Repair::Verify(Verdict& verdict) {
  const StepInfo& info = verdict.record.info;
  const uint64_t before = progress_.bytes_done;
  const auto advance = [&](uint64_t bytes) {
    progress_.step = info.step;
    progress_.bytes_done += bytes;
    progress_.bytes_total = std::max(progress_.bytes_total, progress_.bytes_done);
    if (options_.progress != nullptr) options_.progress(progress_);
  };
  absl::StatusOr<AttemptVerification> verified =
      VerifyAttempt(files_, layout_, store_->id(), verdict.record,
                    {.read = options_.read, .progress = advance, .cancelled = options_.cancelled});
  if (!verified.ok()) return verified.status();
  const bool restorable = verified->restorable();
  verdict.damage = std::move(verified->damage);
  progress_.bytes_done = before + info.stored_bytes;
  for (const ShardDamage& damage : verdict.damage) {
    if (damage.foreign) return absl::FailedPreconditionError(damage.what);
  }
  if (restorable && !verdict.damage.empty()) {
    // What no restore reads takes no step out of service.
    StoreChange change =
        ChangeOf(StoreChange::Kind::kLeftAlone, info.step, verdict.damage.front().path, verdict.damage);
    change.why += "; no entry is affected, and the step restores";
    tell_(change);
    verdict.damage.clear();
  }
  return absl::OkStatus();
}

absl::Status Repair::VerifyAll() {
  std::vector<Verdict> verdicts, lost;
  absl::Status status = store_->catalog().ForEach([&](StepRecord record) {
    const auto id = FromHex(record.info.attempt);
    const StepState state = record.info.state;
    if (!id || !MayHaveFiles(state)) return true;
    const StepFolder folder{record.info.step, AttemptId{*id}};
    if (state != StepState::kLost) progress_.bytes_total += record.info.stored_bytes;
    (state == StepState::kLost ? lost : verdicts).push_back({.record = std::move(record), .folder = folder});
    return true;
  });
  if (!status.ok()) return status;
  std::set<AttemptId> unread;
  const auto leave = [&](Verdict& verdict, std::string why) {
    report_.unread.push_back({.step = verdict.folder.step, .why = std::move(why)});
    unread.insert(verdict.folder.attempt);
    // Nobody knows whether it is sound, so what it refers to stays.
    verdict.damage.clear();
    verdict.record.info.state = StepState::kCommitted;
  };
  for (Verdict& verdict : verdicts) {
    const absl::Status read = Verify(verdict);
    // The system has an error of that name, too.
    if (absl::IsCancelled(read) && options_.cancelled != nullptr) return read;
    if (!read.ok()) leave(verdict, std::string(read.message()));
  }
  for (Verdict& verdict : verdicts) {
    // Who has chunks in files that could not be judged cannot be judged either.
    const std::vector<FileReference>& references = verdict.record.references;
    const bool hangs = std::any_of(references.begin(), references.end(),
                                   [&](const FileReference& file) { return unread.contains(file.attempt); });
    if (hangs && !verdict.damage.empty()) leave(verdict, verdict.damage.front().what);
    (verdict.damage.empty() ? sound_ : damaged_).push_back(std::move(verdict));
  }
  for (Verdict& verdict : lost) {
    if (status = LookAtLost(std::move(verdict)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A lost step whose files are back is committed again if they are sound. What was put back and is damaged goes the way
// of other damage. Where only files are missing it is left alone: they may come back.
absl::Status Repair::LookAtLost(Verdict verdict) {
  const absl::Status read = ReadAttemptRecord(files_, layout_, store_->id(), verdict.folder).status();
  if (absl::IsDataLoss(read)) {
    verdict.damage.push_back(
        {.path = layout_.attempt(verdict.folder.step, verdict.folder.attempt), .what = std::string(read.message())});
  } else if (read.ok()) {
    for (const FileReference& file : verdict.record.references) {
      const std::string path = layout_.shard(file.step, file.attempt, file.rank, file.world_size);
      if (!files_.TypeOf(path).ok()) return absl::OkStatus();
    }
    const absl::Status verified = Verify(verdict);
    if (absl::IsCancelled(verified) && options_.cancelled != nullptr) return verified;
    // Lost it stays, whatever cannot be read of it.
    if (!verified.ok()) return absl::OkStatus();
    if (verdict.damage.empty()) sound_.push_back(verdict);
  }
  if (!verdict.damage.empty()) damaged_.push_back(std::move(verdict));
  return absl::OkStatus();
}

// Whether a step that is not damaged, or is to be adopted, has chunks in its files.
bool Repair::IsNeeded(const Verdict& damaged) const {
  const auto refers_to_it = [&](const Verdict& verdict) {
    const std::vector<FileReference>& references = verdict.record.references;
    return std::any_of(references.begin(), references.end(),
                       [&](const FileReference& file) { return file.attempt == damaged.folder.attempt; });
  };
  return std::any_of(sound_.begin(), sound_.end(), refers_to_it) || adoptions_.ReferTo(damaged.folder.attempt);
}

bool Repair::IsGone(const StepFolder& folder) const {
  return absl::IsNotFound(files_.TypeOf(layout_.attempt(folder.step, folder.attempt)).status());
}

absl::Status Repair::PutOutOfService(const Verdict& verdict) {
  if (verdict.record.info.state == StepState::kCommitted) {
    // Its files stay, for those that are gone may come back.
    if (IsGone(verdict.folder)) return MarkLost(verdict, "its folder is gone");
    for (const FileReference& file : verdict.record.references) {
      if (!IsGone({file.step, file.attempt})) continue;
      return MarkLost(
          verdict, fmt::format("{}, which holds some of its chunks, is gone", StepFolderName(file.step, file.attempt)));
    }
  }
  return IsNeeded(verdict) ? MarkDamaged(verdict) : PutAway(verdict);
}

absl::Status Repair::MarkLost(const Verdict& verdict, std::string why) {
  const auto& [step, attempt] = verdict.folder;
  absl::Status status = store_->MarkStep(step, verdict.record.info.attempt, StepState::kLost, why);
  if (!status.ok()) return status;
  tell_({.kind = StoreChange::Kind::kMarkedLost, .step = step, .path = layout_.attempt(step, attempt), .why = why});
  report_.lost.push_back({.step = step, .why = std::move(why)});
  return status;
}

// Damaged, then moved, then lost: wherever this is cut short the record says that the step was committed and is not to
// be had, and names its files, so that nobody takes what is still there for leftovers.
absl::Status Repair::PutAway(const Verdict& verdict) {
  const auto& [step, attempt] = verdict.folder;
  const StepInfo& info = verdict.record.info;
  StoreChange change = ChangeOf(StoreChange::Kind::kQuarantined, step, layout_.attempt(step, attempt), verdict.damage);
  std::string reason = fmt::format("damaged, and moved to quarantine: {}", change.why);
  absl::Status status;
  if (info.state == StepState::kCommitted) {
    status = store_->MarkStep(step, info.attempt, StepState::kDamaged, change.why);
  }
  if (status.ok()) status = MoveToQuarantine(files_, layout_, verdict.folder);
  if (absl::IsNotFound(status)) {
    // A repair was cut short behind this, or a person has moved it. Its record says why it was damaged.
    reason = fmt::format("damaged, and not in {} any more: {}", layout_.steps(), info.reason);
    change = {.kind = StoreChange::Kind::kMarkedLost, .step = step, .path = change.path, .why = reason};
    status = absl::OkStatus();
  }
  if (status.ok()) status = store_->MarkStep(step, info.attempt, StepState::kLost, reason);
  if (!status.ok()) return status;
  tell_(change);
  report_.lost.push_back({.step = step, .why = reason, .entries = change.entries});
  return absl::OkStatus();
}

absl::Status Repair::MarkDamaged(const Verdict& verdict) {
  const auto& [step, attempt] = verdict.folder;
  const StoreChange change =
      ChangeOf(StoreChange::Kind::kMarkedDamaged, step, layout_.attempt(step, attempt), verdict.damage);
  report_.lost.push_back({.step = step, .why = change.why, .entries = change.entries});
  if (verdict.record.info.state != StepState::kCommitted) return absl::OkStatus();
  absl::Status status = store_->MarkStep(step, verdict.record.info.attempt, StepState::kDamaged, change.why);
  if (status.ok()) tell_(change);
  return status;
}

// Reads the shards once more: between their verdict and this lies the reading of all other steps, which may take hours,
// and a step that was marked and is whole again is rare.
absl::Status Repair::CommitAgain(const Verdict& verdict) {
  const auto& [step, attempt] = verdict.folder;
  absl::Status status = SyncReferences(files_, layout_, verdict.record.references);
  if (status.ok()) status = CheckAttempt(files_, layout_, store_->id(), verdict.record, {.read = options_.read});
  if (status.ok()) status = SyncAttempt(files_, layout_, verdict.record);
  if (status.ok()) status = store_->MarkStep(step, verdict.record.info.attempt, StepState::kCommitted, "");
  if (!status.ok()) return status;
  tell_({.kind = StoreChange::Kind::kCommittedAgain,
         .step = step,
         .path = layout_.attempt(step, attempt),
         .why = fmt::format("it is marked as {}, but every byte of its entries verifies",
                            verdict.record.info.state == StepState::kLost ? "lost" : "damaged")});
  return absl::OkStatus();
}

// What is lost, which of that somebody wanted to keep, and what a restore takes.
absl::Status Repair::Conclude() {
  std::set<int64_t> lost, unread;
  std::map<int64_t, StepInfo> pinned;
  for (const LostStep& step : report_.lost) lost.insert(step.step);
  for (const LostStep& step : report_.unread) unread.insert(step.step);
  absl::Status status = store_->catalog().ForEach([&](StepRecord record) {
    const StepInfo& info = record.info;
    if (info.state == StepState::kCommitted && !unread.contains(info.step)) report_.restores = info.step;
    if (info.state == StepState::kLost && !lost.contains(info.step)) {
      report_.lost.push_back({.step = info.step, .why = info.reason});
    }
    if (info.pinned) pinned[info.step] = info;
    return true;
  });
  for (LostStep& step : report_.lost) {
    const auto found = pinned.find(step.step);
    if (found == pinned.end()) continue;
    step.pinned = true;
    step.pin_note = found->second.pin_note;
    step.tags = found->second.tags;
  }
  std::sort(report_.lost.begin(), report_.lost.end(),
            [](const LostStep& a, const LostStep& b) { return a.step < b.step; });
  return status;
}

absl::StatusOr<RepairReport> Repair::Run() {
  absl::Status status = OpenStore();
  if (status.ok()) status = adoptions_.List(*store_);
  if (status.ok()) status = VerifyAll();
  if (status.ok()) status = adoptions_.Verify(*store_);
  for (size_t i = 0; status.ok() && i < damaged_.size(); ++i) {
    status = CheckCancelled();
    if (status.ok()) status = PutOutOfService(damaged_[i]);
  }
  for (size_t i = 0; status.ok() && i < sound_.size(); ++i) {
    if (sound_[i].record.info.state == StepState::kCommitted) continue;
    status = CheckCancelled();
    if (status.ok()) status = CommitAgain(sound_[i]);
  }
  if (status.ok()) status = CheckCancelled();
  if (status.ok()) {
    status = RemoveLeftovers(files_, *store_,
                             {.had_retired = had_retired_,
                              .offers_adoption = draft_,
                              .before_sweep = [this] { return adoptions_.Adopt(*store_, report_); },
                              .warnings = warnings_,
                              .tell = tell_});
  }
  if (status.ok()) status = Conclude();
  if (!status.ok()) return status;
  return std::move(report_);
}

// Empty where nobody has ever had the lock.
absl::StatusOr<std::string> ReadLockNote(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::string> note = files.ReadNote(layout.lock(), kNoteBytesMax);
  if (absl::IsNotFound(note.status())) return std::string();
  return note;
}

}  // namespace

absl::StatusOr<RepairReport> RepairStore(FileSystem& files, const RepairOptions& options) {
  return Repair(files, options, /*draft=*/false).Run();
}

absl::StatusOr<RepairReport> PlanRepair(FileSystem& files, const RepairOptions& options) {
  const StoreLayout layout(options.directory);
  const absl::StatusOr<std::string> before = ReadLockNote(files, layout);
  if (!before.ok()) return before.status();
  DraftFileSystem draft(files, layout.directory());
  absl::StatusOr<RepairReport> report = Repair(draft, options, /*draft=*/true).Run();
  // Whoever takes the lock leaves a note, which says when that was.
  if (absl::IsUnavailable(report.status())) return report;
  const absl::StatusOr<std::string> after = ReadLockNote(files, layout);
  if (after.ok() && *before != *after) {
    return absl::UnavailableError(fmt::format("store {} was opened by another process during the inspection: {}",
                                              layout.directory(), PrintableNote(*after)));
  }
  if (report.ok() && !after.ok()) return after.status();
  return report;
}

}  // namespace tidemark::storage
