#include "storage/store/repair/leftovers.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "storage/io/machine.h"
#include "storage/records/metric_report.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/lease.h"
#include "storage/store/repair/adoption.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// Of a note of the first format that was being written into a step's folder when the process died.
bool IsTemporaryNote(std::string_view name) {
  if (!name.ends_with(".tmp")) return false;
  name.remove_suffix(4);
  return name == "pin.json" || name == "deleted.json" || IsMetricFileName(name);
}

bool IsOfAttempt(std::string_view name) {
  return name == "pin.json" || name == "deleted.json" || IsMetricFileName(name) ||
         (name.starts_with("shard-") && name.ends_with(".tmk"));
}

class Leftovers {
 public:
  Leftovers(FileSystem& files, Store& store, const LeftoversOptions& found)
      : files_(files), store_(store), layout_(store.layout()), found_(found) {}

  absl::Status Remove();

 private:
  absl::Status RemoveFile(const std::string& path, std::string why);
  absl::Status LookAtNotes(const StepFolder& folder);
  absl::Status ListAdoptable(const StepsOfAttempts& attempts, std::set<AttemptId>& adoptable);
  absl::Status SweepUncommitted();
  absl::Status RemoveDeadLeases();
  absl::Status FinishDeletions();
  absl::Status LookAtStrangers();

  FileSystem& files_;
  Store& store_;
  const StoreLayout& layout_;
  const LeftoversOptions& found_;
};

absl::Status Leftovers::RemoveFile(const std::string& path, std::string why) {
  absl::Status status = files_.RemoveFile(path);
  if (status.ok()) found_.tell({.kind = StoreChange::Kind::kRemoved, .path = path, .why = std::move(why)});
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status Leftovers::LookAtNotes(const StepFolder& folder) {
  const std::string path = layout_.attempt(folder.step, folder.attempt);
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(path);
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (IsTemporaryNote(entry.name)) {
      absl::Status status = RemoveFile(path + "/" + entry.name, "a note was being written");
      if (!status.ok()) return status;
    } else if (!IsOfAttempt(entry.name)) {
      found_.tell({.step = folder.step, .path = path + "/" + entry.name, .why = "it is not Tidemark's"});
    }
  }
  return absl::OkStatus();
}

absl::Status Leftovers::Remove() {
  absl::Status status = RemoveFile(layout_.identity() + ".tmp", "store.json was being written");
  if (status.ok() && found_.had_retired)
    status = RemoveFile(layout_.retired(), "a file kept for reuse from a removed attempt");
  // First: what a dead process leased can go.
  if (status.ok()) status = RemoveDeadLeases();
  if (status.ok()) status = FinishDeletions();
  if (status.ok() && found_.before_sweep != nullptr) status = found_.before_sweep();
  if (status.ok()) status = SweepUncommitted();
  if (!status.ok()) return status;
  const absl::StatusOr<StepsOfAttempts> folders = AttemptsOf(files_, layout_);
  if (!folders.ok()) return folders.status();
  for (const auto& [attempt, step] : *folders) {
    if (status = LookAtNotes({step, attempt}); !status.ok()) return status;
  }
  return LookAtStrangers();
}

// The newest whole attempt of each step that is not committed.
absl::Status Leftovers::ListAdoptable(const StepsOfAttempts& attempts, std::set<AttemptId>& adoptable) {
  std::set<int64_t> steps;
  for (const auto& [attempt, step] : attempts) steps.insert(step);
  for (const int64_t step : steps) {
    const absl::StatusOr<std::optional<StepRecord>> record = store_.catalog().Find(step);
    if (!record.ok()) return record.status();
    if (record->has_value() && (*record)->info.state == StepState::kCommitted) continue;
    const auto found = FindAdoptables(files_, layout_, store_.id(), store_.catalog(), step);
    if (found.ok()) {
      adoptable.insert(found->front().folder.attempt);
    } else if (!IsAboutAttempt(found.status())) {
      return found.status();
    }
  }
  return absl::OkStatus();
}

absl::Status Leftovers::SweepUncommitted() {
  std::vector<std::string> strangers;
  const absl::StatusOr<StepsOfAttempts> before = AttemptsOf(files_, layout_, &strangers);
  if (!before.ok()) return before.status();
  std::set<AttemptId> adoptable;
  if (found_.offers_adoption) {
    if (absl::Status status = ListAdoptable(*before, adoptable); !status.ok()) return status;
  }
  found_.warnings.clear();
  if (absl::Status status = store_.SweepUncommitted(); !status.ok()) return status;
  const absl::StatusOr<StepsOfAttempts> after = AttemptsOf(files_, layout_);
  if (!after.ok()) return after.status();
  TellOfMissing(files_, layout_, *before, *after, found_.tell, adoptable);
  for (const std::string& line : found_.warnings) {
    const bool is_of_stranger = std::any_of(strangers.begin(), strangers.end(), [&](const std::string& name) {
      return line.find(layout_.steps() + "/" + name) != std::string::npos;
    });
    if (!is_of_stranger) found_.tell({.path = layout_.steps(), .why = line});
  }
  for (const std::string& name : strangers) {
    found_.tell({.path = layout_.steps() + "/" + name, .why = "it is not an attempt at a step"});
  }
  return absl::OkStatus();
}

absl::Status Leftovers::FinishDeletions() {
  const absl::StatusOr<std::vector<DeletionRecord>> deletions = store_.catalog().Deletions();
  if (!deletions.ok()) return deletions.status();
  // An index that was made anew knows of those again whose files are gone.
  std::vector<DeletionRecord> before;
  for (const DeletionRecord& deletion : *deletions) {
    if (files_.TypeOf(layout_.attempt(deletion.step, deletion.attempt)).ok()) before.push_back(deletion);
  }
  found_.warnings.clear();
  if (absl::Status status = store_.RemoveDeleted(/*in_use=*/{}).status(); !status.ok()) return status;
  absl::StatusOr<std::vector<DeletionRecord>> after = store_.catalog().Deletions();
  if (!after.ok()) return after.status();
  std::set<AttemptId> staying;
  for (const DeletionRecord& deletion : *after) staying.insert(deletion.attempt);
  for (const DeletionRecord& deletion : before) {
    StoreChange change{.kind = StoreChange::Kind::kRemoved,
                       .step = deletion.step,
                       .path = layout_.attempt(deletion.step, deletion.attempt),
                       .why = "it was deleted, or replaced by another attempt"};
    if (staying.contains(deletion.attempt)) {
      // If a step refers to it, or a process reads it, there is nothing to say.
      if (found_.warnings.empty()) continue;
      change.kind = StoreChange::Kind::kLeftAlone;
      change.why += "; " + found_.warnings.front();
    }
    found_.tell(change);
  }
  return absl::OkStatus();
}

absl::Status Leftovers::RemoveDeadLeases() {
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
      found_.tell({.kind = StoreChange::Kind::kRemoved, .path = path, .why = "the lease of a process that is gone"});
    } else if (!AttemptOfLeaseFile(name)) {
      found_.tell({.path = path, .why = "it is not Tidemark's"});
    }
  }
  return absl::OkStatus();
}

absl::Status Leftovers::LookAtStrangers() {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (layout_.IsOwnName(entry.name) || entry.name == "lost+found") continue;
    std::string why = "it is not Tidemark's";
    if (entry.name.starts_with("journal.broken-")) why = "a journal that could not be read, kept for inspection";
    if (entry.name.starts_with("manifest.broken-")) why = "a manifest that could not be read, kept for inspection";
    found_.tell({.path = layout_.directory() + "/" + entry.name, .why = std::move(why)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepsOfAttempts> AttemptsOf(FileSystem& files, const StoreLayout& layout,
                                           std::vector<std::string>* strangers) {
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout, strangers);
  StepsOfAttempts steps;
  if (absl::IsNotFound(folders.status())) return steps;
  if (!folders.ok()) return folders.status();
  for (const StepFolder& folder : *folders) steps[folder.attempt] = folder.step;
  return steps;
}

void TellOfMissing(FileSystem& files, const StoreLayout& layout, const StepsOfAttempts& before,
                   const StepsOfAttempts& after, const OnStoreChange& tell, const std::set<AttemptId>& adoptable) {
  for (const auto& [attempt, step] : before) {
    if (after.contains(attempt)) continue;
    const std::string kept = layout.quarantine() + "/" + StepFolderName(step, attempt);
    const bool is_kept = files.TypeOf(kept).ok();
    tell({.kind = is_kept ? StoreChange::Kind::kQuarantined : StoreChange::Kind::kRemoved,
          .step = step,
          .path = layout.attempt(step, attempt),
          .why = is_kept ? "it is incomplete or damaged, and not known to be committed" : "its save was cut short",
          .adoptable = !is_kept && adoptable.contains(attempt)});
  }
}

absl::Status RemoveLeftovers(FileSystem& files, Store& store, const LeftoversOptions& options) {
  return Leftovers(files, store, options).Remove();
}

}  // namespace tidemark::storage
