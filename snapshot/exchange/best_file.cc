#include "tidemark/best_file.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "snapshot/deadline.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/guarded.h"
#include "snapshot/listeners.h"
#include "snapshot/process/owner_process.h"
#include "storage/io/exception_status.h"
#include "storage/io/link_free_path.h"
#include "storage/io/thread_priority.h"
#include "tidemark/store_reader.h"
#include "tidemark/tuning.h"

namespace tidemark {
namespace {

constexpr absl::Duration kRetryPauseMax = absl::Minutes(1);

// The best step of those that were committed, deleted ones included; null: none has the metric.
const StepInfo* FindBest(const std::vector<StepInfo>& steps, const std::string& metric, BestMode mode) {
  const StepInfo* best = nullptr;
  double best_value = 0;
  for (const StepInfo& info : steps) {
    const auto found = info.metrics.find(metric);
    if (found == info.metrics.end() || !std::isfinite(found->second) || !info.unhealthy().empty()) continue;
    if (info.state != StepState::kCommitted && info.state != StepState::kDeleted) continue;
    const double value = found->second;
    if (best == nullptr || (mode == BestMode::kLowest ? value <= best_value : value >= best_value)) {
      best = &info;
      best_value = value;
    }
  }
  return best;
}

std::string_view Remedy(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return "; make room for it";
  if (absl::IsPermissionDenied(status)) return "; give this process the right to write to the folder";
  if (absl::IsNotFound(status)) return "; make sure that its folder exists";
  if (absl::IsAlreadyExists(status)) return "; move it away";
  return "";
}

bool IsExportOf(const std::string& store_id, const std::string& path) {
  const absl::StatusOr<ExportMetadata> metadata = ReadExportMetadata(path);
  if (!metadata.ok()) return false;
  const auto store = metadata->find(std::string(kStoreKey));
  return store != metadata->end() && store->second == store_id;
}

}  // namespace

struct BestFile::Impl {
  const OwnerProcess process{};
  BestFileOptions options;
  std::optional<Listeners> listeners;  // set by Start
  absl::Mutex store_mutex;
  std::unique_ptr<StoreReader> store ABSL_GUARDED_BY(store_mutex);
  std::string exported ABSL_GUARDED_BY(store_mutex);  // the attempt of the step in the file; empty: none yet
  std::string problem ABSL_GUARDED_BY(store_mutex);   // that was warned of last; empty: the last look was fine

  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  MonotonicCondVar stopped;
  std::thread thread;
  Impl* left_before = nullptr;  // in a forked child

  // kAlreadyExists: the file is not an export of this store, and contents.replace is false.
  absl::Status CheckOwner() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex) {
    std::error_code ignored;
    if (options.contents.replace || IsExportOf(store->store_id(), options.path) ||
        !std::filesystem::exists(std::filesystem::symlink_status(options.path, ignored))) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(fmt::format("{} exists and is not an export of this store", options.path));
  }

  // Sets `step` if it exports one.
  absl::Status ExportBest(std::optional<int64_t>* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex) {
    if (absl::Status status = store->Refresh(); !status.ok()) {
      return absl::Status(status.code(), fmt::format("the store cannot be read: {}", std::string(status.message())));
    }
    const StepInfo* const best = FindBest(store->Steps(), options.metric, *options.mode);
    if (best == nullptr || best->state == StepState::kDeleted || best->attempt == exported) return absl::OkStatus();
    const int64_t number = best->step;
    std::string attempt = best->attempt;
    absl::Status status = CheckOwner();
    if (status.ok()) {
      ExportOptions contents = options.contents;
      contents.replace = true;
      status = ExportSafetensors(*store, number, options.path, contents).status();
    }
    if (!status.ok()) {
      return absl::Status(status.code(), fmt::format("step {}, the best by '{}', was not exported: {}{}", number,
                                                     options.metric, std::string(status.message()), Remedy(status)));
    }
    exported = std::move(attempt);
    *step = number;
    return absl::OkStatus();
  }

  absl::Status Update() ABSL_LOCKS_EXCLUDED(store_mutex) {
    if (absl::Status status = process.Check(); !status.ok()) return status;
    std::optional<int64_t> step;
    std::string warning;
    absl::Status status;
    {
      absl::MutexLock lock(&store_mutex);
      status = Guarded("BestFile::Update", [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ExportBest(&step); });
      storage::BestEffort([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const std::string found(status.message());
        if (std::exchange(problem, found) == found || status.ok()) return;
        warning = fmt::format("{} is not up to date: {}. It is tried again", options.path, found);
      });
    }
    // The observer may call Update.
    if (!warning.empty()) listeners->Warn(warning);
    if (step) listeners->Exported(*step, options.path);
    return status;
  }

  void Loop() {
    storage::LowerThreadPriority(Tuning().background_nice, /*idle_io=*/false).IgnoreError();
    const auto is_stopping = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping; };
    absl::Duration pause = options.poll_interval;
    while (true) {
      pause =
          Update().ok() ? options.poll_interval : std::min(2 * pause, std::max(options.poll_interval, kRetryPauseMax));
      absl::MutexLock lock(&mutex);
      if (stopped.Await(&mutex, is_stopping, Deadline::After(pause))) return;
    }
  }
};

BestFile::BestFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<BestFile>> BestFile::Start(BestFileOptions options) {
  if (options.path.empty()) return absl::InvalidArgumentError("path: expected a file, found an empty path");
  if (options.poll_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        fmt::format("poll_interval: expected more than 0, found {}", absl::FormatDuration(options.poll_interval)));
  }
  options.path = storage::AbsolutePath(options.path);
  auto impl = std::make_unique<Impl>();
  impl->listeners.emplace(options.observer);
  {
    absl::MutexLock lock(&impl->store_mutex);
    absl::StatusOr<std::unique_ptr<StoreReader>> store = StoreReader::Open(storage::AbsolutePath(options.store));
    if (!store.ok()) return store.status();
    LeaveOutStaticDestructorsInChildren();
    impl->store = *std::move(store);
    if (!options.mode) options.mode = impl->store->BestModeOf(options.metric);
    if (!options.mode) {
      return absl::InvalidArgumentError(fmt::format(
          "mode: neither the store nor the name '{}' says whether the lowest or the highest value is the best",
          options.metric));
    }
    impl->options = std::move(options);
    if (absl::Status status = impl->CheckOwner(); !status.ok()) {
      return absl::AlreadyExistsError(
          fmt::format("{}; move it away, or set contents.replace", std::string(status.message())));
    }
  }
  try {
    impl->thread = std::thread([raw = impl.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        fmt::format("start the thread that keeps {} up to date: {}", impl->options.path, error.what()));
  }
  return std::unique_ptr<BestFile>(new BestFile(std::move(impl)));
}

BestFile::~BestFile() {
  if (!impl_->process.is_this()) {
    // A child has no thread to join. Another thread may have held the mutexes at the fork, so they cannot be destroyed.
    // LeakSanitizer reports no memory that a static variable reaches.
    static std::atomic<Impl*> last = nullptr;
    Impl* const left = impl_.release();
    left->left_before = last.exchange(left);
    return;
  }
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->stopping = true;
  }
  impl_->stopped.NotifyAll();
  impl_->thread.join();
}

absl::Status BestFile::Update() { return impl_->Update(); }

}  // namespace tidemark
