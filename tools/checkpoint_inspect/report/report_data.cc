#include "tools/checkpoint_inspect/report/report_data.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/cli/selector.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/chart_svg.h"
#include "tools/checkpoint_inspect/report/report_survey.h"

namespace tidemark::inspect {
namespace {

// Charts that a page has room for; --metric asks for others.
constexpr size_t kMetricsMax = 24;

ReportMetric DescribeMetric(const StoreReader& reader, const MetricChoice& choice) {
  ReportMetric metric{.name = choice.name, .mode = choice.mode, .best = {}, .latest = {}};
  if (!metric.mode) metric.mode = reader.BestModeOf(choice.name);
  if (metric.mode) {
    if (const absl::StatusOr<StepInfo> best = reader.BestStep(choice.name, *metric.mode); best.ok()) {
      metric.best = best->step;
      metric.best_value = best->metrics.at(choice.name);
    }
  }
  for (auto info = reader.Steps().rbegin(); info != reader.Steps().rend(); ++info) {
    const auto found = info->metrics.find(choice.name);
    if (found == info->metrics.end()) continue;
    metric.latest = info->step;
    metric.latest_value = found->second;
    break;
  }
  return metric;
}

absl::Status ChooseMetrics(const StoreReader& reader, std::vector<MetricChoice> choices, ReportData* data) {
  for (const MetricChoice& choice : choices) {
    if (absl::Status known = CheckMetric(reader, choice.name, {.before = "--metric "}); !known.ok()) return known;
  }
  if (choices.empty()) {
    std::set<std::string> names;
    for (const StepInfo& info : data->steps) {
      for (const auto& [name, value] : info.metrics) names.insert(name);
    }
    for (const std::string& name : names) {
      if (choices.size() < kMetricsMax) {
        choices.push_back({.name = name, .mode = std::nullopt});
      } else {
        data->metrics_left_out.push_back(name);
      }
    }
  }
  for (const MetricChoice& choice : choices) data->metrics.push_back(DescribeMetric(reader, choice));
  return absl::OkStatus();
}

// Of SavePhase::name those that are on the trainer's time line, in their order. One more colour is for the rest.
constexpr std::array<std::string_view, kSeriesColours - 1> kTrainerPhases = {
    "earlier save", "consumers", "refresh", "room", "values", "digest", "copy"};

// By the phases on the trainer's time line. What these do not account for, or all of it where a step has none, is a
// part of its own, which is the last.
std::vector<BlockedPart> SplitBlocked(const StoreReader& reader, std::span<const StepInfo> steps) {
  std::vector<BlockedPart> parts;
  for (size_t i = 0; i < kTrainerPhases.size(); ++i) {
    parts.push_back({.name = std::string(kTrainerPhases[i]), .colour = i, .by_step = {}});
  }
  BlockedPart& rest = parts.emplace_back(BlockedPart{.name = "other", .colour = kTrainerPhases.size(), .by_step = {}});
  for (const StepInfo& info : steps) {
    absl::Duration left = info.blocked;
    if (left <= absl::ZeroDuration()) continue;
    const absl::StatusOr<std::vector<SavePhase>> phases = reader.Phases(info.step);
    for (const SavePhase& phase : phases.ok() ? *phases : std::vector<SavePhase>()) {
      if (phase.lane != "trainer") continue;
      const absl::Duration spent = std::min(phase.duration, left);
      if (spent <= absl::ZeroDuration()) continue;
      left -= spent;
      const auto part =
          std::find_if(parts.begin(), parts.end() - 1, [&](const BlockedPart& one) { return one.name == phase.name; });
      part->by_step[info.step] += spent;
    }
    if (left > absl::ZeroDuration()) rest.by_step[info.step] += left;
  }
  std::erase_if(parts, [](const BlockedPart& part) { return part.by_step.empty(); });
  return parts;
}

void AddHealthRows(const StepInfo& info, std::vector<HealthRow>* rows) {
  using Kind = HealthRow::Kind;
  if (info.state == StepState::kDamaged) rows->push_back({Kind::kDamaged, info.step, "", info.reason});
  if (info.state == StepState::kLost) rows->push_back({Kind::kLost, info.step, "", info.reason});
  if (info.state == StepState::kFailed) rows->push_back({Kind::kFailedSave, info.step, "", info.reason});
  for (const Evaluation& row : info.evaluations) {
    if (!row.unhealthy.empty()) rows->push_back({Kind::kUnhealthy, info.step, row.evaluator, row.unhealthy});
    if (row.outcome == Evaluation::Outcome::kFailed) {
      rows->push_back({Kind::kFailedEvaluation, info.step, row.evaluator, row.reason});
    }
    if (row.outcome == Evaluation::Outcome::kSkipped) {
      rows->push_back({Kind::kSkippedEvaluation, info.step, row.evaluator, row.reason});
    }
  }
}

// "1 step", "2 steps"
std::string Count(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

constexpr size_t kNamedMax = 5;

// What is on record against the store; empty: nothing.
std::vector<std::string> RecordedTroubles(const StoreReader& reader) {
  std::vector<int64_t> damaged;
  std::vector<int64_t> lost;
  size_t failed = 0;
  size_t unhealthy = 0;
  for (const StepInfo& info : reader.Steps()) {
    if (info.state == StepState::kDamaged) damaged.push_back(info.step);
    if (info.state == StepState::kLost) lost.push_back(info.step);
    if (info.state == StepState::kFailed) ++failed;
    if (info.state == StepState::kCommitted && !info.unhealthy().empty()) ++unhealthy;
  }
  std::vector<std::string> troubles;
  if (!reader.journal_problem().ok()) troubles.push_back("the journal cannot be read");
  if (!damaged.empty()) troubles.push_back(StepsText(damaged) + " damaged");
  if (!lost.empty()) troubles.push_back(StepsText(lost) + " lost");
  if (!reader.unread().empty()) troubles.push_back(Count(reader.unread().size(), "attempt") + " not readable");
  if (failed > 0) troubles.push_back(Count(failed, "failed save"));
  if (unhealthy > 0) troubles.push_back(Count(unhealthy, "unhealthy committed step"));
  return troubles;
}

// "step 100 damaged (model.weight, model.bias)"
std::string FoundText(const ReadProblem& problem) {
  std::string text = fmt::format("step {} {}", problem.step, problem.damaged ? "damaged" : "not readable");
  if (problem.entries.empty()) return text;
  const size_t named = std::min(problem.entries.size(), kNamedMax);
  text += fmt::format(
      " ({}", fmt::join(problem.entries.begin(), problem.entries.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (problem.entries.size() > named) text += fmt::format(" and {} more", problem.entries.size() - named);
  return text + ")";
}

// Puts what reading has found among the rows, which stay ordered by step, and says it.
std::string AddFound(const ReportSurvey& survey, ReportData* data) {
  std::vector<ReadProblem> problems = survey.problems;
  std::sort(problems.begin(), problems.end(),
            [](const ReadProblem& a, const ReadProblem& b) { return a.step < b.step; });
  std::vector<std::string> said;
  for (const ReadProblem& problem : problems) {
    const auto kind = problem.damaged ? HealthRow::Kind::kDamaged : HealthRow::Kind::kUnread;
    // Rows without a step are the last.
    const auto place = std::find_if(data->health.begin(), data->health.end(),
                                    [&](const HealthRow& row) { return !row.step || *row.step > problem.step; });
    data->health.insert(place, {kind, problem.step, "this report", problem.what});
    if (said.size() < kNamedMax) said.push_back(FoundText(problem));
  }
  if (said.empty()) return "";
  if (problems.size() > said.size()) said.push_back(Count(problems.size() - said.size(), "more step"));
  return fmt::format("Found while reading tensors for this page: {}. ", fmt::join(said, ", "));
}

// Whom a restore is left with: committed steps that nothing was found against.
struct Restorable {
  const StepInfo* latest = nullptr;
  const StepInfo* latest_healthy = nullptr;
};

Restorable FindRestorable(const StoreReader& reader, const ReportSurvey* survey) {
  std::set<int64_t> unfit;
  if (survey != nullptr) {
    for (const ReadProblem& problem : survey->problems) unfit.insert(problem.step);
    for (const PassedOverStep& step : survey->passed_over) {
      if (!step.saved_anew) unfit.insert(step.step);
    }
  }
  Restorable restorable;
  for (const StepInfo& info : reader.Steps()) {
    if (info.state != StepState::kCommitted || unfit.contains(info.step)) continue;
    restorable.latest = &info;
    if (info.unhealthy().empty()) restorable.latest_healthy = &info;
  }
  return restorable;
}

std::string RestoreText(const Restorable& restorable, bool has_committed) {
  if (restorable.latest == nullptr) {
    return has_committed ? "No committed step could be read, so it is not known which step a restore takes."
                         : "There is no committed step to restore.";
  }
  std::string text = fmt::format("A restore takes step {}", restorable.latest->step);
  if (restorable.latest->unhealthy().empty()) return text + ".";
  if (restorable.latest_healthy == nullptr) {
    return text + ", which is unhealthy. There is no healthy step.";
  }
  return text +
         fmt::format(", which is unhealthy (the latest healthy one is step {}).", restorable.latest_healthy->step);
}

// Of a store that nothing is known against: how much that says.
std::string CleanText(const ReportSurvey* survey) {
  if (survey == nullptr || survey->steps_read == 0) {
    return " No problem is on record. No tensor was read: checkpoint-inspect verify reads every byte.";
  }
  return fmt::format(
      " No problem is on record, and none was found in the tensors of {}. checkpoint-inspect verify reads every byte.",
      Count(survey->steps_read, "step"));
}

}  // namespace

std::string_view HealthKindName(HealthRow::Kind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "unhealthy", "damaged", "lost", "save failed", "evaluation failed", "evaluation skipped", "not readable"};
  return kNames[static_cast<size_t>(kind)];
}

absl::StatusOr<ReportData> GatherReport(const StoreReader& reader, const std::vector<MetricChoice>& metrics,
                                        int64_t last) {
  ReportData data;
  const std::vector<StepInfo>& all = reader.Steps();
  data.steps_all = all.size();
  const size_t shown = last > 0 ? std::min(all.size(), static_cast<size_t>(last)) : all.size();
  data.steps = std::span(all).last(shown);
  for (const StepInfo& info : all) {
    AddHealthRows(info, &data.health);
    if (info.state == StepState::kCommitted || info.state == StepState::kDamaged)
      data.stored_bytes += info.stored_bytes;
    if (info.state != StepState::kCommitted) continue;
    ++data.committed;
    data.logical_bytes += info.logical_bytes;
    data.latest = info;
    if (info.unhealthy().empty()) data.latest_healthy = info;
  }
  for (const std::string& unread : reader.unread()) data.health.push_back({HealthRow::Kind::kUnread, {}, "", unread});
  if (absl::Status chosen = ChooseMetrics(reader, metrics, &data); !chosen.ok()) return chosen;
  data.blocked = SplitBlocked(reader, data.steps);
  return data;
}

void JudgeHealth(const StoreReader& reader, const ReportSurvey* survey, ReportData* data) {
  const std::vector<std::string> troubles = RecordedTroubles(reader);
  const std::string found = survey == nullptr ? "" : AddFound(*survey, data);
  const Restorable restorable = FindRestorable(reader, survey);
  const bool has_bad_step = std::any_of(reader.Steps().begin(), reader.Steps().end(), [](const StepInfo& info) {
    return info.state == StepState::kDamaged || info.state == StepState::kLost;
  });
  const bool latest_unhealthy = restorable.latest != nullptr && !restorable.latest->unhealthy().empty();
  if (!reader.journal_problem().ok() || has_bad_step || latest_unhealthy || !found.empty()) {
    data->grade = HealthGrade::kBad;
  } else {
    const bool is_good = troubles.empty() && restorable.latest != nullptr;
    data->grade = is_good ? HealthGrade::kGood : HealthGrade::kWarning;
  }
  data->verdict = found;
  if (!troubles.empty()) data->verdict += fmt::format("On record: {}. ", fmt::join(troubles, ", "));
  data->verdict += RestoreText(restorable, data->committed > 0);
  if (found.empty() && troubles.empty()) data->verdict += CleanText(survey);
}

}  // namespace tidemark::inspect
