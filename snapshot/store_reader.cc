#include "tidemark/store_reader.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/restore.h"
#include "snapshot/step_reader_impl.h"
#include "snapshot/stopwatch.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_identity.h"
#include "storage/shard/shard_verify.h"

namespace tidemark {
namespace {

// A reader beside a trainer takes few of its cores.
constexpr storage::ShardReadOptions kReadOptions{.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8};

// For strangers' stores. io_uring is more of the kernel than they need to reach.
constexpr storage::ShardReadOptions kUntrustedReadOptions{
    .codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 8};

// How often Verify reports progress.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

// Of a directory without store.json: the manifest and the shards say which store it is, to who may write the file anew.
constexpr std::string_view kMayBeAStore =
    "; there are steps in it, though: a repair, or opening it to write, asks them and the manifest which store it is";

bool HasAttempts(storage::FileSystem& files, const storage::StoreLayout& layout) {
  std::vector<std::string> strangers;
  const absl::StatusOr<std::vector<storage::StepFolder>> folders = storage::ListAttempts(files, layout, &strangers);
  return folders.ok() && !folders->empty();
}

// A part of an entry's bytes.
struct Window {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

absl::StatusOr<std::vector<std::byte>> ReadFrom(const storage::ShardReader& shard, size_t entry,
                                                std::optional<Window> window,
                                                const storage::ShardReadOptions& options) {
  const std::string& name = shard.index().entries[entry].spec.name;
  const uint64_t entry_bytes = shard.RawBytes(entry);
  if (window && (window->offset > entry_bytes || window->bytes > entry_bytes - window->offset)) {
    return absl::OutOfRangeError(fmt::format("read {}: entry '{}' has {} bytes: {} bytes from {} do not lie in it",
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

struct StoreReader::Impl {
  // The steps' records, ascending by step, in two parts: steps() hands out the first as it is, so that of a hundred
  // thousand steps nothing is kept twice.
  struct Records {
    // What a record says of files, besides how they are called.
    struct Files {
      std::vector<storage::RecordedShard> shards;
      std::vector<storage::FileReference> references;
    };

    void Add(storage::StepRecord record) {
      steps.push_back(std::move(record.info));
      files.push_back({std::move(record.shards), std::move(record.references)});
    }

    void RemoveLast() {
      steps.pop_back();
      files.pop_back();
    }

    // Where the step is; nullopt: it is not.
    std::optional<size_t> Find(int64_t step) const {
      const auto found = std::lower_bound(steps.begin(), steps.end(), step,
                                          [](const StepInfo& info, int64_t number) { return info.step < number; });
      if (found == steps.end() || found->step != step) return std::nullopt;
      return static_cast<size_t>(found - steps.begin());
    }

    std::vector<StepInfo> steps;
    std::vector<Files> files;
  };

  Impl(const std::string& directory, bool trusted)
      : layout(directory), trusted(trusted), read(trusted ? kReadOptions : kUntrustedReadOptions) {}

  // The steps as the manifest has them.
  absl::Status LoadManifest() {
    absl::Status status = manifest == nullptr ? OpenManifest() : CatchUp();
    if (!status.ok()) manifest.reset();  // the next time it is read as a whole
    return status;
  }

  absl::Status OpenManifest() {
    absl::StatusOr<std::unique_ptr<storage::Manifest>> opened =
        storage::Manifest::OpenFollowing(files, layout.manifest());
    if (!opened.ok()) return opened.status();
    manifest = *std::move(opened);
    if (manifest->store_id() != store) {
      return absl::DataLossError(fmt::format("manifest {} belongs to another store", layout.manifest()));
    }
    return ReadRecords();
  }

  // Who follows a store of many steps asks again and again, mostly in vain.
  absl::Status CatchUp() {
    const absl::StatusOr<bool> changed = manifest->CatchUp();
    return changed.ok() && *changed ? ReadRecords() : changed.status();
  }

  absl::Status ReadRecords() {
    Records found;
    absl::Status status = manifest->ForEach([&](storage::StepRecord record) {
      found.Add(std::move(record));
      return true;
    });
    if (status.ok()) Take(std::move(found));
    return status;
  }

  void Take(Records found) {
    records = std::move(found);
    recorded.clear();
  }

  // The same from the shards, as a rebuild would have it: of several attempts at a step the last counts, and has the
  // pin of those before it. One that was let go has bequeathed its pin already, and the step may have been unpinned
  // since.
  absl::Status LoadShards() {
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
    StepInfo pin;  // that of the step's last attempt that was not let go, and nothing else of it
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
    return absl::OkStatus();
  }

  absl::Status Load() {
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

  // What workers have left in the inbox, as if it had been taken in.
  void Overlay(const std::vector<storage::MetricReport>& reports) {
    for (const storage::MetricReport& report : reports) {
      const std::optional<size_t> place = records.Find(report.step);
      if (!place) continue;
      StepInfo& info = records.steps[*place];
      if (info.attempt != storage::ToHex(report.attempt.bytes)) continue;
      recorded.try_emplace(*place, info);
      storage::ApplyEvaluation(info, report.evaluation);
    }
  }

  absl::Status NoStep(int64_t step) const {
    return absl::NotFoundError(fmt::format("step {} is not in {}", step, layout.directory()));
  }

  // The record of a step that has, or had, files.
  absl::StatusOr<storage::StepRecord> FindSaved(int64_t step) const {
    const std::optional<size_t> place = records.Find(step);
    if (!place) return NoStep(step);
    const StepInfo& info = records.steps[*place];
    if (info.state == StepState::kDeleted) {
      return absl::NotFoundError(fmt::format("step {} was deleted: {}", step, info.reason));
    }
    if (info.state == StepState::kUnsaved) {
      return absl::NotFoundError(fmt::format("step {} was evaluated and never saved", step));
    }
    const Records::Files& of_step = records.files[*place];
    return storage::StepRecord{.info = info, .shards = of_step.shards, .references = of_step.references};
  }

  absl::StatusOr<storage::Attempt> OpenStep(int64_t step) const {
    absl::StatusOr<storage::StepRecord> record = FindSaved(step);
    if (!record.ok()) return record.status();
    return OpenRecorded({files, layout, store, read}, *record);
  }

  absl::StatusOr<std::vector<std::byte>> ReadEntry(int64_t step, std::string_view name,
                                                   std::optional<Window> window) const {
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

  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout;
  const bool trusted;
  const storage::ShardReadOptions read;
  storage::StoreId store;
  std::string store_id;
  std::unique_ptr<storage::Manifest> manifest;  // that `records` are of; null: they are of the shards
  absl::Status manifest_problem;
  Records records;                      // with what lies in the inbox
  std::map<size_t, StepInfo> recorded;  // by their places, the steps that it concerns, as they are without it
  std::vector<std::string> unread;
};

StoreReader::StoreReader() = default;
StoreReader::~StoreReader() = default;

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::Open(const std::string& directory) {
  return OpenAs(directory, /*trusted=*/true);
}

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::OpenUntrusted(const std::string& directory) {
  return OpenAs(directory, /*trusted=*/false);
}

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::OpenAs(const std::string& directory, bool trusted) {
  if (directory.empty()) return absl::NotFoundError("the directory of the store is empty");
  std::unique_ptr<StoreReader> reader(new StoreReader());
  auto impl = std::make_unique<Impl>(storage::FollowLinks(directory), trusted);
  absl::StatusOr<storage::StoreId> id = storage::ReadStoreIdentity(impl->files, impl->layout);
  // kFailedPrecondition: the path names a file.
  if (absl::IsNotFound(id.status()) || absl::IsFailedPrecondition(id.status())) {
    return absl::NotFoundError(fmt::format("{} is not a Tidemark store: {}{}", directory,
                                           std::string(id.status().message()),
                                           HasAttempts(impl->files, impl->layout) ? kMayBeAStore : ""));
  }
  if (absl::IsDataLoss(id.status())) {
    // A damaged store.json does not hide what the shards say.
    if (absl::StatusOr<storage::StoreId> found = storage::FindStoreId(impl->files, impl->layout); found.ok())
      id = *found;
  }
  if (!id.ok()) return id.status();
  impl->store = *id;
  impl->store_id = storage::ToHex(id->bytes);
  if (absl::Status status = impl->Load(); !status.ok()) return status;
  reader->impl_ = std::move(impl);
  return reader;
}

const std::string& StoreReader::store_id() const { return impl_->store_id; }

absl::Status StoreReader::VerifyManifest() const {
  return impl_->manifest == nullptr ? absl::OkStatus() : impl_->manifest->VerifyTables();
}

const absl::Status& StoreReader::manifest_problem() const { return impl_->manifest_problem; }

const std::vector<StepInfo>& StoreReader::steps() const { return impl_->records.steps; }

const std::vector<std::string>& StoreReader::unread() const { return impl_->unread; }

absl::Status StoreReader::Refresh() { return impl_->Load(); }

std::vector<std::string> StoreReader::References(int64_t step) const {
  const std::optional<size_t> place = impl_->records.Find(step);
  if (!place) return {};
  std::set<std::string> attempts;
  for (const storage::FileReference& file : impl_->records.files[*place].references) {
    attempts.insert(storage::ToHex(file.attempt.bytes));
  }
  return {attempts.begin(), attempts.end()};
}

absl::StatusOr<StepInfo> StoreReader::Latest() const {
  const std::vector<StepInfo>& all = steps();
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [](const StepInfo& info) { return info.state == StepState::kCommitted; });
  if (found == all.rend()) {
    return absl::NotFoundError(fmt::format("no step is committed in {}", impl_->layout.directory()));
  }
  return *found;
}

absl::StatusOr<StepInfo> StoreReader::Best(std::string_view metric, BestMode mode) const {
  const StepInfo* best = nullptr;
  double best_value = 0;
  for (const StepInfo& info : steps()) {
    const auto found = info.metrics.find(std::string(metric));
    if (info.state != StepState::kCommitted || found == info.metrics.end() || !std::isfinite(found->second)) continue;
    if (!info.unhealthy().empty()) continue;
    const double value = found->second;
    if (best == nullptr || (mode == BestMode::kLowest ? value <= best_value : value >= best_value)) {
      best = &info;
      best_value = value;
    }
  }
  if (best == nullptr) {
    return absl::NotFoundError(fmt::format("no committed step in {} that is healthy has a finite metric '{}'",
                                           impl_->layout.directory(), metric));
  }
  return *best;
}

absl::StatusOr<StepInfo> StoreReader::Find(int64_t step) const {
  const std::optional<size_t> place = impl_->records.Find(step);
  if (!place) return impl_->NoStep(step);
  return steps()[*place];
}

absl::StatusOr<std::vector<SavePhase>> StoreReader::Phases(int64_t step) const {
  absl::StatusOr<StepInfo> info = Find(step);
  if (!info.ok()) return info.status();
  if (impl_->manifest == nullptr || info->attempt.empty()) return std::vector<SavePhase>();
  return impl_->manifest->Phases(step, info->attempt);
}

absl::StatusOr<StepContents> StoreReader::Contents(int64_t step) const {
  absl::StatusOr<std::unique_ptr<StepReader>> reader = OpenStep(step);
  if (!reader.ok()) return reader.status();
  return std::move((*reader)->impl_->contents);
}

absl::StatusOr<std::unique_ptr<StepReader>> StoreReader::OpenStep(int64_t step) const {
  absl::StatusOr<storage::Attempt> attempt = impl_->OpenStep(step);
  if (!attempt.ok()) return attempt.status();
  absl::StatusOr<StepInfo> info = Find(step);
  if (!info.ok()) return info.status();
  std::unique_ptr<StepReader> reader(new StepReader());
  reader->impl_ = std::make_unique<StepReader::Impl>(*std::move(info), std::move(attempt->shards), impl_->read);
  return reader;
}

absl::StatusOr<std::vector<std::byte>> StoreReader::ReadEntry(int64_t step, std::string_view name) const {
  return impl_->ReadEntry(step, name, std::nullopt);
}

absl::StatusOr<std::vector<std::byte>> StoreReader::ReadEntry(int64_t step, std::string_view name, uint64_t offset,
                                                              uint64_t bytes) const {
  return impl_->ReadEntry(step, name, Window{offset, bytes});
}

absl::StatusOr<VerifyReport> StoreReader::Verify(int64_t step,
                                                 const std::function<void(const VerifyProgress&)>& progress) const {
  return Verify(step, VerifyOptions{.progress = progress});
}

absl::StatusOr<VerifyReport> StoreReader::Verify(int64_t step, const VerifyOptions& options) const {
  if (!(options.share >= 0 && options.share <= 1)) {
    return absl::InvalidArgumentError(fmt::format("VerifyOptions::share is {}: 0 to 1", options.share));
  }
  absl::StatusOr<storage::StepRecord> found = impl_->FindSaved(step);
  if (!found.ok()) return found.status();
  const storage::StepRecord& record = *found;
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::NotFoundError(fmt::format("step {} has no files: {}", step, record.info.reason));
  VerifyProgress done;
  for (const storage::RecordedShard& shard : record.shards) {
    done.bytes_total += static_cast<uint64_t>(static_cast<double>(shard.file_bytes) * options.share);
  }
  std::optional<Stopwatch> reported;
  const auto advance = [&](uint64_t bytes) {
    done.bytes_done += bytes;
    done.bytes_total = std::max(done.bytes_total, done.bytes_done);
    if (!options.progress || (reported && reported->elapsed() < kProgressInterval)) return;
    reported.emplace();
    options.progress(done);
  };
  VerifyReport report;
  for (const storage::RecordedShard& recorded : record.shards) {
    const storage::ShardIdentity identity{.store = impl_->store,
                                          .step = step,
                                          .attempt = storage::AttemptId{*id},
                                          .sequence = record.info.sequence,
                                          .rank = recorded.rank,
                                          .world_size = record.info.world_size};
    const std::string path = impl_->layout.shard(step, identity.attempt, recorded.rank, record.info.world_size);
    absl::StatusOr<storage::ShardVerification> shard =
        storage::VerifyShard(impl_->files, path, impl_->layout.steps(), &identity, impl_->read, advance,
                             {.share = options.share, .seed = options.seed}, options.cancelled);
    if (!shard.ok()) return shard.status();
    report.bytes_read += shard->bytes_read;
    report.chunks += shard->chunks;
    report.chunks_total += shard->chunks_total;
    for (storage::ShardDamage& damage : shard->damage) {
      report.damage.push_back(
          {.path = std::move(damage.path), .what = std::move(damage.what), .entries = std::move(damage.entries)});
    }
  }
  // Sound in itself, and yet not what was committed: a shard that was put in its place.
  if (report.damage.empty()) {
    if (absl::StatusOr<storage::Attempt> attempt = impl_->OpenStep(step); !attempt.ok()) {
      report.damage.push_back({.path = impl_->layout.attempt(step, storage::AttemptId{*id}),
                               .what = std::string(attempt.status().message())});
    }
  }
  if (options.progress) options.progress(done);
  return report;
}

}  // namespace tidemark
