#include "snapshot/restore/store_reader_impl.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "snapshot/restore/restore.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/report_files.h"
#include "storage/shard/bounded_shard_files.h"

namespace tidemark {
namespace {

// A reader beside a trainer takes few of its cores.
constexpr storage::ShardReadOptions kReadOptions{.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8};

// For strangers' stores. io_uring is more of the kernel than they need to reach.
constexpr storage::ShardReadOptions kUntrustedReadOptions{
    .codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 8, .tries_again = false};

std::unique_ptr<storage::FileSystem> FilesAt(const std::string& directory, bool trusted) {
  std::unique_ptr<storage::FileSystem> files = storage::PosixFileSystemAt(directory);
  if (trusted) return files;
  return std::make_unique<storage::BoundedShardFiles>(std::move(files));
}

absl::StatusOr<std::vector<std::byte>> ReadFrom(const storage::ShardReader& shard, size_t entry,
                                                std::optional<EntryWindow> window,
                                                const storage::ShardReadOptions& options) {
  const std::string& name = shard.index().entries[entry].spec.name;
  const uint64_t entry_bytes = shard.RawBytes(entry);
  if (window && (window->offset > entry_bytes || window->bytes > entry_bytes - window->offset)) {
    return absl::OutOfRangeError(fmt::format("read {}: entry '{}' has {} bytes: {} bytes from {} are outside of it",
                                             shard.path(), storage::PrintableText(name), entry_bytes, window->bytes,
                                             window->offset));
  }
  const uint64_t wanted = window ? window->bytes : entry_bytes;
  std::vector<std::byte> bytes;
  try {
    bytes.resize(wanted);
  } catch (const std::exception&) {  // out of memory, or more than a vector can be
    return absl::ResourceExhaustedError(
        fmt::format("no memory for {} bytes of '{}'", wanted, storage::PrintableText(name)));
  }
  storage::EntryRead read{.entry = entry, .destination = bytes};
  if (window) read.begin = window->offset;
  if (absl::Status status = shard.Read({&read, 1}, options); !status.ok()) return status;
  return bytes;
}

}  // namespace

StoreReader::Impl::Impl(const std::string& directory, bool trusted)
    : layout(directory),
      files_owner(FilesAt(layout.directory(), trusted)),
      trusted(trusted),
      read(trusted ? kReadOptions : kUntrustedReadOptions) {}

// The steps as the manifest has them.
absl::Status StoreReader::Impl::LoadManifest() {
  // After a failure it is read as a whole the next time: CatchUp reports a change only once.
  try {
    absl::Status status = manifest == nullptr ? OpenManifest() : CatchUp();
    if (!status.ok()) manifest.reset();
    return status;
  } catch (...) {
    manifest.reset();
    throw;
  }
}

absl::Status StoreReader::Impl::OpenManifest() {
  absl::StatusOr<std::unique_ptr<storage::Manifest>> opened =
      storage::Manifest::OpenFollowing(files, layout.manifest());
  if (!opened.ok()) return opened.status();
  manifest = *std::move(opened);
  if (manifest->store_id() != store) {
    return absl::DataLossError(fmt::format("manifest {} belongs to another store", layout.manifest()));
  }
  return ReadRecords();
}

// A reader that follows a store of many steps asks often, and mostly nothing is new.
absl::Status StoreReader::Impl::CatchUp() {
  const absl::StatusOr<bool> changed = manifest->CatchUp();
  return changed.ok() && *changed ? ReadRecords() : changed.status();
}

absl::Status StoreReader::Impl::ReadRecords() {
  Records found;
  absl::Status status = manifest->ForEach([&](storage::StepRecord record) {
    found.Add(std::move(record));
    return true;
  });
  if (status.ok()) Take(std::move(found));
  // Where it cannot be read metrics' names tell: it must hide no step.
  if (status.ok()) best_modes = manifest->RecordedBestModes().value_or(storage::BestModes());
  return status;
}

void StoreReader::Impl::Take(Records found) {
  records = std::move(found);
  recorded.clear();
}

// The steps as a rebuild of the manifest would find them in the shards. Of several attempts at a step the last one
// counts, with the pins of those before it. A deleted attempt's pin does not count: it was passed on when the attempt
// was replaced, and the step may have been unpinned since.
absl::Status StoreReader::Impl::LoadShards() {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<storage::StepFolder>> folders = storage::ListAttempts(files, layout, &strangers);
  if (!folders.ok()) return folders.status();
  const auto no_warning = [](std::string_view) {};
  const auto leave_out = [&](const storage::StepFolder& folder, const absl::Status& why) {
    unread.push_back(fmt::format("{}: {}", StepFolderName(folder.step, folder.attempt), std::string(why.message())));
  };
  std::multimap<std::pair<int64_t, uint64_t>, storage::StepRecord> attempts;  // by step and sequence
  for (const storage::StepFolder& folder : *folders) {
    // One shard at a time: there is no telling how many ranks a stranger's attempt has.
    absl::StatusOr<storage::StepRecord> read = storage::ReadAttemptRecord(files, layout, store, folder);
    const auto deleted = storage::ReadDeletionMark(files, layout, folder);
    if (!read.ok() || !deleted.ok()) {
      leave_out(folder, read.ok() ? deleted.status() : read.status());
      continue;
    }
    storage::StepRecord& record = *read;
    // A pin or a report that cannot be read hides no step.
    storage::JoinPinOfFolder(files, layout, no_warning, record.info).status().IgnoreError();
    ApplyStoredReports(files, layout, store, folder, no_warning, record.info).IgnoreError();
    if (deleted->has_value()) MakeDeleted(record, **deleted);
    attempts.emplace(std::pair(folder.step, record.info.sequence), std::move(record));
  }
  Records found;
  StepInfo pin;  // only the pin of the step's last attempt that was not deleted
  for (auto& [place, record] : attempts) {
    StepInfo& info = record.info;
    const bool first = found.steps.empty() || found.steps.back().step != info.step;
    if (first) pin = {};
    if (info.state != StepState::kDeleted) {
      storage::JoinPin(pin, no_warning, info);
      pin = {.pinned = info.pinned, .pin_note = info.pin_note, .tags = info.tags};
    }
    if (!first) found.RemoveLast();
    found.Add(std::move(record));
  }
  Take(std::move(found));
  best_modes.clear();
  return absl::OkStatus();
}

absl::Status StoreReader::Impl::Load() {
  // Looked at first: a report that is recorded meanwhile is then in both, and not in neither. An inbox that cannot be
  // read hides no step.
  const absl::StatusOr<std::vector<storage::MetricReport>> reports = storage::PeekInbox(files, layout, store);
  unread.clear();
  if (trusted) manifest_problem = LoadManifest();
  if (absl::IsUnimplemented(manifest_problem)) return manifest_problem;
  if (!trusted || !manifest_problem.ok()) {
    if (absl::Status status = LoadShards(); !status.ok()) return status;
  }
  // A store whose making was cut short, or goes on just now, has no manifest yet and nothing for it to tell.
  const bool nothing = records.steps.empty() && unread.empty();
  if (absl::IsNotFound(manifest_problem) && nothing) manifest_problem = absl::OkStatus();
  for (auto& [place, info] : recorded) records.steps[place] = std::move(info);
  recorded.clear();
  if (reports.ok()) Overlay(*reports);
  return absl::OkStatus();
}

// Applies the reports that workers have left in the inbox, as a trainer would.
void StoreReader::Impl::Overlay(const std::vector<storage::MetricReport>& reports) {
  for (const storage::MetricReport& report : reports) {
    const std::optional<size_t> place = records.Find(report.step);
    if (!place) continue;
    StepInfo& info = records.steps[*place];
    if (info.attempt != storage::ToHex(report.attempt.bytes)) continue;
    recorded.try_emplace(*place, info);
    storage::ApplyEvaluation(info, report.evaluation);
  }
}

absl::Status StoreReader::Impl::NoStep(int64_t step) const {
  return absl::NotFoundError(fmt::format("step {} is not in {}", step, layout.directory()));
}

absl::StatusOr<storage::StepRecord> StoreReader::Impl::FindSaved(int64_t step) const {
  const std::optional<size_t> place = records.Find(step);
  if (!place) return NoStep(step);
  const StepInfo& info = records.steps[*place];
  if (info.state == StepState::kDeleted) {
    return absl::NotFoundError(fmt::format("step {} was deleted: {}", step, info.reason));
  }
  if (info.state == StepState::kUnsaved) {
    return absl::NotFoundError(fmt::format("step {} was evaluated and never saved", step));
  }
  return RecordAt(*place);
}

storage::StepRecord StoreReader::Impl::RecordAt(size_t place) const {
  const Records::Files& of_step = records.files[place];
  return {.info = records.steps[place], .shards = of_step.shards, .references = of_step.references};
}

absl::StatusOr<storage::Attempt> StoreReader::Impl::OpenStep(int64_t step) const {
  absl::StatusOr<storage::StepRecord> record = FindSaved(step);
  if (!record.ok()) return record.status();
  return OpenRecorded({files, layout, store, read}, *record);
}

absl::StatusOr<std::vector<std::byte>> StoreReader::Impl::ReadEntry(int64_t step, std::string_view name,
                                                                    std::optional<EntryWindow> window) const {
  absl::StatusOr<storage::Attempt> attempt = OpenStep(step);
  if (!attempt.ok()) return attempt.status();
  for (const auto& shard : attempt->shards) {
    const std::vector<storage::ShardEntry>& entries = shard->index().entries;
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const storage::ShardEntry& entry) { return entry.spec.name == name; });
    if (found != entries.end()) return ReadFrom(*shard, static_cast<size_t>(found - entries.begin()), window, read);
  }
  return absl::NotFoundError(fmt::format("step {} has no entry '{}'", step, name));
}

}  // namespace tidemark
