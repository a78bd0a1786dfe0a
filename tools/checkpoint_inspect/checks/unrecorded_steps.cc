#include "tools/checkpoint_inspect/checks/unrecorded_steps.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/store_layout.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

using storage::StepFolder;
using storage::StepRecord;

// nullptr: there is no record of the step.
const StepInfo* FindRecord(const StoreReader& reader, int64_t step) {
  const std::vector<StepInfo>& steps = reader.Steps();
  const auto found = std::lower_bound(steps.begin(), steps.end(), step,
                                      [](const StepInfo& info, int64_t number) { return info.step < number; });
  return found == steps.end() || found->step != step ? nullptr : &*found;
}

// An attempt that was replaced has the lower sequence and waits for its removal. A save that failed replaces nothing.
bool IsUnrecorded(const StoreReader& reader, const StepInfo& attempt) {
  const StepInfo* const record = FindRecord(reader, attempt.step);
  if (record == nullptr) return true;
  const bool replaces = record->state == StepState::kCommitted || record->state == StepState::kDeleted;
  return record->attempt != attempt.attempt && (record->sequence < attempt.sequence || !replaces);
}

// Whether the files are there in which earlier attempts' chunks lie.
absl::StatusOr<bool> HasReferences(storage::FileSystem& files, const storage::StoreLayout& layout,
                                   const StepRecord& record) {
  for (const storage::FileReference& file : record.references) {
    const absl::Status there = files.TypeOf(layout.shard(file.step, file.attempt, file.rank, file.world_size)).status();
    if (absl::IsNotFound(there)) return false;
    if (!there.ok()) return there;
  }
  return true;
}

// Of the folders that no record names, those whose attempt an opening would take in.
absl::StatusOr<std::vector<StepInfo>> FindWholeAttempts(storage::FileSystem& files, const StoreReader& reader,
                                                        const storage::StoreLayout& layout) {
  const storage::StoreId store{*storage::FromHex(reader.store_id())};
  std::vector<StepInfo> whole;
  std::vector<std::string> strangers;
  const absl::StatusOr<std::vector<StepFolder>> folders = storage::ListAttempts(files, layout, &strangers);
  if (absl::IsNotFound(folders.status())) return whole;  // the making of the store was cut short
  if (!folders.ok()) return folders.status();
  for (const StepFolder& folder : *folders) {
    if (IsInterrupted()) return absl::CancelledError("interrupted");
    const StepInfo* const recorded = FindRecord(reader, folder.step);
    if (recorded != nullptr && recorded->attempt == storage::ToHex(folder.attempt.bytes)) continue;
    const absl::StatusOr<bool> let_go = storage::HasDeletionMark(files, layout, folder);
    if (!let_go.ok()) return let_go.status();
    if (*let_go) continue;
    absl::StatusOr<StepRecord> attempt = storage::ReadAttemptRecord(files, layout, store, folder);
    // An opening removes the first two and leaves the others alone.
    if (storage::IsMissingOrDamaged(attempt.status()) || absl::IsFailedPrecondition(attempt.status()) ||
        absl::IsUnimplemented(attempt.status())) {
      continue;
    }
    if (!attempt.ok()) return attempt.status();
    if (!IsUnrecorded(reader, attempt->info)) continue;
    const absl::StatusOr<bool> complete = HasReferences(files, layout, *attempt);
    if (!complete.ok()) return complete.status();
    if (*complete) whole.push_back(std::move(attempt->info));
  }
  return whole;
}

// Whether somebody has the store open to write. A look leaves nothing behind: who opens a file shares a lock that the
// holder of LOCK keeps off, and whoever wants that lock waits so short a look out.
absl::StatusOr<bool> IsHeld(storage::FileSystem& files, const storage::StoreLayout& layout) {
  const absl::Status there = files.TypeOf(layout.lock()).status();
  if (absl::IsNotFound(there)) return false;
  if (!there.ok()) return there;
  const absl::Status opened = files.OpenForRead(layout.lock(), /*direct=*/false).status();
  if (absl::IsNotFound(opened)) return true;
  if (!opened.ok()) return opened;
  return false;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> FindUnrecordedSteps(storage::FileSystem& files, StoreReader& reader,
                                                         const std::string& directory) {
  const storage::StoreLayout layout(directory);
  const absl::StatusOr<std::vector<StepInfo>> whole = FindWholeAttempts(files, reader, layout);
  if (!whole.ok()) return whole.status();
  if (whole->empty()) return std::vector<int64_t>();
  // In this order: what was recorded before the store was deleted is in what is read after that.
  const absl::StatusOr<bool> held = IsHeld(files, layout);
  if (!held.ok()) return held.status();
  if (*held) return std::vector<int64_t>();
  if (absl::Status status = RefreshStore(reader); !status.ok()) return status;
  std::set<int64_t> steps;
  for (const StepInfo& attempt : *whole) {
    if (IsUnrecorded(reader, attempt)) steps.insert(attempt.step);
  }
  return std::vector<int64_t>(steps.begin(), steps.end());
}

}  // namespace tidemark::inspect
