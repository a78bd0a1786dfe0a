// The housekeeper's record of reports: in the step's folder and the manifest, or why there can be none.

#include <cstddef>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/manifest/inbox.h"
#include "storage/records/metric_report.h"

namespace tidemark {

absl::Status NoStepFor(int64_t step, const absl::Status& failure) {
  return absl::NotFoundError(
      fmt::format("there is no step {}; its save failed: {}", step, std::string(failure.message())));
}

size_t Housekeeper::TogetherWithFirst(const std::list<Report>& reports) {
  size_t count = 0;
  try {
    std::set<std::string_view> evaluators;
    for (const Report& report : reports) {
      const Report& first = reports.front();
      const bool belongs = report.step == first.step && report.unsaved == first.unsaved;
      // A later row of the same evaluator takes the place of the earlier one.
      if (!belongs || !evaluators.insert(report.evaluation.evaluator).second) break;
      ++count;
    }
    return count;
  } catch (...) {
    return 1;
  }
}

void Housekeeper::RecordOrReplace(std::list<Report>& together) {
  std::vector<Report*> reports;
  for (Report& report : together) reports.push_back(&report);
  Record(reports);
  std::erase_if(reports, [](const Report* report) {
    return !absl::IsInvalidArgument(report->last_try) || report->recorded != nullptr;
  });
  for (Report* report : reports) {
    report->evaluation = FailedRow(report->evaluation, report->last_try);
    WarnIfFailed(*report);
  }
  if (!reports.empty()) Record(reports);
}

void Housekeeper::WarnIfFailed(const Report& report) {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome != Evaluation::Outcome::kFailed) return;
  host_.listeners.Warn(
      fmt::format("evaluator '{}' failed at step {}: {}", evaluation.evaluator, report.step, evaluation.reason));
}

absl::Status Housekeeper::CheckTarget(const Report& report, const std::optional<storage::StepRecord>& record) {
  if (!report.failure.ok()) return NoStepFor(report.step, report.failure);
  if (!record) return absl::NotFoundError(fmt::format("there is no step {}", report.step));
  const StepInfo& info = record->info;
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
  return absl::OkStatus();
}

void Housekeeper::Record(std::span<Report* const> reports) {
  const Report& first = *reports.front();
  absl::StatusOr<std::optional<storage::StepRecord>> record = host_.store.catalog().Find(first.step);
  if (record.ok() && !record->has_value() && first.unsaved != nullptr) {
    const absl::Status status = host_.store.RecordUnsaved(*first.unsaved);
    record = status.ok() ? host_.store.catalog().Find(first.step) : status;
  }
  std::vector<Report*> of_step;
  for (Report* report : reports) {
    report->last_try = record.ok() ? CheckTarget(*report, *record) : record.status();
    if (report->last_try.ok()) of_step.push_back(report);
  }
  if (of_step.empty()) return;
  const StepInfo& info = (*record)->info;
  storage::MayHaveFiles(info.state) ? RecordWithFiles(info, of_step) : RecordAlone(info, of_step);
}

void Housekeeper::RecordWithFiles(const StepInfo& info, std::span<Report* const> reports) {
  const auto attempt = storage::FromHex(info.attempt);
  std::vector<storage::MetricReport> own;
  for (Report* report : reports) {
    if (!attempt) {
      report->last_try = absl::DataLossError(fmt::format("the record of step {} names no attempt", info.step));
      continue;
    }
    own.push_back({.store = host_.store.id(),
                   .step = info.step,
                   .attempt = storage::AttemptId{*attempt},
                   .evaluation = report->evaluation});
  }
  const auto warn = [this](std::string_view line) { host_.listeners.Warn(line); };
  const storage::OwnReportsResult result = storage::RecordReports(host_.files, host_.store, own, warn);
  for (const storage::MetricReport& recorded : result.recorded) Recorded(recorded.step, recorded.evaluation);
  for (size_t i = 0; i < result.each.size(); ++i) {
    reports[i]->last_try = result.each[i].status;
    reports[i]->told = reports[i]->told || result.each[i].recorded;
  }
}

void Housekeeper::RecordAlone(const StepInfo& info, std::span<Report* const> reports) {
  std::vector<Report*> ready;
  for (Report* report : reports) {
    if (storage::IsOutranked(info, report->evaluation)) {
      report->last_try =
          absl::AlreadyExistsError(fmt::format("it has already reported a result for step {}", report->step));
      continue;
    }
    // Held to the same size as those that go into a file.
    report->last_try =
        storage::EncodeMetricReport(
            {.store = host_.store.id(), .step = report->step, .attempt = {}, .evaluation = report->evaluation})
            .status();
    if (report->last_try.ok()) ready.push_back(report);
  }
  if (ready.empty()) return;
  std::vector<Report*> news;
  const absl::Status status = host_.store.UpdateStep(info.step, info.attempt, [&](storage::StepRecord& changed) {
    news.clear();
    for (Report* report : ready) {
      if (storage::HasEvaluation(changed.info, report->evaluation)) continue;
      storage::ApplyEvaluation(changed.info, report->evaluation);
      news.push_back(report);
    }
    return !news.empty();
  });
  for (Report* report : ready) report->last_try = status;
  if (!status.ok()) return;
  for (Report* report : news) {
    report->told = true;
    Recorded(report->step, report->evaluation);
  }
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
