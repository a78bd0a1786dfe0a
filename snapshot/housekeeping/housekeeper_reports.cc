// The housekeeper's record of one report: in the step's folder and the manifest, or why there can be none.

#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/metric_report.h"

namespace tidemark {

absl::Status NoStepFor(int64_t step, const absl::Status& failure) {
  return absl::NotFoundError(
      fmt::format("there is no step {}; its save failed: {}", step, std::string(failure.message())));
}

absl::Status Housekeeper::RecordOrReplace(Report& report) {
  absl::Status status = Record(report);
  if (!absl::IsInvalidArgument(status) || report.recorded != nullptr) return status;
  report.evaluation = FailedRow(report.evaluation, status);
  WarnIfFailed(report);
  return Record(report);
}

void Housekeeper::WarnIfFailed(const Report& report) {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome != Evaluation::Outcome::kFailed) return;
  host_.listeners.Warn(
      fmt::format("evaluator '{}' failed at step {}: {}", evaluation.evaluator, report.step, evaluation.reason));
}

absl::Status Housekeeper::Record(Report& report) {
  if (!report.failure.ok()) return NoStepFor(report.step, report.failure);
  absl::StatusOr<std::optional<storage::StepRecord>> record = host_.store.manifest().Find(report.step);
  if (!record.ok()) return record.status();
  if (!record->has_value() && report.unsaved != nullptr) {
    if (absl::Status status = host_.store.RecordUnsaved(*report.unsaved); !status.ok()) return status;
    record = host_.store.manifest().Find(report.step);
    if (!record.ok()) return record.status();
  }
  if (!record->has_value()) return absl::NotFoundError(fmt::format("there is no step {}", report.step));
  const StepInfo& info = (*record)->info;
  if (info.state == StepState::kFailed && report.unsaved == nullptr) {
    return absl::NotFoundError(fmt::format("there is no step {}; its save failed: {}", report.step, info.reason));
  }
  const bool saved_since = report.save != 0 && report.unsaved != nullptr && info.state != StepState::kUnsaved &&
                           info.state != StepState::kFailed;
  if (saved_since || (!report.attempt.empty() && report.attempt != info.attempt)) {
    const bool anew = !saved_since || info.state == StepState::kCommitted;
    const std::string what = anew ? "been saved again" : fmt::format("a save, which is {}", StepStateName(info.state));
    return absl::NotFoundError(fmt::format("step {} has {}", report.step, what));
  }
  if (storage::MayHaveFiles(info.state)) {
    const auto attempt = storage::FromHex(info.attempt);
    if (!attempt) return absl::DataLossError(fmt::format("the record of step {} names no attempt", report.step));
    const storage::MetricReport own{.store = host_.store.id(),
                                    .step = report.step,
                                    .attempt = storage::AttemptId{*attempt},
                                    .evaluation = report.evaluation};
    const auto warn = [this](std::string_view line) { host_.listeners.Warn(line); };
    const storage::InboxResult result = storage::RecordReport(host_.files, host_.store, own, warn);
    for (const storage::MetricReport& recorded : result.recorded) Recorded(recorded.step, recorded.evaluation);
    report.told = report.told || !result.recorded.empty();
    return result.error;
  }
  if (storage::IsOutranked(info, report.evaluation)) {
    return absl::AlreadyExistsError(fmt::format("it has already reported a result for step {}", report.step));
  }
  // Held to the same size as those that go into a file.
  const absl::StatusOr<std::string> encoded = storage::EncodeMetricReport(
      {.store = host_.store.id(), .step = report.step, .attempt = {}, .evaluation = report.evaluation});
  if (!encoded.ok()) return encoded.status();
  bool news = false;
  absl::Status status = host_.store.UpdateStep(report.step, info.attempt, [&](storage::StepRecord& changed) {
    news = !storage::HasEvaluation(changed.info, report.evaluation);
    if (news) storage::ApplyEvaluation(changed.info, report.evaluation);
    return news;
  });
  if (status.ok() && news) {
    report.told = true;
    Recorded(report.step, report.evaluation);
  }
  return status;
}

void Housekeeper::Recorded(int64_t step, const Evaluation& evaluation) {
  host_.statistics.AddRecorded(1);
  {
    absl::MutexLock lock(&mutex_);
    retention_due_ = true;
  }
  host_.listeners.Evaluated(step, evaluation);
}

void Housekeeper::GiveUp(const Report& report, absl::Status why) {
  // A skipped row says nothing if its step does not exist, or if the step has a better row.
  if (report.recorded == nullptr && report.evaluation.outcome == Evaluation::Outcome::kSkipped) return;
  host_.statistics.AddRejected(1);
  if (report.recorded != nullptr) return report.recorded->Set(std::move(why));
  host_.listeners.Warn(fmt::format("the result of evaluator '{}' for step {} is dropped: {}",
                                   report.evaluation.evaluator, report.step, std::string(why.message())));
}

}  // namespace tidemark
