#include "storage/manifest/repair.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "storage/io/draft_file_system.h"
#include "storage/io/lock_note.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/identity_recovery.h"
#include "storage/manifest/lease.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/retired_shard.h"
#include "storage/manifest/store.h"
#include "storage/manifest/store_identity.h"
#include "storage/records/metric_report.h"
#include "storage/shard/shard_verify.h"

namespace tidemark::storage {
namespace {

// Of a note that WriteFileDurably had begun to write into a step's folder when the process died.
bool IsTemporaryNote(std::string_view name) {
  if (!name.ends_with(".tmp")) return false;
  name.remove_suffix(4);
  return name == "pin.json" || name == "deleted.json" || IsMetricFileName(name);
}

bool IsOfAttempt(std::string_view name) {
  return name == "pin.json" || name == "deleted.json" || IsMetricFileName(name) ||
         (name.starts_with("shard-") && name.ends_with(".tmk"));
}

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
  Repair(FileSystem& files, const RepairOptions& options)
      : files_(files), options_(options), layout_(options.directory) {}

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
  absl::Status PutAway(const Verdict& verdict);
  absl::Status MarkDamaged(const Verdict& verdict);
  absl::Status CommitAgain(const Verdict& verdict);
  absl::Status RemoveLeftovers();
  absl::Status RemoveDeadLeases();
  absl::Status FinishDeletions();
  absl::Status LookAtStrangers();
  absl::Status Conclude();
  absl::Status RemoveFile(const std::string& path, std::string why);
  void Tell(const StoreChange& change);
  bool IsNeeded(const Verdict& damaged) const;

  FileSystem& files_;
  const RepairOptions& options_;
  const StoreLayout layout_;
  std::vector<std::string> warnings_;  // of the store, in its own words; until it is closed
  std::unique_ptr<Store> store_;
  bool had_retired_ = false;  // opening makes another one
  std::vector<Verdict> sound_, damaged_;
  RepairProgress progress_;
  RepairReport report_;
};

void Repair::Tell(const StoreChange& change) {
  (change.kind == StoreChange::Kind::kLeftAlone ? report_.left_alone : report_.changes).push_back(change);
}

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
  // A lost step is no news to those who were told when it was marked, but it is to whoever asks now.
  absl::StatusOr<std::unique_ptr<Store>> store =
      Store::Open(files_, {.directory = options_.directory,
                           .warn = [this](std::string_view line) { warnings_.emplace_back(line); },
                           .read = options_.read,
                           .look_at_everything = true,
                           .on_change = [this](const StoreChange& change) { Tell(change); }});
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  report_.store = store_->id();
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
  for (const RecordedShard& recorded : verdict.record.shards) {
    const ShardIdentity identity{.store = store_->id(),
                                 .step = info.step,
                                 .attempt = verdict.folder.attempt,
                                 .sequence = info.sequence,
                                 .rank = recorded.rank,
                                 .world_size = info.world_size};
    const std::string path = layout_.shard(info.step, verdict.folder.attempt, recorded.rank, info.world_size);
    absl::StatusOr<ShardVerification> verified =
        VerifyShard(files_, path, layout_.steps(), &identity, options_.read, advance, {}, options_.cancelled);
    if (!verified.ok()) return verified.status();
    std::move(verified->damage.begin(), verified->damage.end(), std::back_inserter(verdict.damage));
  }
  progress_.bytes_done = before + info.stored_bytes;
  for (const ShardDamage& damage : verdict.damage) {
    if (damage.foreign) return absl::FailedPreconditionError(damage.what);
  }
  // What no restore reads takes no step out of service.
  std::vector<ShardDamage> unused;
  for (const ShardDamage& damage : verdict.damage) {
    if (!damage.unused) return absl::OkStatus();
  }
  unused.swap(verdict.damage);
  // Sound in itself, and yet not what was committed: a shard that was put in its place.
  absl::StatusOr<StepRecord> found = ReadAttemptRecord(files_, layout_, store_->id(), verdict.folder);
  absl::Status status = found.status();
  if (found.ok() && found->shards != verdict.record.shards) {
    status = absl::DataLossError("its shards differ in size or digest from those that were committed");
  }
  if (status.ok() && !unused.empty()) {
    StoreChange change = ChangeOf(StoreChange::Kind::kLeftAlone, info.step, unused.front().path, unused);
    change.why += "; no entry is affected, and the step restores";
    Tell(change);
  }
  if (!IsMissingOrDamaged(status)) return status;
  verdict.damage.push_back(
      {.path = layout_.attempt(info.step, verdict.folder.attempt), .what = std::string(status.message())});
  return absl::OkStatus();
}

absl::Status Repair::VerifyAll() {
  std::vector<Verdict> verdicts, lost;
  absl::Status status = store_->manifest().ForEach([&](StepRecord record) {
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

// What was put back of a lost step and is damaged goes the way of other damage. Where only files are missing it is left
// alone: they may come back. (One that is back was committed again when the store was opened.)
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
  }
  if (!verdict.damage.empty()) damaged_.push_back(std::move(verdict));
  return absl::OkStatus();
}

// Whether a step that is not damaged has chunks in its files.
bool Repair::IsNeeded(const Verdict& damaged) const {
  return std::any_of(sound_.begin(), sound_.end(), [&](const Verdict& verdict) {
    const std::vector<FileReference>& references = verdict.record.references;
    return std::any_of(references.begin(), references.end(),
                       [&](const FileReference& file) { return file.attempt == damaged.folder.attempt; });
  });
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
    // A repair was cut short behind this, or somebody has moved it. Why it was damaged can be found out no more.
    reason = fmt::format("damaged, and not in {} any more: {}", layout_.steps(), info.reason);
    change = {.kind = StoreChange::Kind::kMarkedLost, .step = step, .path = change.path, .why = reason};
    status = absl::OkStatus();
  }
  if (status.ok()) status = store_->MarkStep(step, info.attempt, StepState::kLost, reason);
  if (!status.ok()) return status;
  Tell(change);
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
  if (status.ok()) Tell(change);
  return status;
}

// Reads the shards once more: between their verdict and this lies the reading of all other steps, which may take hours,
// and a step that was marked and is whole again is rare.
absl::Status Repair::CommitAgain(const Verdict& verdict) {
  const auto& [step, attempt] = verdict.folder;
  absl::StatusOr<Attempt> read = ReadAttempt(files_, layout_, store_->id(), verdict.folder);
  absl::Status status = read.status();
  if (status.ok()) status = VerifyAndSync(files_, layout_, verdict.folder, *read, options_.read);
  if (status.ok()) status = store_->MarkStep(step, verdict.record.info.attempt, StepState::kCommitted, "");
  if (!status.ok()) return status;
  Tell({.kind = StoreChange::Kind::kCommittedAgain,
        .step = step,
        .path = layout_.attempt(step, attempt),
        .why = "it is marked as damaged, but every byte of its entries verifies"});
  return absl::OkStatus();
}

absl::Status Repair::RemoveFile(const std::string& path, std::string why) {
  absl::Status status = files_.RemoveFile(path);
  if (status.ok()) Tell({.kind = StoreChange::Kind::kRemoved, .path = path, .why = std::move(why)});
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status Repair::RemoveLeftovers() {
  absl::Status status = RemoveFile(layout_.identity() + ".tmp", "store.json was being written");
  if (status.ok() && had_retired_)
    status = RemoveFile(layout_.retired(), "a file kept for reuse from a removed attempt");
  if (!status.ok()) return status;
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
  if (!folders.ok()) return folders.status();
  for (const StepFolder& folder : *folders) {
    const std::string path = layout_.attempt(folder.step, folder.attempt);
    absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(path);
    if (!entries.ok()) return entries.status();
    for (const DirectoryEntry& entry : *entries) {
      if (IsTemporaryNote(entry.name)) {
        status = RemoveFile(path + "/" + entry.name, "a note was being written");
        if (!status.ok()) return status;
      } else if (!IsOfAttempt(entry.name)) {
        Tell({.step = folder.step, .path = path + "/" + entry.name, .why = "it is not Tidemark's"});
      }
    }
  }
  status = RemoveDeadLeases();
  return status.ok() ? FinishDeletions() : status;
}

// What was leased when the store was opened, or could not be removed then.
absl::Status Repair::FinishDeletions() {
  absl::StatusOr<std::vector<DeletionRecord>> before = store_->manifest().Deletions();
  if (!before.ok() || before->empty()) return before.status();
  warnings_.clear();
  if (absl::Status status = store_->RemoveDeleted(/*in_use=*/{}).status(); !status.ok()) return status;
  absl::StatusOr<std::vector<DeletionRecord>> after = store_->manifest().Deletions();
  if (!after.ok()) return after.status();
  std::set<AttemptId> staying;
  for (const DeletionRecord& deletion : *after) staying.insert(deletion.attempt);
  for (const DeletionRecord& deletion : *before) {
    StoreChange change{.kind = StoreChange::Kind::kRemoved,
                       .step = deletion.step,
                       .path = layout_.attempt(deletion.step, deletion.attempt),
                       .why = "it was deleted, or replaced by another attempt"};
    if (staying.contains(deletion.attempt)) {
      // Of those that a step refers to, or somebody reads, there is nothing to be said.
      if (warnings_.empty()) continue;
      change.kind = StoreChange::Kind::kLeftAlone;
      change.why += "; " + warnings_.front();
    }
    Tell(change);
  }
  return absl::OkStatus();
}

absl::Status Repair::RemoveDeadLeases() {
  const auto list = [&]() -> absl::StatusOr<std::set<std::string>> {
    std::set<std::string> names;
    absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.leases());
    if (absl::IsNotFound(entries.status())) return names;
    if (!entries.ok()) return entries.status();
    for (const DirectoryEntry& entry : *entries) names.insert(entry.name);
    return names;
  };
  absl::StatusOr<std::set<std::string>> before = list();
  if (!before.ok()) return before.status();
  if (before->empty()) return absl::OkStatus();
  LeaseObserver observer(files_, layout_, ThisMachine(), MonotonicNow);
  if (absl::Status status = observer.Live().status(); !status.ok()) return status;
  absl::StatusOr<std::set<std::string>> after = list();
  if (!after.ok()) return after.status();
  for (const std::string& name : *before) {
    const std::string path = layout_.leases() + "/" + name;
    if (!after->contains(name)) {
      Tell({.kind = StoreChange::Kind::kRemoved, .path = path, .why = "the lease of a process that is gone"});
    } else if (!AttemptOfLeaseFile(name)) {
      Tell({.path = path, .why = "it is not Tidemark's"});
    }
  }
  return absl::OkStatus();
}

absl::Status Repair::LookAtStrangers() {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (layout_.IsOwnName(entry.name) || entry.name == "lost+found") continue;
    const bool old = entry.name.starts_with("manifest.broken-");
    Tell({.path = layout_.directory() + "/" + entry.name,
          .why = old ? "a manifest that could not be read, kept for inspection" : "it is not Tidemark's"});
  }
  return absl::OkStatus();
}

// What is lost, which of that somebody wanted to keep, and what a restore takes.
absl::Status Repair::Conclude() {
  std::set<int64_t> lost, unread;
  std::map<int64_t, StepInfo> pinned;
  for (const LostStep& step : report_.lost) lost.insert(step.step);
  for (const LostStep& step : report_.unread) unread.insert(step.step);
  absl::Status status = store_->manifest().ForEach([&](StepRecord record) {
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
  if (status.ok()) status = VerifyAll();
  for (size_t i = 0; status.ok() && i < damaged_.size(); ++i) {
    status = CheckCancelled();
    if (status.ok()) status = IsNeeded(damaged_[i]) ? MarkDamaged(damaged_[i]) : PutAway(damaged_[i]);
  }
  for (size_t i = 0; status.ok() && i < sound_.size(); ++i) {
    if (sound_[i].record.info.state != StepState::kDamaged) continue;
    status = CheckCancelled();
    if (status.ok()) status = CommitAgain(sound_[i]);
  }
  if (status.ok()) status = CheckCancelled();
  if (status.ok()) status = RemoveLeftovers();
  if (status.ok()) status = LookAtStrangers();
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
  return Repair(files, options).Run();
}

absl::StatusOr<RepairReport> PlanRepair(FileSystem& files, const RepairOptions& options) {
  const StoreLayout layout(options.directory);
  const absl::StatusOr<std::string> before = ReadLockNote(files, layout);
  if (!before.ok()) return before.status();
  DraftFileSystem draft(files, layout.directory());
  absl::StatusOr<RepairReport> report = RepairStore(draft, options);
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
