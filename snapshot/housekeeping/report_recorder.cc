#include "snapshot/housekeeping/report_recorder.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/closed_error.h"
#include "snapshot/guarded.h"
#include "storage/io/exception_status.h"
#include "storage/records/metric_report.h"

namespace tidemark {
namespace {

// Errors that another try cannot mend.
bool IsFinal(const absl::Status& s) { return IsNotFound(s) || IsInvalidArgument(s) || IsAlreadyExists(s); }

// Errors of the disk or the store as a whole, which other reports would meet as well.
bool IsCommon(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) || absl::IsFailedPrecondition(status);
}

// Whether the report is not tried again after this error. kFailedPrecondition: the store was moved or replaced, or
// another process holds it. That may last for ever, so a caller who waits is told. A report for which no caller waits
// stays, since the store may be moved back.
bool IsRefused(const Report& report, const absl::Status& status) {
  return IsFinal(status) || (absl::IsFailedPrecondition(status) && report.recorded != nullptr);
}

}  // namespace

absl::Status NoStepFor(int64_t step, const absl::Status& failure) {
  return absl::NotFoundError(
      fmt::format("there is no step {}; its save failed: {}", step, std::string(failure.message())));
}

ReportRecorder::ReportRecorder(const HousekeeperHost& host, PendingReports& pending, RetryWarnings& warnings,
                               std::function<void()> recorded)
    : host_(host), pending_(pending), warnings_(warnings), recorded_(std::move(recorded)) {}

absl::Status ReportRecorder::Settle(std::list<Report>& together, const absl::Status& thrown,
                                    std::list<Report>& failed) {
  absl::Status first;
  while (!together.empty()) {
    Report& report = together.front();
    absl::Status status = thrown.ok() ? report.last_try : thrown;
    if (status.ok()) {
      // A try that failed may have reached the disk all the same, and this one had no news then.
      if (report.tried && !report.told) Recorded(report.step, report.evaluation);
      if (report.recorded != nullptr) report.recorded->Set(absl::OkStatus());
      together.pop_front();
    } else if (IsRefused(report, status)) {
      if (!IsFinal(status)) first.Update(status);
      storage::BestEffort([&] { GiveUp(report, std::move(status)); });
      together.pop_front();
    } else {
      first.Update(status);
      report.tried = true;
      report.last_try = std::move(status);
      failed.splice(failed.end(), together, together.begin());
    }
  }
  return first;
}

absl::Status ReportRecorder::Record(std::list<Report>& fresh, bool last) {
  for (const Report& report : fresh) storage::BestEffort([&] { WarnIfFailed(report); });
  std::list<Report> reports;
  reports.swap(unrecorded_);
  reports.splice(reports.end(), fresh);
  absl::Status first;
  absl::Status common;
  std::map<int64_t, absl::Status> stuck;  // steps with a report that failed: their later reports wait behind it
  std::list<Report> of_stuck;
  while (!reports.empty()) {
    Report& report = reports.front();
    const auto found = stuck.find(report.step);
    const bool is_stuck = found != stuck.end();
    // Once the disk refuses, the rest would hear the same from it, or be the first when it is tried again.
    if (is_stuck || (!common.ok() && !last)) {
      const absl::Status& why = is_stuck ? found->second : common;
      if (IsRefused(report, why)) {
        storage::BestEffort([&] { GiveUp(report, why); });
        reports.pop_front();
        continue;
      }
      report.last_try = why;
      std::list<Report>& waiting = is_stuck ? of_stuck : unrecorded_;
      waiting.splice(waiting.end(), reports, reports.begin());
      continue;
    }
    const int64_t step = report.step;
    std::list<Report> together;
    together.splice(together.end(), reports, reports.begin(),
                    std::next(reports.begin(), static_cast<std::ptrdiff_t>(TogetherWithFirst(reports))));
    const absl::Status thrown = Guarded("the record of an evaluation", [&] { RecordOrReplace(together); });
    const absl::Status status = Settle(together, thrown, of_stuck);
    if (status.ok()) continue;
    first.Update(status);
    if (IsCommon(status)) common.Update(status);
    try {
      stuck.emplace(step, status);
    } catch (...) {
      // Without a note of the step, the later ones of it would overtake this one.
      for (Report& later : reports) later.last_try = status;
      of_stuck.splice(of_stuck.end(), reports);
    }
  }
  unrecorded_.splice(unrecorded_.end(), of_stuck);
  // Without memory those that are known already stay, and these are among them.
  storage::BestEffort([&] { pending_.SetUnrecorded(unrecorded_); });
  warnings_.Note("evaluations cannot be recorded", unrecorded_.empty() ? absl::OkStatus() : first);
  return first;
}

void ReportRecorder::KeepForNextTry(std::list<Report>& reports, const absl::Status& why) {
  for (Report& report : reports) report.last_try = why;
  unrecorded_.splice(unrecorded_.end(), reports);
}

void ReportRecorder::TakeIn(const storage::EvaluationFact& report) {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome == Evaluation::Outcome::kFailed) {
    host_.listeners.Warn(fmt::format("evaluator '{}' of {} failed at step {}: {}", evaluation.evaluator,
                                     evaluation.worker, report.step, evaluation.reason));
  }
  for (Report& waiting : unrecorded_) {
    const bool same = waiting.step == report.step && waiting.evaluation.evaluator == evaluation.evaluator;
    waiting.told = waiting.told || same;
  }
  Recorded(report.step, evaluation);
}

absl::Status ReportRecorder::RejectUnrecorded() {
  absl::Status lost;
  // The entry of one that failed may have reached the disk all the same. The next holder finds out.
  if (!unrecorded_.empty()) {
    const absl::Status& why = unrecorded_.front().last_try;
    lost = why;  // where there is no memory for more
    storage::BestEffort([&] {
      lost = absl::Status(why.code(), fmt::format("{} evaluations could not be recorded, and may be lost: {}",
                                                  unrecorded_.size(), std::string(why.message())));
      host_.listeners.Warn(std::string(lost.message()));
    });
  }
  host_.statistics.AddRejected(unrecorded_.size());
  for (; !unrecorded_.empty(); unrecorded_.pop_front()) {
    const Report& report = unrecorded_.front();
    if (report.recorded != nullptr) report.recorded->Set(report.last_try);
  }
  for (const Report& report : pending_.TakeHeld()) storage::BestEffort([&] { GiveUp(report, ClosedError()); });
  return lost;
}

size_t ReportRecorder::TogetherWithFirst(const std::list<Report>& reports) {
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

void ReportRecorder::RecordOrReplace(std::list<Report>& together) {
  std::vector<Report*> reports;
  for (Report& report : together) reports.push_back(&report);
  RecordTogether(reports);
  std::erase_if(reports, [](const Report* report) {
    return !absl::IsInvalidArgument(report->last_try) || report->recorded != nullptr;
  });
  for (Report* report : reports) {
    report->evaluation = FailedRow(report->evaluation, report->last_try);
    WarnIfFailed(*report);
  }
  if (!reports.empty()) RecordTogether(reports);
}

void ReportRecorder::WarnIfFailed(const Report& report) const {
  const Evaluation& evaluation = report.evaluation;
  if (evaluation.outcome != Evaluation::Outcome::kFailed) return;
  host_.listeners.Warn(
      fmt::format("evaluator '{}' failed at step {}: {}", evaluation.evaluator, report.step, evaluation.reason));
}

absl::Status ReportRecorder::CheckTarget(const Report& report, const std::optional<storage::StepRecord>& record) {
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

void ReportRecorder::RecordTogether(std::span<Report* const> reports) {
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

void ReportRecorder::RecordOn(const StepInfo& info, std::span<Report* const> reports) {
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

void ReportRecorder::Recorded(int64_t step, const Evaluation& evaluation) {
  host_.statistics.AddRecorded(1);
  recorded_();
  host_.listeners.Evaluated(step, evaluation);
}

void ReportRecorder::GiveUp(const Report& report, absl::Status why) const {
  // A skipped row says nothing if its step does not exist, or if the step has a better row.
  if (report.recorded == nullptr && report.evaluation.outcome == Evaluation::Outcome::kSkipped) return;
  host_.statistics.AddRejected(1);
  if (report.recorded != nullptr) return report.recorded->Set(std::move(why));
  host_.listeners.Warn(fmt::format("the result of evaluator '{}' for step {} is dropped: {}",
                                   report.evaluation.evaluator, report.step, std::string(why.message())));
}

}  // namespace tidemark
