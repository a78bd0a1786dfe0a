// AsyncCheckpointer::Resume: the step at which a training goes on, and memory for its first save.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "fmt/format.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/guarded.h"
#include "storage/io/exception_status.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

// The evidence, in words, that an earlier run has committed a step here; empty: there is none. Failed saves, and steps
// that were only evaluated, leave a run fresh.
absl::StatusOr<std::string> TraceOfEarlierRun(const storage::StepCatalog& catalog, storage::FileSystem& files,
                                              const storage::StoreLayout& layout) {
  std::string trace;
  absl::Status status = catalog.ForEach([&](const storage::StepRecord& record) {
    const StepState state = record.info.state;
    if (state != StepState::kFailed && state != StepState::kUnsaved) {
      trace = fmt::format("step {} is {}", record.info.step, StepStateName(state));
    }
    return trace.empty();
  });
  if (!status.ok() || !trace.empty()) return status.ok() ? absl::StatusOr<std::string>(trace) : status;
  // If journal and index were lost and every step is damaged, there are files and no record.
  absl::StatusOr<std::vector<storage::DirectoryEntry>> moved = files.ListDirectory(layout.quarantine());
  if (absl::IsNotFound(moved.status())) return trace;
  if (!moved.ok()) return moved.status();
  if (!moved->empty()) trace = fmt::format("{} holds {}", layout.quarantine(), moved->front().name);
  return trace;
}

}  // namespace

absl::Status AsyncCheckpointer::Impl::PrepareInBackground(State& state, bool is_restored) {
  WaitUntilTensorsAreRead();
  const std::shared_ptr<PartOfState> part = PartToStage(state);
  State& staged = part == nullptr ? state : *part;
  if (!is_restored) {
    state.AwaitStaging();
    const absl::Status refreshed = Guarded("State::Refresh", [&] { return staged.Refresh(); });
    if (!refreshed.ok()) return refreshed;
  } else if (part != nullptr) {
    part->Look();
  }
  stager.PrepareInBackground(staged);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> AsyncCheckpointer::Resume(State& state, const RestoreOptions& options) {
  return Guarded("Resume", [&]() -> absl::StatusOr<int64_t> {
    const absl::StatusOr<RestoreReport> report = RestoreLatest(state, options);
    if (report.ok()) {
      storage::BestEffort([&] { impl_->PrepareInBackground(state, /*is_restored=*/true).IgnoreError(); });
      if (report->step < std::numeric_limits<int64_t>::max()) return report->step + 1;
      return absl::OutOfRangeError(
          fmt::format("step {} was restored, but it is the highest possible step", report->step));
    }
    if (!absl::IsNotFound(report.status())) return report.status();
    const auto check_is_fresh = [&]() -> absl::Status {
      absl::StatusOr<std::string> trace =
          TraceOfEarlierRun(impl_->store->catalog(), impl_->files, impl_->store->layout());
      if (!trace.ok() || trace->empty()) return trace.status();
      return absl::FailedPreconditionError(
          fmt::format("{}; no fresh run is started, because {} (a fresh run needs another directory)",
                      std::string(report.status().message()), *trace));
    };
    absl::Status fresh = impl_->store->is_holder() ? check_is_fresh() : absl::OkStatus();
    if (impl_->exchange != nullptr) fresh = impl_->exchange->FromRank0("Resume", fresh, "").status();
    if (!fresh.ok()) return fresh;
    // What is wrong with the state is the business of the save.
    storage::BestEffort([&] { impl_->PrepareInBackground(state, /*is_restored=*/false).IgnoreError(); });
    return 0;
  });
}

}  // namespace tidemark
