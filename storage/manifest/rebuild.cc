#include "storage/manifest/rebuild.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/manifest.h"

namespace tidemark::storage {
namespace {

struct Candidate {
  StepFolder folder;
  StepRecord record;
};

absl::Status Quarantine(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  if (absl::Status status = files.CreateDirectory(layout.quarantine());
      !status.ok() && !absl::IsAlreadyExists(status)) {
    return status;
  }
  const std::string target = layout.quarantine() + "/" + StepFolderName(folder.step, folder.attempt);
  if (absl::Status status = files.Rename(layout.attempt(folder.step, folder.attempt), target); !status.ok())
    return status;
  if (absl::Status status = files.SyncDirectory(layout.quarantine()); !status.ok()) return status;
  return files.SyncDirectory(layout.steps());
}

// Complete attempts in the order in which they were made. Attempts follow each other, so only the last can have lost
// writes to a power cut while its index survived: it alone is read through.
absl::StatusOr<std::vector<Candidate>> FindCandidates(FileSystem& files, const StoreLayout& layout,
                                                      const StoreId& store, const ShardReadOptions& read,
                                                      const std::function<void(std::string_view)>& warn) {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout, &strangers);
  if (!folders.ok()) return folders.status();
  const auto reject = [&](const StepFolder& folder, const absl::Status& why) {
    if (absl::IsFailedPrecondition(why)) {  // another store's: not ours to move
      warn(fmt::format("left alone: {}", std::string(why.message())));
      return absl::OkStatus();
    }
    warn(fmt::format("step {} is incomplete or damaged and was moved to quarantine: {}", folder.step,
                     std::string(why.message())));
    return Quarantine(files, layout, folder);
  };
  std::vector<Candidate> candidates;
  for (const StepFolder& folder : *folders) {
    absl::StatusOr<Attempt> attempt = ReadAttempt(files, layout, store, folder);
    if (absl::IsUnimplemented(attempt.status())) return attempt.status();
    if (attempt.ok()) {
      candidates.push_back({folder, std::move(attempt->record)});
    } else if (absl::Status status = reject(folder, attempt.status()); !status.ok()) {
      return status;
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.record.info.sequence < b.record.info.sequence; });
  if (!candidates.empty()) {
    const StepFolder last = candidates.back().folder;
    absl::StatusOr<Attempt> attempt = ReadAttempt(files, layout, store, last);
    absl::Status sound = attempt.ok() ? VerifyAndSync(files, layout, last, *attempt, read) : attempt.status();
    if (!sound.ok()) {
      candidates.pop_back();
      if (absl::Status status = reject(last, sound); !status.ok()) return status;
    }
  }
  return candidates;
}

}  // namespace

absl::Status RebuildManifest(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                             const ShardReadOptions& read, const std::function<void(std::string_view)>& warn) {
  absl::StatusOr<std::vector<Candidate>> candidates = FindCandidates(files, layout, store, read, warn);
  if (!candidates.ok()) return candidates.status();
  const std::string suffix = ToHex(RandomBytes16());
  const std::string fresh = layout.manifest() + ".rebuilt-" + suffix;
  {
    absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::Create(fresh, store);
    if (!manifest.ok()) return manifest.status();
    // Ascending by sequence, so that of two attempts at a step the later one wins and the earlier one is marked for
    // deletion.
    for (const Candidate& candidate : *candidates) {
      if (auto replaced = (*manifest)->Commit(candidate.record); !replaced.ok()) return replaced.status();
    }
  }
  {
    absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::OpenReadOnly(fresh);
    if (!manifest.ok()) return manifest.status();
    for (const Candidate& candidate : *candidates) {
      absl::StatusOr<std::optional<StepRecord>> record = (*manifest)->Find(candidate.folder.step);
      if (!record.ok()) return record.status();
      if (!record->has_value()) {
        return absl::DataLossError(
            fmt::format("rebuilt manifest {}: step {} is not in it", fresh, candidate.folder.step));
      }
    }
  }
  absl::Status moved = files.Rename(layout.manifest(), layout.manifest() + ".broken-" + suffix);
  if (!moved.ok() && !absl::IsNotFound(moved)) return moved;
  if (absl::Status status = files.Rename(fresh, layout.manifest()); !status.ok()) return status;
  if (absl::Status status = files.SyncDirectory(layout.directory()); !status.ok()) return status;
  warn(fmt::format("the manifest of {} was rebuilt from the shards: {} complete attempts found", layout.directory(),
                   candidates->size()));
  return absl::OkStatus();
}

}  // namespace tidemark::storage
