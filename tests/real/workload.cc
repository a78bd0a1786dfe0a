#include "tests/real/workload.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/real/step_oracle.h"
#include "tests/snapshot/observers.h"

namespace tidemark {
namespace {

constexpr int64_t kPinsMax = 3;

}  // namespace

CheckpointerOptions DrawOptions(std::mt19937& random, std::string directory) {
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  CheckpointerOptions options;
  options.directory = std::move(directory);
  options.compression = static_cast<Compression>(draw(0, 2));
  options.reuse = draw(0, 4) > 0;
  options.tuning.chunk_bytes = VersionedState::kChunkBytes;
  options.tuning.codec_threads = draw(1, 2);
  options.tuning.io = draw(0, 1) == 0 ? IoBackend::kAuto : IoBackend::kThreads;
  options.tuning.io_depth = draw(1, 4);
  options.retention = StepOracle::Rules();
  options.observer = NoWarnings();
  return options;
}

Workload::Workload(AsyncCheckpointer& checkpointer, SaveLog& log, uint32_t seed, int64_t next_step,
                   int64_t next_version)
    : checkpointer_(checkpointer),
      log_(log),
      random_(seed),
      first_step_(next_step),
      next_step_(next_step),
      next_version_(next_version) {}

Workload::~Workload() { checkpointer_.WaitUntilStaged().IgnoreError(); }

absl::Status Workload::Operate() {
  switch (Draw(0, 9)) {
    case 0:
    case 1:
      // One of the last that were begun, if this run began any.
      if (next_step_ > first_step_) return Save(Draw(std::max(first_step_, next_step_ - 3), next_step_ - 1));
      return Save(next_step_++);
    case 2:
      return Report();
    case 3:
      return PinOrUnpin();
    default:
      next_step_ += Draw(0, 1);
      return Save(next_step_++);
  }
}

absl::Status Workload::Save(int64_t step) {
  if (absl::Status status = checkpointer_.WaitUntilStaged(); !status.ok()) return status;
  const int64_t version = next_version_++;
  const double loss = std::uniform_real_distribution<double>(0, 1)(random_);
  trained_.SetTo(step, version);
  log_.Begun(step, version, loss);
  SaveOptions options{.metrics = {{"loss", loss}}, .overwrite = true};
  options.user_metadata = "{\"note\": \"" + std::string(static_cast<size_t>(Draw(0, 4000)), 'm') + "\"}";
  if (Draw(0, 2) == 0) options.staging = Staging::kOverlapped;
  absl::StatusOr<SaveHandle> save = checkpointer_.Save(step, trained_.state(), std::move(options));
  if (!save.ok()) return save.status();
  save->committed().OnReady([log = &log_, version](const absl::Status& status) {
    if (status.ok()) log->Committed(version);
  });
  return Draw(0, 3) == 0 ? save->committed().Wait() : absl::OkStatus();
}

absl::Status Workload::Report() {
  absl::StatusOr<StepInfo> latest = checkpointer_.LatestStep();
  if (absl::IsNotFound(latest.status())) return absl::OkStatus();
  if (!latest.ok()) return latest.status();
  // Which version it is about, is known only while nobody saves the step anew.
  if (absl::Status status = checkpointer_.WaitUntilCommitted(); !status.ok()) return status;
  VersionedState restored;
  absl::StatusOr<RestoreReport> report = checkpointer_.RestoreLatest(restored.state());
  if (!report.ok()) return report.status();
  const double score = std::uniform_real_distribution<double>(0, 1)(random_);
  log_.Reporting(restored.version(), score);
  checkpointer_.ReportMetrics(report->step, "late", {{"score", score}})
      .OnReady([log = &log_, version = restored.version(), score](const absl::Status& status) {
        if (status.ok()) log->Reported(version, score);
      });
  // A report that the disk refuses is tried again until it takes it, so it is not waited for itself.
  return checkpointer_.WaitUntilEvaluated();
}

absl::Status Workload::PinOrUnpin() {
  absl::StatusOr<std::vector<StepInfo>> steps = checkpointer_.Steps();
  if (!steps.ok()) return steps.status();
  std::vector<StepInfo> pinned;
  for (const StepInfo& info : *steps) {
    if (info.state == StepState::kCommitted && info.pinned) pinned.push_back(info);
  }
  const bool pin = static_cast<int64_t>(pinned.size()) < Draw(0, kPinsMax);
  const absl::StatusOr<StepInfo> latest = checkpointer_.LatestStep();
  if (pin ? !latest.ok() : pinned.empty()) return absl::OkStatus();
  const int64_t step = pin ? latest->step : pinned.front().step;
  log_.Pinning(step);
  const absl::Status status = pin ? checkpointer_.Pin(step, "a good one") : checkpointer_.Unpin(step);
  if (absl::IsNotFound(status)) return absl::OkStatus();  // let go meanwhile
  if (status.ok()) log_.Pinned(step, pin);
  return status;
}

}  // namespace tidemark
