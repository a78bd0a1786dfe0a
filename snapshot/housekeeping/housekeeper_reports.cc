// The housekeeper's record of reports, or why there can be none.

#include <algorithm>
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
  // kNotFound is final, so it is not said by a catalog that lacks the newest entries. They may have the step: a commit
  // whose outcome was not known, for example.
  const auto misses = [&](const Report* report) {
    return report->failure.ok() && absl::IsNotFound(CheckTarget(*report, *record));
  };
  if (record.ok() && std::any_of(reports.begin(), reports.end(), misses)) {
    // Without a report it only brings the catalog up to date, and leaves the news of others to the next look.
    const absl::Status fresh = host_.store.RecordReports({}).status();
    record = fresh.ok() ? host_.store.catalog().Find(first.step) : fresh;
  }
  std::vector<Report*> of_step;
  for (Report* report : reports) {
    report->last_try = record.ok() ? CheckTarget(*report, *record) : record.status();
    if (report->last_try.ok()) of_step.push_back(report);
  }
  if (of_step.empty()) return;
  RecordOn((*record)->info, of_step);
}

void Housekeeper::RecordOn(const StepInfo& info, std::span<Report* const> reports) {
  std::vector<storage::EvaluationFact> own;
  for (const Report* report : reports) {
    own.push_back({.step = info.step, .attempt = info.attempt, .evaluation = report->evaluation});
  }
  const absl::StatusOr<std::vector<storage::ReportOutcome>> outcomes = host_.store.RecordReports(own);
  for (size_t i = 0; i < reports.size(); ++i) {
    reports[i]->last_try = outcomes.ok() ? (*outcomes)[i].status : outcomes.status();
    if (!outcomes.ok() || !(*outcomes)[i].is_news) continue;
    reports[i]->told = true;
    Recorded(info.step, reports[i]->evaluation);
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
