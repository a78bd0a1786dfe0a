#include "tests/crash/reopening.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/manifest/store_layout.h"
#include "tests/crash/small_trainer.h"
#include "tests/crash/stage.h"

namespace tidemark::crash {
namespace {

// Of what is saved after a crash; scenarios stay below.
constexpr int64_t kFirstContent = 1000;

absl::Status RestoreAt(AsyncCheckpointer& checkpointer, int64_t step, SmallTrainer& trainer,
                       std::optional<int64_t>& content) {
  trainer.Clear();
  const absl::Status status = checkpointer.Restore(step, trainer.state).status();
  if (status.ok()) content = trainer.ContentAt(step);
  return status;
}

absl::StatusOr<Seen> Look(AsyncCheckpointer& checkpointer, const Oracle& oracle, SmallTrainer& trainer) {
  Seen seen;
  // First of all, for it is what a trainer does, and restoring a step by its number examines it anew.
  trainer.Clear();
  const auto report = checkpointer.RestoreLatest(trainer.state);
  seen.restored_latest = report.status();
  if (report.ok()) {
    seen.restored_step = report->step;
    seen.restored_content = trainer.ContentAt(report->step);
  }
  const auto latest = checkpointer.LatestStep();
  seen.found_latest = latest.status();
  if (latest.ok()) seen.latest = latest->step;
  auto steps = checkpointer.Steps();
  if (!steps.ok()) return steps.status();
  std::set<int64_t> unknown = oracle.steps();
  for (const StepInfo& info : *steps) {
    unknown.erase(info.step);
    SeenStep step{
        .step = info.step, .state = info.state, .metrics = info.metrics, .pinned = info.pinned, .tags = info.tags};
    step.restored = RestoreAt(checkpointer, info.step, trainer, step.content);
    seen.steps.push_back(std::move(step));
  }
  for (const int64_t number : unknown) {
    SeenStep step{.step = number, .state = StepState::kFailed};
    step.restored = RestoreAt(checkpointer, number, trainer, step.content);
    seen.steps.push_back(std::move(step));
  }
  return seen;
}

std::set<int64_t> StepsWithShards(storage::FileSystem& files) {
  const storage::StoreLayout layout(kStore);
  std::set<int64_t> steps;
  for (const std::string& directory : {layout.steps(), layout.quarantine()}) {
    const auto folders = files.ListDirectory(directory);
    if (!folders.ok()) continue;  // there may be none
    for (const storage::DirectoryEntry& folder : *folders) {
      const auto parsed = storage::ParseStepFolderName(folder.name);
      const std::string shard = directory + "/" + folder.name + "/" + storage::ShardFileName(0, 1);
      if (parsed && files.TypeOf(shard).ok()) steps.insert(parsed->step);
    }
  }
  return steps;
}

class Run {
 public:
  Run(storage::SimulatedDisk& disk, storage::FileSystem& files, Oracle oracle)
      : disk_(disk), files_(files), oracle_(std::move(oracle)) {}

  // Each returns whether there is any sense in going on.
  bool Open();
  bool LookAround();
  bool SaveNext();
  bool Close();

  Reopening& result() { return result_; }

 private:
  void Mark(const std::string& mark) {
    oracle_.Hear(mark);
    disk_.Mark(mark);
  }
  bool Fine(std::string_view what, const absl::Status& status) {
    if (!status.ok()) result_.violations.push_back(absl::StrCat(std::string(what), ": ", status.ToString()));
    return status.ok();
  }

  storage::SimulatedDisk& disk_;
  storage::FileSystem& files_;
  Oracle oracle_;
  Reopening result_;
  SmallTrainer trainer_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

bool Run::Open() {
  auto opened = OpenOrderly(files_, SmallOptions(&result_.warnings));
  if (!Fine("opening", opened.status())) return false;
  checkpointer_ = *std::move(opened);
  Mark(std::string(kManifestIsSound));
  // Takes in what workers have left.
  return Fine("I5: tidying up", checkpointer_->Tidy());
}

bool Run::LookAround() {
  auto seen = Look(*checkpointer_, oracle_, trainer_);
  if (!Fine("listing the steps", seen.status())) return false;
  seen->with_shards = StepsWithShards(disk_);
  result_.violations = oracle_.Violations(*seen);
  if (!result_.violations.empty()) return false;
  for (const std::string& mark : oracle_.MarksOf(*seen)) Mark(mark);
  return true;
}

bool Run::SaveNext() {
  const std::set<int64_t> steps = oracle_.steps();
  const int64_t step = steps.empty() ? 1 : *steps.rbegin() + 1;
  const int64_t content = kFirstContent + step;
  trainer_.SetTo(step, content);
  Mark(Saving(step, content));
  auto save = checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", LossOf(step, content)}}});
  if (!Fine("I5: the next save", save.ok() ? save->committed().Wait() : save.status())) return false;
  Mark(Saved(step, content));
  trainer_.Clear();
  const auto report = checkpointer_->RestoreLatest(trainer_.state);
  if (!Fine("I5: restoring the next save", report.status())) return false;
  if (report->step == step && trainer_.ContentAt(step) == content) return true;
  result_.violations.push_back(
      absl::StrCat("I5: step ", report->step, " was restored instead of the next save, ", step));
  return false;
}

bool Run::Close() { return Fine("closing", std::exchange(checkpointer_, nullptr)->Close()); }

}  // namespace

Reopening Reopen(storage::SimulatedDisk& disk, storage::FileSystem& files, Oracle oracle, bool again) {
  Run run(disk, files, std::move(oracle));
  const bool sound = run.Open() && run.LookAround() && run.SaveNext() && run.Close();
  if (sound && again && run.Open() && run.LookAround()) run.Close();
  return std::move(run.result());
}

}  // namespace tidemark::crash
