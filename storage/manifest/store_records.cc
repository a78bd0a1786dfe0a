// What a store does to the records of steps once these are committed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/disk_reserve.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/store.h"
#include "storage/manifest/warn_later.h"
#include "storage/records/manifest_records.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

// Whether whoever asks means another attempt than the one that the step has.
absl::Status CheckAttempt(std::string_view what, const StepInfo& info, const std::optional<AttemptId>& attempt) {
  if (!attempt || info.attempt == ToHex(attempt->bytes)) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("{} of step {}: another attempt has replaced attempt {}", what, info.step, ToHex(attempt->bytes)));
}

// Whether another attempt is worth more than what is known of this one.
bool IsOutOfService(StepState state) { return state == StepState::kDamaged || state == StepState::kLost; }

}  // namespace

absl::Status Store::UpdateStep(int64_t step, const std::string& attempt, absl::FunctionRef<bool(StepRecord&)> change) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->FindToChange(step);
  if (!record.ok()) return record.status();
  if (record->has_value() && (*record)->info.attempt == attempt && !IsOutOfService((*record)->info.state)) {
    // An attempt that took its place would not have what is recorded here.
    if (absl::Status status = DeleteAbandonedAt(step, later.warn); !status.ok()) return status;
  }
  return ChangeRecord(step, attempt, change);
}

absl::Status Store::ChangeRecord(int64_t step, const std::string& attempt,
                                 absl::FunctionRef<bool(StepRecord&)> change) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->FindToChange(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.attempt != attempt) {
    return absl::NotFoundError(fmt::format("step {} has no record of attempt {}", step, attempt));
  }
  if (!change(**record)) return absl::OkStatus();
  if (absl::Status status = RemoveSettledMark(); !status.ok()) return status;
  // Files may come back inside a folder, which does not show on steps/.
  left_unsettled_ = left_unsettled_ || (*record)->info.state == StepState::kLost;
  return manifest_->Update(**record);
}

absl::StatusOr<BestModes> Store::AddBestModes(const BestModes& modes) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  return manifest_->AddBestModes(modes);
}

absl::Status Store::RecordUnsaved(const StepInfo& info) {
  Check(info.state == StepState::kUnsaved, "RecordUnsaved of a step that is not unsaved");
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->FindToChange(info.step);
  if (!record.ok()) return record.status();
  if (record->has_value()) return absl::OkStatus();
  if (absl::Status status = DeleteAbandonedAt(info.step, later.warn); !status.ok()) return status;
  // It may have one of a failure by now.
  record = manifest_->FindToChange(info.step);
  if (!record.ok()) return record.status();
  if (record->has_value()) return absl::OkStatus();
  if (absl::Status status = RemoveSettledMark(); !status.ok()) return status;
  return manifest_->Update({.info = info});
}

absl::StatusOr<Store::NotedSteps> Store::NoteSteps(const std::vector<StepNote>& notes,
                                                   std::optional<int64_t> discard_after) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  const bool frees =
      discard_after || std::any_of(notes.begin(), notes.end(), [](const StepNote& note) { return note.deleted; });
  const auto ensure_durable = [&] { return manifest_->EnsureDurable(); };
  if (absl::Status status = frees ? WriteToFree(ensure_durable) : ensure_durable(); !status.ok()) return status;
  // A step that was to stay may have turned out to be damaged since; the latest that is left is not let go then.
  absl::StatusOr<std::optional<int64_t>> latest = manifest_->LatestCommitted();
  if (!latest.ok()) return latest.status();
  if (discard_after) {
    const absl::StatusOr<std::optional<StepRecord>> remains = manifest_->FindCommittedAtOrBelow(*discard_after);
    if (!remains.ok()) return remains.status();
    if (!remains->has_value()) {
      return absl::FailedPreconditionError(
          fmt::format("the steps after {} are not discarded: no committed step would remain", *discard_after));
    }
  }
  std::vector<StepRecord> changed;
  std::vector<DeletionRecord> deletions;
  NotedSteps noted;
  size_t bytes = 0;
  for (const StepNote& note : notes) {
    if (bytes >= kNotedBytesMax) break;
    ++noted.notes;
    absl::StatusOr<std::optional<StepRecord>> found = manifest_->Find(note.step);
    if (!found.ok()) return found.status();
    if (!found->has_value()) continue;
    StepRecord& record = **found;
    StepInfo& info = record.info;
    if (info.attempt != note.attempt || info.state != StepState::kCommitted) continue;
    if (note.deleted) {
      if (info.pinned && discard_after) {
        noted.stays = note.step;
        break;
      }
      if (info.pinned || (note.step == *latest && !discard_after)) continue;
      // The folder may have a pin that the record does not know of.
      absl::StatusOr<bool> pinned = JoinPinOfFolder(files_, layout_, later.warn, info);
      if (!pinned.ok()) {
        noted.unsure.emplace(note.step, absl::Status(pinned.status().code(),
                                                     fmt::format("step {} stays, because its pin cannot be read: {}",
                                                                 note.step, std::string(pinned.status().message()))));
        if (discard_after) break;
        continue;
      }
      if (!*pinned) {
        if (auto deletion = DeletionOf(record)) deletions.push_back(*std::move(deletion));
        MakeDeleted(record, note.reason);
        noted.deleted.insert(note.step);
      } else if (discard_after) {
        noted.stays = note.step;
        changed.push_back(std::move(record));
        break;
      }
    } else {
      if (info.kept == note.reason) continue;
      info.kept = note.reason;
    }
    const size_t size = EncodeStepRecord(record).size();
    // What deletes steps fits into the room that is set aside, and a note on one that stays must not change that.
    if (!note.deleted && !noted.deleted.empty() && bytes + size > kNotedBytesMax) {
      --noted.notes;
      break;
    }
    bytes += size;
    changed.push_back(std::move(record));
  }
  if (changed.empty() && !discard_after) return noted;
  const auto is_deleted = [&](const AbandonedAttempt& abandoned) {
    const int64_t step = abandoned.deletion.step;
    return noted.deleted.contains(step) || (discard_after && step > *discard_after);
  };
  const auto write = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_) {
    absl::Status status = RemoveSettledMark();
    if (status.ok()) status = DeleteAbandoned(is_deleted, later.warn);
    return status.ok() && !changed.empty() ? manifest_->Update(changed, deletions) : status;
  };
  if (absl::Status status = noted.deleted.empty() && !discard_after ? write() : WriteToFree(write); !status.ok()) {
    return status;
  }
  return noted;
}

// What room is made by may be written into the room that was set aside for it.
absl::Status Store::WriteToFree(absl::FunctionRef<absl::Status()> write) {
  const absl::Status status = write();
  if (!absl::IsResourceExhausted(status) || !GiveUpRoom(files_, layout_)) return status;
  lacks_reserve_ = true;
  return write();
}

void Store::LookForReserve() {
  absl::MutexLock lock(&records_mutex_);
  lacks_reserve_ = true;
}

// The record of a step whose pin or tags are to change. `what`: for messages.
absl::StatusOr<StepRecord> Store::FindToPin(std::string_view what, int64_t step,
                                            const std::optional<AttemptId>& attempt, bool only_committed) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->FindToChange(step);
  if (!record.ok()) return record.status();
  const bool is_there = record->has_value() && FromHex((*record)->info.attempt).has_value() &&
                        (!only_committed || (*record)->info.state == StepState::kCommitted);
  if (!is_there) return absl::NotFoundError(fmt::format("{} of step {}: it is not committed", what, step));
  if (absl::Status status = CheckAttempt(what, (*record)->info, attempt); !status.ok()) return status;
  return **std::move(record);
}

// What is added is in the folder first, so that a rebuild knows whatever the record does.
absl::Status Store::AddToPin(const StepRecord& record) {
  const StepInfo& info = record.info;
  const StepFolder folder{info.step, AttemptId{*FromHex(info.attempt)}};
  absl::Status status = RemoveSettledMark();
  if (!status.ok()) return status;
  // A mark in the folder of a committed step is of a deletion that the manifest has forgotten, and that a rebuild would
  // believe, pin or no pin.
  const absl::StatusOr<bool> marked = HasDeletionMark(files_, layout_, folder);
  status = marked.status();
  if (status.ok() && *marked) status = RemoveDeletionMark(files_, layout_, folder);
  if (status.ok()) status = WritePin(files_, layout_, folder, info.pin_note, info.tags);
  if (status.ok()) status = manifest_->Update(record);
  left_unsettled_ = left_unsettled_ || !status.ok();
  return status;
}

// What is taken away goes from the record first: it comes back where the folder still has it after a crash. The folder
// is written in any case, for an earlier call may have failed at the sync.
absl::Status Store::TakeFromPin(const StepRecord& record, bool changed, const WarnLater::Warn& warn) {
  const StepInfo& info = record.info;
  const StepFolder folder{info.step, AttemptId{*FromHex(info.attempt)}};
  absl::Status status = RemoveSettledMark();
  // What an attempt at the step has left has its pin, too.
  if (status.ok()) status = DeleteAbandonedAt(info.step, warn);
  if (!status.ok()) return status;
  if (changed) status = manifest_->Update(record);
  if (status.ok()) {
    status =
        info.pinned ? WritePin(files_, layout_, folder, info.pin_note, info.tags) : RemovePin(files_, layout_, folder);
    if (absl::IsNotFound(status)) status = absl::OkStatus();  // the folder of a lost step says nothing
  }
  left_unsettled_ = left_unsettled_ || !status.ok();
  return status;
}

absl::Status Store::Pin(int64_t step, std::string_view note, std::optional<AttemptId> attempt) {
  if (note.size() > kPinNoteBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("pin of step {}: the note has {} bytes; at most {}", step, note.size(), kPinNoteBytesMax));
  }
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<StepRecord> record = FindToPin("pin", step, attempt, /*only_committed=*/true);
  if (!record.ok()) return record.status();
  StepInfo& info = record->info;
  // A tag that only the folder has, since the disk did not give it out to a rebuild, must not be written over.
  absl::StatusOr<bool> joined = JoinPinOfFolder(files_, layout_, later.warn, info, /*must_be_given_out=*/true);
  if (!joined.ok()) return joined.status();
  if (info.pinned && info.pin_note != note) {
    if (absl::Status status = DeleteAbandonedAt(step, later.warn); !status.ok()) return status;
  }
  info.pinned = true;
  info.pin_note = note;
  return AddToPin(*record);
}

absl::Status Store::Unpin(int64_t step, std::optional<AttemptId> attempt) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<StepRecord> record = FindToPin("unpin", step, attempt, /*only_committed=*/false);
  if (!record.ok()) return record.status();
  StepInfo& info = record->info;
  const bool was_pinned = info.pinned;
  info.pinned = false;
  info.pin_note.clear();
  info.tags.clear();
  return TakeFromPin(*record, /*changed=*/was_pinned, later.warn);
}

absl::Status Store::Tag(int64_t step, std::string_view name, std::optional<AttemptId> attempt) {
  if (absl::Status status = CheckTag(name); !status.ok()) {
    return absl::InvalidArgumentError(fmt::format("tag of step {}: {}", step, std::string(status.message())));
  }
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<StepRecord> record = FindToPin("tag", step, attempt, /*only_committed=*/true);
  if (!record.ok()) return record.status();
  StepInfo& info = record->info;
  // The folder's note is somebody's, also where the record does not know of it.
  absl::StatusOr<bool> joined = JoinPinOfFolder(files_, layout_, later.warn, info, /*must_be_given_out=*/true);
  if (!joined.ok()) return joined.status();
  info.pinned = true;
  if (!AddTag(info.tags, name) && !HasTag(info.tags, name)) {
    return absl::OutOfRangeError(
        fmt::format("tag of step {}: it has {} tags; at most {}", step, info.tags.size(), kTagsPerStepMax));
  }
  return AddToPin(*record);
}

absl::Status Store::Untag(int64_t step, std::string_view name, std::optional<AttemptId> attempt) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<StepRecord> record = FindToPin("untag", step, attempt, /*only_committed=*/false);
  if (!record.ok()) return record.status();
  StepInfo& info = record->info;
  // A tag that only the folder has would be back with the next Open.
  absl::StatusOr<bool> joined = JoinPinOfFolder(files_, layout_, later.warn, info, /*must_be_given_out=*/true);
  if (!joined.ok()) return joined.status();
  const bool removed = RemoveTag(info.tags, name);
  return TakeFromPin(*record, /*changed=*/*joined || removed, later.warn);
}

absl::Status Store::MarkStep(int64_t step, const std::string& attempt, StepState state, std::string_view reason) {
  bool deleted = false;
  absl::MutexLock lock(&records_mutex_);
  absl::Status status = ChangeRecord(step, attempt, [&](StepRecord& record) {
    deleted = record.info.state == StepState::kDeleted;
    record.info.state = state;
    record.info.reason = reason;
    if (state != StepState::kCommitted) record.info.kept.clear();
    return !deleted;
  });
  if (!deleted) return status;
  return absl::NotFoundError(fmt::format("step {}, attempt {}, has been deleted", step, attempt));
}

}  // namespace tidemark::storage
