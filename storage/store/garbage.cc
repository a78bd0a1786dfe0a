#include "storage/store/garbage.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/leased_attempts.h"
#include "storage/store/retired_shard.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// "deleted", or "replaced" by another attempt.
absl::StatusOr<std::string_view> FateOf(const StepCatalog& catalog, const DeletionRecord& deletion) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(deletion.step);
  if (!record.ok()) return record.status();
  return !record->has_value() || (*record)->info.attempt == ToHex(deletion.attempt.bytes) ? "deleted" : "replaced";
}

// The part of the catalog's garbage that can be removed now.
absl::StatusOr<std::vector<DeletionRecord>> Removable(FileSystem& files, const StoreLayout& layout,
                                                      const StepCatalog& catalog, const std::set<AttemptId>& in_use,
                                                      const std::function<void(std::string_view)>& warn) {
  absl::StatusOr<std::vector<DeletionRecord>> deletions = catalog.Deletions();
  if (!deletions.ok()) return deletions.status();
  std::vector<DeletionRecord> removable;
  for (const DeletionRecord& deletion : *deletions) {
    const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(deletion.step);
    if (!record.ok()) return record.status();
    if (IsAttemptOf(*record, deletion.attempt)) continue;  // committed again
    const absl::StatusOr<bool> referenced = catalog.IsReferenced(deletion.attempt);
    if (!referenced.ok()) return referenced.status();
    if (!*referenced) removable.push_back(deletion);
  }
  if (removable.empty()) return removable;
  absl::StatusOr<std::set<AttemptId>> read = LeasedAttempts(files, layout);
  if (!read.ok()) {
    warn(fmt::format("no files of deleted steps are removed, because it is not known which are being read: {}",
                     std::string(read.status().message())));
    return std::vector<DeletionRecord>();
  }
  read->insert(in_use.begin(), in_use.end());
  std::set<AttemptId> needed = *read;
  // A step that refers to one of them may have been deleted after the first look, and be read.
  deletions = catalog.Deletions();
  if (!deletions.ok()) return deletions.status();
  for (const DeletionRecord& deletion : *deletions) {
    if (read->contains(deletion.attempt)) needed.insert(deletion.references.begin(), deletion.references.end());
  }
  std::erase_if(removable, [&](const DeletionRecord& deletion) { return needed.contains(deletion.attempt); });
  // The newest first, so an attempt mostly goes before those that it refers to: a reader that takes steps from the
  // shards then finds it whole or not at all. Nothing else depends on the order, which says nothing of attempts of
  // the first format: a deletion is final, and a rebuild reads every chunk of an attempt before it takes it for
  // committed.
  std::sort(removable.begin(), removable.end(),
            [](const DeletionRecord& a, const DeletionRecord& b) { return b.attempt < a.attempt; });
  return removable;
}

// Why the attempt is not this store's to remove; ok: it is.
absl::Status CheckIsOwn(FileSystem& files, const StoreLayout& layout, const StoreId& store, const StepFolder& folder) {
  const absl::Status read = ReadAttemptRecord(files, layout, store, folder).status();
  return absl::IsFailedPrecondition(read) || absl::IsUnimplemented(read) ? read : absl::OkStatus();
}

}  // namespace

bool IsAttemptOf(const std::optional<StepRecord>& record, const AttemptId& attempt) {
  return record && MayHaveFiles(record->info.state) && record->info.attempt == ToHex(attempt.bytes);
}

absl::Status CheckEpochs(FileSystem& files, const StoreLayout& layout, const StepCatalog& catalog, uint64_t epoch) {
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  for (const StepFolder& folder : *folders) {
    const uint64_t of_attempt = EpochOf(folder.attempt);
    if (of_attempt < epoch || of_attempt >= kEpochMax) continue;
    const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    if (IsAttemptOf(*record, folder.attempt)) continue;  // of the first format, whose ids are random
    return absl::DataLossError(fmt::format("the journal's newest epoch is {}, and attempt {} of step {} is of epoch {}",
                                           epoch, ToHex(folder.attempt.bytes), folder.step, of_attempt));
  }
  return absl::OkStatus();
}

absl::StatusOr<RemovedGarbage> RemoveGarbage(FileSystem& files, const StoreLayout& layout, const StepCatalog& catalog,
                                             const std::set<AttemptId>& in_use, size_t removals_max,
                                             const std::function<void(std::string_view)>& warn) {
  absl::StatusOr<std::vector<DeletionRecord>> removable = Removable(files, layout, catalog, in_use, warn);
  if (!removable.ok()) return removable.status();
  const auto warn_of = [&](const DeletionRecord& deletion, const absl::Status& why) {
    const std::string_view what = FateOf(catalog, deletion).value_or("deleted");
    warn(fmt::format("step {} was {}, but its {}files are still there: {}", deletion.step, what,
                     what == "replaced" ? "old " : "", std::string(why.message())));
  };
  RemovedGarbage result;
  std::vector<DeletionRecord> removed;
  for (const DeletionRecord& deletion : *removable) {
    result.more = removed.size() == removals_max;
    if (result.more) break;
    const std::string folder = layout.attempt(deletion.step, deletion.attempt);
    RetireShard(files, layout, folder);
    if (absl::Status status = RemoveTree(files, folder); status.ok()) {
      removed.push_back(deletion);
    } else {
      warn_of(deletion, status);
    }
  }
  if (removed.empty()) return RemovedGarbage();
  if (absl::Status status = files.SyncDirectory(layout.steps()); !status.ok()) {
    for (const DeletionRecord& deletion : removed) warn_of(deletion, status);
    return RemovedGarbage();
  }
  for (const DeletionRecord& deletion : removed) result.removed.push_back(deletion.attempt);
  return result;
}

absl::Status SweepUncommitted(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                              const StepCatalog& catalog, uint64_t epoch, const std::set<AttemptId>& in_use,
                              const std::function<void(const StepFolder&)>& tell,
                              const std::function<void(std::string_view)>& warn) {
  std::vector<std::string> unknown;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout, &unknown);
  if (!folders.ok()) return folders.status();
  for (const std::string& name : unknown) {
    warn(fmt::format("left in place: {}/{} is not an attempt", layout.steps(), name));
  }
  std::vector<StepFolder> uncommitted;
  for (const StepFolder& folder : *folders) {
    const uint64_t of_attempt = EpochOf(folder.attempt);
    if (of_attempt >= epoch && of_attempt < kEpochMax) continue;
    const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    if (IsAttemptOf(*record, folder.attempt)) continue;
    const absl::StatusOr<bool> referenced = catalog.IsReferenced(folder.attempt);
    if (!referenced.ok()) return referenced.status();
    if (!*referenced) uncommitted.push_back(folder);
  }
  if (uncommitted.empty()) return absl::OkStatus();
  // Only now: an attempt that was deleted since it was looked at above is among the deletions.
  const absl::StatusOr<std::vector<DeletionRecord>> deletions = catalog.Deletions();
  if (!deletions.ok()) return deletions.status();
  absl::StatusOr<std::set<AttemptId>> stay = LeasedAttempts(files, layout);
  if (!stay.ok()) return stay.status();
  stay->insert(in_use.begin(), in_use.end());
  // An attempt that was deleted before the journal was made anew has no deletion that says what it refers to.
  std::set<AttemptId> references;
  for (const StepFolder& folder : uncommitted) {
    if (!stay->contains(folder.attempt)) continue;
    const absl::StatusOr<StepRecord> read = ReadAttemptRecord(files, layout, store, folder);
    if (read.ok()) {
      for (const FileReference& file : read->references) references.insert(file.attempt);
    } else if (!IsAboutAttempt(read.status())) {
      return read.status();
    }
  }
  stay->merge(references);
  for (const DeletionRecord& deletion : *deletions) stay->insert(deletion.attempt);
  bool removed = false;
  for (const StepFolder& folder : uncommitted) {
    if (stay->contains(folder.attempt)) continue;
    if (absl::Status own = CheckIsOwn(files, layout, store, folder); !own.ok()) {
      warn(fmt::format("left in place: {}", std::string(own.message())));
      continue;
    }
    if (absl::Status status = RemoveTree(files, layout.attempt(folder.step, folder.attempt)); status.ok()) {
      removed = true;
      tell(folder);
    } else {
      warn(fmt::format("files of step {}'s unfinished save could not be removed: {}", folder.step,
                       std::string(status.message())));
    }
  }
  return removed ? files.SyncDirectory(layout.steps()) : absl::OkStatus();
}

}  // namespace tidemark::storage
