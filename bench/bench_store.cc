#include "bench/bench_store.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "bench/work_folder.h"

namespace tidemark::bench {
namespace {

namespace fs = std::filesystem;

class WarningsOnProgress final : public CheckpointObserver {
 public:
  explicit WarningsOnProgress(Context& context) : context_(context) {}
  void Warning(std::string_view line) override { context_.progress().Warn(line); }

 private:
  Context& context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BenchStore>> BenchStore::Open(Context& context, CheckpointerOptions options) {
  std::unique_ptr<BenchStore> store(new BenchStore());
  store->directory_ = context.NewPath("store");
  options.directory = store->directory_;
  options.observer = std::make_shared<WarningsOnProgress>(context);
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer = AsyncCheckpointer::Open(std::move(options));
  if (!checkpointer.ok()) return checkpointer.status();
  store->checkpointer_ = *std::move(checkpointer);
  return store;
}

BenchStore::~BenchStore() {
  checkpointer_.reset();
  std::error_code ignored;  // the work folder is removed after it, whatever is left here
  fs::remove_all(directory_, ignored);
}

absl::StatusOr<SaveHandle> BenchStore::Save(State& state, Staging staging) {
  return checkpointer_->Save(next_step_++, state, {.staging = staging});
}

absl::StatusOr<double> BenchStore::SaveUntilCommitted(State& state) {
  const Stopwatch watch;
  absl::StatusOr<SaveHandle> save = Save(state, Staging::kBlocking);
  if (!save.ok()) return save.status();
  if (absl::Status committed = save->committed().Wait(); !committed.ok()) return committed;
  return watch.seconds();
}

absl::StatusOr<double> BenchStore::SaveBlocked(State& state, Staging staging) {
  const Stopwatch watch;
  absl::StatusOr<SaveHandle> save = Save(state, staging);
  const double blocked = watch.seconds();
  if (!save.ok()) return save.status();
  if (absl::Status committed = save->committed().Wait(); !committed.ok()) return committed;
  return blocked;
}

absl::StatusOr<double> BenchStore::RestoreCold(State& state) {
  if (absl::Status dropped = DropCaches(directory_); !dropped.ok()) return dropped;
  const Stopwatch watch;
  absl::StatusOr<RestoreReport> report = checkpointer_->RestoreLatest(state);
  const double seconds = watch.seconds();
  if (!report.ok()) return report.status();
  return seconds;
}

absl::StatusOr<StepInfo> BenchStore::LastStep() const {
  absl::StatusOr<std::vector<StepInfo>> steps = checkpointer_->Steps();
  if (!steps.ok()) return steps.status();
  if (steps->empty()) return absl::NotFoundError("nothing was saved in " + directory_);
  return steps->back();
}

absl::StatusOr<std::string> BenchStore::LastShard() const {
  absl::StatusOr<StepInfo> step = LastStep();
  if (!step.ok()) return step.status();
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory_ + "/steps")) {
    const fs::path& path = entry.path();
    if (path.extension() == ".tmk" && path.parent_path().filename().string().ends_with(step->attempt)) {
      return path.string();
    }
  }
  return absl::NotFoundError("the last step has no shard in " + directory_);
}

absl::Status BenchStore::RemoveShards() {
  for (const fs::directory_entry& step : fs::directory_iterator(directory_ + "/steps")) {
    std::error_code error;
    fs::remove_all(step.path(), error);
    if (error) return absl::ErrnoToStatus(error.value(), "remove " + step.path().string());
  }
  return SyncFileSystem(directory_);
}

}  // namespace tidemark::bench
