#include "tidemark/store_reader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/restore/step_reader_impl.h"
#include "snapshot/restore/store_reader_catalog.h"
#include "snapshot/restore/store_reader_impl.h"
#include "snapshot/restore/verify_callbacks.h"
#include "snapshot/stopwatch.h"
#include "storage/io/link_free_path.h"
#include "storage/retention/retention_plan.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/attempt_verify.h"
#include "storage/store/store_identity.h"

namespace tidemark {
namespace {

// How often Verify reports progress.
constexpr absl::Duration kVerifyProgressInterval = absl::Milliseconds(100);

// Of a directory without store.json: the index and the shards say which store it is, to who may write the file anew.
constexpr std::string_view kMayBeAStore =
    "; there are steps in it, though: a repair, or opening it to write, asks them which store it is";

bool HasAttempts(storage::FileSystem& files, const storage::StoreLayout& layout) {
  const absl::StatusOr<std::vector<storage::StepFolder>> folders = storage::ListAttempts(files, layout);
  return folders.ok() && !folders->empty();
}

}  // namespace

StoreReader::StoreReader() = default;
StoreReader::~StoreReader() = default;

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::Open(const std::string& directory) {
  return Guarded("Open", [&] { return OpenAs(directory, /*trusted=*/true); });
}

absl::StatusOr<std::unique_ptr<StoreReader>> StoreReader::OpenUntrusted(const std::string& directory) {
  return Guarded("OpenUntrusted", [&] { return OpenAs(directory, /*trusted=*/false); });
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
  if (absl::Status held = impl->names.Add(impl->layout.directory()); !held.ok()) return held;
  impl->store = *id;
  impl->store_id = storage::ToHex(id->bytes);
  if (absl::Status status = impl->Load(); !status.ok()) return status;
  reader->impl_ = std::move(impl);
  return reader;
}

const std::string& StoreReader::store_id() const { return impl_->store_id; }

const absl::Status& StoreReader::journal_problem() const { return impl_->journal_problem; }

const std::vector<StepInfo>& StoreReader::Steps() const { return impl_->records.steps; }

const std::vector<std::string>& StoreReader::unread() const { return impl_->unread; }

absl::Status StoreReader::Refresh() {
  return Guarded("Refresh", [&]() -> absl::Status {
    absl::Status status = impl_->names.Check();
    return status.ok() ? impl_->Load() : status;
  });
}

absl::StatusOr<std::vector<std::string>> StoreReader::References(int64_t step) const {
  return Guarded("References", [&]() -> absl::StatusOr<std::vector<std::string>> {
    std::set<std::string> attempts;
    if (const std::optional<size_t> place = impl_->records.Find(step)) {
      for (const storage::FileReference& file : impl_->records.files[*place].references) {
        attempts.insert(storage::ToHex(file.attempt.bytes));
      }
    }
    return std::vector<std::string>(attempts.begin(), attempts.end());
  });
}

absl::StatusOr<StepInfo> StoreReader::LatestStep() const {
  return Guarded("LatestStep", [&]() -> absl::StatusOr<StepInfo> {
    const std::vector<StepInfo>& all = Steps();
    const auto found = std::find_if(all.rbegin(), all.rend(),
                                    [](const StepInfo& info) { return info.state == StepState::kCommitted; });
    if (found == all.rend()) {
      return absl::NotFoundError(fmt::format("no step is committed in {}", impl_->layout.directory()));
    }
    return *found;
  });
}

absl::StatusOr<StepInfo> StoreReader::LatestHealthyStep() const {
  return Guarded("LatestHealthyStep", [&]() -> absl::StatusOr<StepInfo> {
    const std::vector<StepInfo>& all = Steps();
    const auto found = std::find_if(all.rbegin(), all.rend(), storage::IsHealthy);
    if (found == all.rend()) {
      return absl::NotFoundError(fmt::format("no committed step in {} is healthy", impl_->layout.directory()));
    }
    return *found;
  });
}

std::optional<BestMode> StoreReader::BestModeOf(std::string_view metric) const {
  return storage::FindBestMode(impl_->best_modes, metric);
}

const std::map<std::string, BestMode, std::less<>>& StoreReader::recorded_best_modes() const {
  return impl_->best_modes;
}

absl::StatusOr<StepInfo> StoreReader::BestStep(std::string_view metric) const {
  return Guarded("BestStep", [&]() -> absl::StatusOr<StepInfo> {
    const absl::StatusOr<BestMode> mode = storage::RequireBestMode(impl_->best_modes, metric);
    if (!mode.ok()) return mode.status();
    return BestStep(metric, *mode);
  });
}

absl::StatusOr<StepInfo> StoreReader::BestStep(std::string_view metric, BestMode mode) const {
  return Guarded("BestStep", [&]() -> absl::StatusOr<StepInfo> {
    const StepInfo* best = nullptr;
    double best_value = 0;
    for (const StepInfo& info : Steps()) {
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
  });
}

absl::StatusOr<StepInfo> StoreReader::FindStep(const StepSelector& step) const {
  return Guarded("FindStep", [&]() -> absl::StatusOr<StepInfo> {
    if (step.kind() == StepSelector::Kind::kStep) {
      const std::optional<size_t> place = impl_->records.Find(step.step());
      if (!place) return impl_->NoStep(step.step());
      return Steps()[*place];
    }
    const absl::StatusOr<StepSelector> with_mode = step.WithMode(recorded_best_modes());
    if (!with_mode.ok()) return with_mode.status();
    const absl::StatusOr<std::vector<const StepInfo*>> chosen = with_mode->Choose(Steps());
    if (chosen.ok()) return *chosen->front();
    return absl::Status(chosen.status().code(),
                        fmt::format("{}: {}", impl_->layout.directory(), std::string(chosen.status().message())));
  });
}

std::unique_ptr<StoreReader::Catalog> StoreReader::NewCatalog() {
  return std::make_unique<Catalog>(Catalog::Host{
      .files = impl_->files,
      .layout = impl_->layout,
      .store = impl_->store,
      .read = impl_->read,
      .may_lease = impl_->trusted,
      .find = [this](int64_t step) -> std::optional<storage::StepRecord> {
        const std::optional<size_t> place = impl_->records.Find(step);
        if (!place) return std::nullopt;
        return impl_->RecordAt(*place);
      },
      .find_at_or_below = [this](int64_t step) -> std::optional<storage::StepRecord> {
        const auto above = std::upper_bound(Steps().begin(), Steps().end(), step,
                                            [](int64_t number, const StepInfo& info) { return number < info.step; });
        if (above == Steps().begin()) return std::nullopt;
        return impl_->RecordAt(static_cast<size_t>(above - Steps().begin()) - 1);
      },
      .refresh = [this] { return Refresh(); }});
}

absl::StatusOr<std::vector<SavePhase>> StoreReader::Phases(int64_t step) const {
  return Guarded("Phases", [&]() -> absl::StatusOr<std::vector<SavePhase>> {
    absl::StatusOr<StepInfo> info = FindStep(step);
    if (!info.ok()) return info.status();
    if (impl_->journal == nullptr || info->attempt.empty()) return std::vector<SavePhase>();
    return impl_->journal->catalog().Phases(step, info->attempt);
  });
}

absl::StatusOr<StepContents> StoreReader::Contents(int64_t step) const {
  return Guarded("Contents", [&]() -> absl::StatusOr<StepContents> {
    absl::StatusOr<std::unique_ptr<StepReader>> reader = OpenStep(step);
    if (!reader.ok()) return reader.status();
    return std::move((*reader)->impl_->step->contents);
  });
}

absl::StatusOr<std::unique_ptr<StepReader>> StoreReader::OpenStep(int64_t step, StepView view) const {
  return Guarded("OpenStep", [&]() -> absl::StatusOr<std::unique_ptr<StepReader>> {
    absl::StatusOr<storage::Attempt> attempt = impl_->OpenStep(step);
    if (!attempt.ok()) return attempt.status();
    absl::StatusOr<StepInfo> info = FindStep(step);
    if (!info.ok()) return info.status();
    auto stored = std::make_unique<StoredStep>(*std::move(info), std::move(attempt->shards), impl_->read);
    stored->files = impl_->files_owner;
    std::unique_ptr<StepReader> reader(new StepReader());
    reader->impl_ = std::make_unique<StepReader::Impl>(std::move(stored));
    if (view == StepView::kWholes) reader->impl_->Join();
    return reader;
  });
}

absl::StatusOr<std::unique_ptr<StepReader>> StoreReader::OpenSelected(const StepSelector& step, StepView view) {
  std::optional<std::string> gone;  // the attempt that was selected before
  for (;;) {
    absl::StatusOr<StepInfo> info = FindStep(step);
    if (!info.ok()) return info.status();
    absl::StatusOr<std::unique_ptr<StepReader>> opened = OpenStep(info->step, view);
    if (!absl::IsNotFound(opened.status()) || gone == info->attempt) return opened;
    gone = std::move(info->attempt);
    if (absl::Status status = Refresh(); !status.ok()) return status;
  }
}

absl::StatusOr<std::vector<std::byte>> StoreReader::ReadEntry(int64_t step, std::string_view name) const {
  return Guarded("ReadEntry", [&] { return impl_->ReadEntry(step, name, std::nullopt); });
}

absl::StatusOr<std::vector<std::byte>> StoreReader::ReadEntry(int64_t step, std::string_view name, uint64_t offset,
                                                              uint64_t bytes) const {
  return Guarded("ReadEntry", [&] { return impl_->ReadEntry(step, name, EntryWindow{offset, bytes}); });
}

absl::StatusOr<VerifyReport> StoreReader::Verify(int64_t step,
                                                 const std::function<void(const VerifyProgress&)>& progress) const {
  return Guarded("Verify", [&] { return Verify(step, VerifyOptions{.progress = progress}); });
}

absl::StatusOr<VerifyReport> StoreReader::Verify(int64_t step, const VerifyOptions& options) const {
  return Guarded("Verify", [&]() -> absl::StatusOr<VerifyReport> {
    if (!(options.share >= 0 && options.share <= 1)) {
      return absl::InvalidArgumentError(fmt::format("VerifyOptions::share is {}: 0 to 1", options.share));
    }
    absl::StatusOr<storage::StepRecord> found = impl_->FindSaved(step);
    if (!found.ok()) return found.status();
    const storage::StepRecord& record = *found;
    if (!storage::FromHex(record.info.attempt)) {
      return absl::NotFoundError(fmt::format("step {} has no files: {}", step, record.info.reason));
    }
    const uint64_t stored = record.info.stored_bytes;
    VerifyProgress done{.bytes_total = options.share == 1
                                           ? stored
                                           : static_cast<uint64_t>(static_cast<double>(stored) * options.share)};
    VerifyCallbacks callbacks(options);
    std::optional<Stopwatch> reported;
    const auto advance = [&](uint64_t bytes) {
      done.bytes_done += bytes;
      done.bytes_total = std::max(done.bytes_total, done.bytes_done);
      if (reported && reported->elapsed() < kVerifyProgressInterval) return;
      reported.emplace();
      callbacks.Progress(done);
    };
    absl::StatusOr<storage::AttemptVerification> attempt =
        storage::VerifyAttempt(impl_->files, impl_->layout, impl_->store, record,
                               {.read = impl_->read,
                                .sample = {.share = options.share, .seed = options.seed},
                                .progress = advance,
                                .cancelled = [&] { return callbacks.Cancelled(); }});
    if (absl::Status thrown = callbacks.thrown(); !thrown.ok()) return thrown;
    if (!attempt.ok()) return attempt.status();
    VerifyReport report{
        .bytes_read = attempt->bytes_read, .chunks = attempt->chunks, .chunks_total = attempt->chunks_total};
    for (storage::ShardDamage& damage : attempt->damage) {
      report.damage.push_back(
          {.path = std::move(damage.path), .what = std::move(damage.what), .entries = std::move(damage.entries)});
    }
    callbacks.Progress(done);
    if (absl::Status thrown = callbacks.thrown(); !thrown.ok()) return thrown;
    return report;
  });
}

}  // namespace tidemark
