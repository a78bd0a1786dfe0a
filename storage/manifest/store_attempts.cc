// What a store does with attempts at steps: begins them, commits them, and lets go of what failed.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "storage/io/exception_status.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/disk_reserve.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/retired_shard.h"
#include "storage/manifest/store.h"
#include "storage/manifest/warn_later.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {
namespace {

// The record that there is of the step: none, or that of an earlier failure, beside which rows may be.
StepRecord FailureOf(std::optional<StepRecord> known, int64_t step, uint64_t sequence, absl::Time created,
                     const std::string& reason) {
  StepRecord failed = known ? *std::move(known) : StepRecord();
  failed.info.step = step;
  failed.info.state = StepState::kFailed;
  failed.info.sequence = sequence;
  failed.info.created = created;
  failed.info.reason = reason;
  return failed;
}

}  // namespace

// Numbers of attempts that failed are given again by the next process, and a save that is tried again has one time.
bool Store::IsNewer(const StepInfo& failed, const AbandonedAttempt& abandoned) {
  return std::pair(failed.created, failed.sequence) > std::pair(abandoned.created, abandoned.sequence);
}

absl::StatusOr<ShardIdentity> Store::BeginAttempt(int64_t step) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  ShardIdentity identity;
  identity.store = id_;
  identity.step = step;
  identity.attempt = AttemptId{RandomBytes16()};
  identity.sequence = next_sequence_.fetch_add(1);
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  open_attempts_.insert(identity.attempt);
  const auto begin = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_) {
    const absl::Status status = RemoveSettledMark();
    return status.ok() ? files_.CreateDirectory(layout_.attempt(step, identity.attempt)) : status;
  };
  absl::Status status = begin();
  if (absl::IsResourceExhausted(status) && DeleteToMakeRoom(later.warn)) status = begin();
  if (!status.ok()) {
    open_attempts_.erase(identity.attempt);
    return status;
  }
  return identity;
}

bool Store::Recycle(const ShardIdentity& identity) {
  const bool recycled =
      RecycleShard(files_, layout_, layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size));
  if (recycled) recycled_ = true;
  return recycled;
}

absl::Status Store::CommitAttempt(const StepRecord& record, const PhasesRecord* phases) {
  const auto id = FromHex(record.info.attempt);
  if (!id)
    return absl::InternalError(
        fmt::format("commit of step {}: attempt '{}' is not an id", record.info.step, record.info.attempt));
  const StepFolder folder{record.info.step, AttemptId{*id}};
  absl::Status synced = names_.Check();
  if (synced.ok()) synced = SyncFolders(folder);
  absl::StatusOr<std::optional<DeletionRecord>> replaced = std::nullopt;
  const WarnLater later(options_.warn);
  {
    absl::MutexLock lock(&records_mutex_);
    // Made before the commit, because after one that failed there may be no memory for it.
    AbandonedAttempt abandoned{.deletion = {.step = folder.step, .attempt = folder.attempt},
                               .sequence = record.info.sequence,
                               .created = record.info.created,
                               .whole = true};
    for (const FileReference& file : record.references) abandoned.deletion.references.push_back(file.attempt);
    abandoned_.reserve(abandoned_.size() + 1);
    try {
      replaced = synced.ok() ? CommitLocked(record, phases, later.warn) : synced;
    } catch (...) {
      replaced = ExceptionStatus("commit a step");
    }
    if (!replaced.ok()) {
      BestEffort([&] { abandoned.why = replaced.status().ToString(); });
      abandoned_.push_back(std::move(abandoned));
      return replaced.status();
    }
    // The step is committed: what follows has no part in whether it is.
    BestEffort([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_) { TidyAfterCommit(folder, later.warn); });
  }
  if (!replaced->has_value()) return absl::OkStatus();
  BestEffort([&] {
    if (absl::StatusOr<bool> more = RemoveDeleted(/*in_use=*/{}, kRemovalsPerCommitMax); !more.ok()) {
      options_.warn(fmt::format("step {} was replaced, but its old files are still there: {}", record.info.step,
                                std::string(more.status().message())));
    }
  });
  return absl::OkStatus();
}

void Store::TidyAfterCommit(const StepFolder& folder, const WarnLater::Warn& warn) {
  open_attempts_.erase(folder.attempt);
  // Only now that a later save is on disk: until then a whole attempt, though its commit failed, is better than none.
  const auto all = [](const AbandonedAttempt&) { return true; };
  if (absl::Status status = DeleteAbandoned(all, warn); !status.ok()) {
    warn(fmt::format("files of failed saves could not be removed: {}", std::string(status.message())));
  }
  if (lacks_reserve_) lacks_reserve_ = !SetRoomAside(files_, layout_);
}

absl::Status Store::SyncFolders(const StepFolder& folder) {
  absl::Status status = files_.SyncDirectory(layout_.attempt(folder.step, folder.attempt));
  if (status.ok()) status = files_.SyncDirectory(layout_.steps());
  // A shard that was recycled came from there: until both directories are synced power loss may take it back.
  if (status.ok() && recycled_.exchange(false)) {
    status = files_.SyncDirectory(layout_.directory());
    if (!status.ok()) recycled_ = true;
  }
  return status;
}

absl::StatusOr<std::optional<DeletionRecord>> Store::CommitLocked(StepRecord record, const PhasesRecord* phases,
                                                                  const WarnLater::Warn& warn) {
  absl::StatusOr<std::optional<StepRecord>> old = manifest_->FindToChange(record.info.step);
  if (!old.ok()) return old.status();
  if (old->has_value()) {
    if (absl::Status pinned = InheritPin(files_, layout_, (*old)->info, warn, record.info); !pinned.ok()) {
      warn(fmt::format("step {} stays pinned, but a rebuild of the manifest would lose the pin: {}", record.info.step,
                       std::string(pinned.message())));
    }
  }
  absl::StatusOr<std::optional<DeletionRecord>> replaced = manifest_->Commit(record, phases);
  if (replaced.ok() && old->has_value()) {
    // One whose commit only seemed to fail was the step's until now, and may be read: it goes as any that is replaced.
    const auto is_old = [&](const AttemptId& attempt) { return ToHex(attempt.bytes) == (*old)->info.attempt; };
    std::erase_if(abandoned_, [&](const AbandonedAttempt& other) { return is_old(other.deletion.attempt); });
    std::erase_if(open_attempts_, is_old);
  }
  return replaced;
}

void Store::AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) {
  BestEffort([&] {
    // At once, for the disk may be full. What stays is tried again, and told of, below.
    RemoveTree(files_, layout_.attempt(identity.step, identity.attempt)).IgnoreError();
    const WarnLater later(options_.warn);
    absl::MutexLock lock(&records_mutex_);
    abandoned_.push_back({.deletion = {.step = identity.step, .attempt = identity.attempt},
                          .sequence = identity.sequence,
                          .created = created,
                          .why = why.ToString()});
    const auto broken = [](const AbandonedAttempt& abandoned) { return !abandoned.whole; };
    if (absl::Status status = DeleteAbandoned(broken, later.warn); !status.ok()) {
      later.warn(fmt::format("the failure of step {} could not be recorded: {}", identity.step,
                             std::string(status.message())));
    }
  });
}

void Store::MakeRoom() {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  DeleteToMakeRoom(later.warn);
}

// A whole one is better than none, but not than the saves that find no room beside it. Returns whether any went.
bool Store::DeleteToMakeRoom(const WarnLater::Warn& warn) {
  const auto whole = [](const AbandonedAttempt& abandoned) { return abandoned.whole; };
  if (std::none_of(abandoned_.begin(), abandoned_.end(), whole)) return false;
  const size_t before = abandoned_.size();
  const auto all = [](const AbandonedAttempt&) { return true; };
  const auto let_go = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_) { return DeleteAbandoned(all, warn); };
  if (absl::Status status = WriteToFree(let_go); !status.ok()) {
    warn(fmt::format("files of failed saves still use disk space: {}", std::string(status.message())));
  }
  return abandoned_.size() < before;
}

absl::Status Store::DeleteAbandonedAt(int64_t step, const WarnLater::Warn& warn) {
  return DeleteAbandoned([step](const AbandonedAttempt& abandoned) { return abandoned.deletion.step == step; }, warn);
}

// From now on no Open and no rebuild takes any of those for the step's.
absl::Status Store::DeleteAbandoned(absl::FunctionRef<bool(const AbandonedAttempt&)> which,
                                    const WarnLater::Warn& warn) {
  std::map<int64_t, StepRecord> failures;
  std::vector<DeletionRecord> deletions;
  std::set<AttemptId> settled, replaced;
  bool gone = false;
  absl::Status first;
  if (std::none_of(abandoned_.begin(), abandoned_.end(), which)) return absl::OkStatus();
  absl::StatusOr<std::vector<DeletionRecord>> known = manifest_->Deletions();
  if (!known.ok()) return known.status();
  for (const DeletionRecord& deletion : *known) replaced.insert(deletion.attempt);
  for (const AbandonedAttempt& abandoned : abandoned_) {
    if (!which(abandoned)) continue;
    const DeletionRecord& deletion = abandoned.deletion;
    absl::StatusOr<std::optional<StepRecord>> record = manifest_->FindToChange(deletion.step);
    first.Update(record.status());
    if (!record.ok()) continue;
    settled.insert(deletion.attempt);
    // A commit that failed may have reached the disk all the same, and the attempt may have been replaced since.
    if (record->has_value() && (*record)->info.attempt == ToHex(deletion.attempt.bytes)) continue;
    if (replaced.contains(deletion.attempt)) continue;
    // Removed at once, for on a full disk there is room for nothing else.
    const StepFolder folder{deletion.step, deletion.attempt};
    if (absl::Status status = RemoveTree(files_, layout_.attempt(folder.step, folder.attempt)); status.ok()) {
      gone = true;
    } else {
      const absl::Status marked = WriteDeletionMark(files_, layout_, folder, "its save failed");
      warn(fmt::format("files of step {}'s failed save could not be removed{}: {}", deletion.step,
                       marked.ok() ? "" : ", and a rebuild of the manifest may take it for the step",
                       std::string(status.message())));
      deletions.push_back(deletion);
    }
    // What is known of a step that was evaluated or deleted is worth more than why a save at it failed, and the last
    // failure more than those before it.
    const bool more_is_known =
        record->has_value() && ((*record)->info.state != StepState::kFailed || IsNewer((*record)->info, abandoned));
    if (more_is_known) continue;
    failures[deletion.step] =
        FailureOf(*std::move(record), deletion.step, abandoned.sequence, abandoned.created, abandoned.why);
  }
  if (settled.empty()) return first;
  absl::Status status = gone ? files_.SyncDirectory(layout_.steps()) : absl::OkStatus();
  if (!status.ok()) return status;
  if (!failures.empty() || !deletions.empty()) {
    std::vector<StepRecord> records;
    for (auto& [step, record] : failures) records.push_back(std::move(record));
    status = RemoveSettledMark();
    if (status.ok()) status = manifest_->Update(records, deletions);
    if (!status.ok()) return status;
  }
  for (const AttemptId& attempt : settled) open_attempts_.erase(attempt);
  std::erase_if(abandoned_,
                [&](const AbandonedAttempt& abandoned) { return settled.contains(abandoned.deletion.attempt); });
  return first;
}

}  // namespace tidemark::storage
