#include "storage/manifest/rebuild.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_identity.h"

namespace tidemark::storage {
namespace {

// Of records that differ; they may be long.
constexpr size_t kQuotedBytesMax = 60;

struct Candidate {
  StepFolder folder;
  StepRecord record;
  std::optional<std::string> deleted;  // why it was deleted, where it was
};

struct Rejected {
  StepFolder folder;
  std::string why;
};

// What is in steps/, sorted; nothing has been moved.
struct Findings {
  std::vector<Candidate> candidates;  // complete, in the order in which they were made
  std::vector<Rejected> broken;       // incomplete or damaged
  size_t foreign = 0;
};

absl::StatusOr<Findings> ReadAll(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                 const std::function<void(std::string_view)>& warn) {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout, &strangers);
  if (!folders.ok()) return folders.status();
  Findings findings;
  for (const StepFolder& folder : *folders) {
    absl::StatusOr<Attempt> attempt = ReadAttempt(files, layout, store, folder);
    const std::string why(attempt.status().message());
    if (attempt.ok()) {
      absl::StatusOr<std::optional<std::string>> mark = ReadDeletionMark(files, layout, folder);
      absl::Status status = mark.status();
      if (status.ok()) status = JoinPinOfFolder(files, layout, warn, attempt->record.info).status();
      if (status.ok()) status = ApplyStoredReports(files, layout, store, folder, warn, attempt->record.info);
      if (!status.ok()) return status;
      findings.candidates.push_back({folder, std::move(attempt->record), *std::move(mark)});
    } else if (IsMissingOrDamaged(attempt.status())) {
      findings.broken.push_back({folder, why});
    } else if (absl::IsFailedPrecondition(attempt.status()) || absl::IsUnimplemented(attempt.status())) {
      findings.foreign += absl::IsFailedPrecondition(attempt.status()) ? 1 : 0;
      warn(fmt::format("left alone: {}", why));
    } else {
      return attempt.status();  // the disk failed: nothing is known about the attempt
    }
  }
  std::sort(findings.candidates.begin(), findings.candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.record.info.sequence < b.record.info.sequence; });
  return findings;
}

// Takes out the candidates whose bytes are not all there. Attempts follow each other, so only the last can have lost
// writes to a power cut while its index survived; it is read through, and so is every one in whose favour another
// attempt at its step would be given up.
absl::Status VerifyWinners(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                           const ShardReadOptions& read, Findings& findings) {
  std::map<int64_t, size_t> attempts_at;
  for (const Candidate& candidate : findings.candidates) ++attempts_at[candidate.folder.step];
  std::set<int64_t> decided;
  bool newest = true;
  for (size_t i = findings.candidates.size(); i-- > 0; newest = false) {
    const StepFolder folder = findings.candidates[i].folder;
    if (decided.contains(folder.step)) continue;
    if (newest || attempts_at[folder.step] > 1) {
      absl::StatusOr<Attempt> attempt = ReadAttempt(files, layout, store, folder);
      absl::Status sound =
          attempt.ok() ? VerifyAndSync(files, layout, folder, *attempt, read) : absl::Status(attempt.status());
      if (!sound.ok()) {
        if (!IsMissingOrDamaged(sound)) return sound;
        findings.broken.push_back({folder, std::string(sound.message())});
        findings.candidates.erase(findings.candidates.begin() + static_cast<ptrdiff_t>(i));
        --attempts_at[folder.step];
        continue;
      }
    }
    decided.insert(folder.step);
  }
  return absl::OkStatus();
}

// A crash may have come between a save at a pinned step and the pin that the new attempt inherits. One that was deleted
// has bequeathed its pin already, and the step may have been unpinned since.
absl::Status InheritPins(FileSystem& files, const StoreLayout& layout,
                         const std::function<void(std::string_view)>& warn, Findings& findings) {
  std::map<int64_t, const StepInfo*> earlier;
  for (Candidate& candidate : findings.candidates) {
    if (candidate.deleted) continue;
    StepInfo& info = candidate.record.info;
    const StepInfo*& before = earlier[info.step];
    if (before != nullptr) {
      if (absl::Status status = InheritPin(files, layout, *before, warn, info); !status.ok()) return status;
    }
    before = &info;
  }
  return absl::OkStatus();
}

// What the manifest is to have of its step in the end.
StepRecord FinalRecord(const Candidate& candidate) {
  StepRecord record = candidate.record;
  if (candidate.deleted) MakeDeleted(record, *candidate.deleted);
  return record;
}

// Makes the candidate the record of its step, in the place of an earlier attempt, which is marked for deletion.
absl::Status Record(Manifest& manifest, const Candidate& candidate) {
  if (absl::Status status = manifest.Commit(candidate.record).status(); !status.ok()) return status;
  if (!candidate.deleted) return absl::OkStatus();
  const std::optional<DeletionRecord> deletion = DeletionOf(candidate.record);
  const StepRecord record = FinalRecord(candidate);
  return manifest.Update({&record, 1}, {&*deletion, 1});
}

// A manifest of the candidates at `path`, read back.
absl::Status WriteManifest(FileSystem& files, const std::string& path, const StoreId& store,
                           const std::vector<Candidate>& candidates) {
  std::map<int64_t, const Candidate*> winners;
  {
    absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::Create(files, path, store);
    if (!manifest.ok()) return manifest.status();
    // Ascending by sequence, so that of two attempts at a step the later one wins.
    for (const Candidate& candidate : candidates) {
      if (absl::Status status = Record(**manifest, candidate); !status.ok()) return status;
      winners[candidate.folder.step] = &candidate;
    }
  }
  absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::OpenReadOnly(files, path);
  if (!manifest.ok()) return manifest.status();
  for (const auto& [step, candidate] : winners) {
    if (absl::Status status = CheckHolds(**manifest, path, FinalRecord(*candidate)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool IsReferenced(const AttemptId& attempt, const std::vector<Candidate>& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return !candidate.deleted && std::any_of(candidate.record.references.begin(), candidate.record.references.end(),
                                             [&](const FileReference& file) { return file.attempt == attempt; });
  });
}

}  // namespace

absl::Status CheckHolds(const Manifest& manifest, std::string_view path, const StepRecord& expected) {
  absl::StatusOr<std::optional<StepRecord>> found = manifest.Find(expected.info.step);
  if (!found.ok()) return found.status();
  const std::string wanted = EncodeStepRecord(expected);
  const std::string there = found->has_value() ? EncodeStepRecord(**found) : "";
  if (there == wanted) return absl::OkStatus();
  const size_t same = std::mismatch(wanted.begin(), wanted.end(), there.begin(), there.end()).first - wanted.begin();
  return absl::DataLossError(fmt::format(
      "rebuilt manifest {}: the record of step {} differs from what was written: expected '{}' at byte {}, found '{}'",
      path, expected.info.step, PrintableText(wanted.substr(same, kQuotedBytesMax)), same,
      PrintableText(there.substr(same, kQuotedBytesMax))));
}

absl::Status RebuildManifest(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                             const ShardReadOptions& read, const std::function<void(std::string_view)>& warn,
                             const OnStoreChange& on_change) {
  absl::StatusOr<Findings> findings = ReadAll(files, layout, store, warn);
  if (!findings.ok()) return findings.status();
  if (absl::Status status = VerifyWinners(files, layout, store, read, *findings); !status.ok()) return status;
  if (absl::Status status = InheritPins(files, layout, warn, *findings); !status.ok()) return status;
  if (findings->candidates.empty() && findings->foreign > 0) {
    return absl::FailedPreconditionError(
        fmt::format("the manifest of {} is not rebuilt: no attempt in {} is complete and of store {}, and {} belong to "
                    "another store",
                    layout.directory(), layout.steps(), ToHex(store.bytes), findings->foreign));
  }
  const std::string suffix = ToHex(RandomBytes16());
  const std::string fresh = layout.manifest() + ".rebuilt-" + suffix;
  if (absl::Status status = WriteManifest(files, fresh, store, findings->candidates); !status.ok()) return status;
  // Before the new manifest is in place, or a crash would leave them to be removed as attempts without a record.
  for (const Rejected& rejected : findings->broken) {
    if (IsReferenced(rejected.folder.attempt, findings->candidates)) {
      warn(fmt::format("step {} is incomplete or damaged, but stays, because a later step refers to it: {}",
                       rejected.folder.step, rejected.why));
      continue;
    }
    warn(fmt::format("step {} is incomplete or damaged and was moved to quarantine: {}", rejected.folder.step,
                     rejected.why));
    if (absl::Status status = MoveToQuarantine(files, layout, rejected.folder); !status.ok()) return status;
    if (on_change != nullptr) {
      on_change({.kind = StoreChange::Kind::kQuarantined,
                 .step = rejected.folder.step,
                 .path = layout.attempt(rejected.folder.step, rejected.folder.attempt),
                 .why = rejected.why});
    }
  }
  absl::Status moved = files.Rename(layout.manifest(), layout.manifest() + ".broken-" + suffix);
  if (!moved.ok() && !absl::IsNotFound(moved)) return moved;
  if (absl::Status status = files.Rename(fresh, layout.manifest()); !status.ok()) return status;
  if (absl::Status status = files.SyncDirectory(layout.directory()); !status.ok()) return status;
  warn(fmt::format("the manifest of {} was rebuilt from the shards: {} complete attempts found", layout.directory(),
                   findings->candidates.size()));
  return absl::OkStatus();
}

}  // namespace tidemark::storage
