#include "tools/checkpoint_inspect/report_data.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <set>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/selector.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {
namespace {

// Charts that a page has room for; --metric asks for others.
constexpr size_t kMetricsMax = 24;

ReportMetric DescribeMetric(const StoreReader& reader, const MetricChoice& choice) {
  const BestMode mode = choice.mode ? *choice.mode : GuessMode(choice.name);
  ReportMetric metric{.name = choice.name, .mode = mode, .best = {}, .latest = {}};
  if (const absl::StatusOr<StepInfo> best = reader.Best(choice.name, mode); best.ok()) {
    metric.best = best->step;
    metric.best_value = best->metrics.at(choice.name);
  }
  for (auto info = reader.steps().rbegin(); info != reader.steps().rend(); ++info) {
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
    if (absl::Status known = CheckMetric(reader, choice.name); !known.ok()) return known;
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

// By the phases on the trainer's time line. What these do not account for, or all of it where a step has none, is a
// part of its own.
std::vector<BlockedPart> SplitBlocked(const StoreReader& reader, std::span<const StepInfo> steps) {
  std::vector<BlockedPart> parts;
  std::unordered_map<std::string, size_t> part_of;
  BlockedPart rest{.name = "Save, not told apart", .by_step = {}};
  for (const StepInfo& info : steps) {
    absl::Duration left = info.blocked;
    if (left <= absl::ZeroDuration()) continue;
    const absl::StatusOr<std::vector<SavePhase>> phases = reader.Phases(info.step);
    for (const SavePhase& phase : phases.ok() ? *phases : std::vector<SavePhase>()) {
      if (phase.lane != "trainer") continue;
      const absl::Duration spent = std::min(phase.duration, left);
      if (spent <= absl::ZeroDuration()) continue;
      left -= spent;
      const auto [found, is_new] = part_of.try_emplace(phase.name, parts.size());
      if (is_new) parts.push_back({.name = phase.name, .by_step = {}});
      parts[found->second].by_step[info.step] += spent;
    }
    if (left > absl::ZeroDuration()) rest.by_step[info.step] = left;
  }
  if (!rest.by_step.empty()) parts.push_back(std::move(rest));
  return parts;
}

void AddHealthRows(const StepInfo& info, std::vector<HealthRow>* rows) {
  using Kind = HealthRow::Kind;
  if (info.state == StepState::kDamaged) rows->push_back({Kind::kDamaged, info.step, "", info.reason});
  if (info.state == StepState::kLost) rows->push_back({Kind::kLost, info.step, "", info.reason});
  if (info.state == StepState::kFailed) rows->push_back({Kind::kFailedSave, info.step, "", info.reason});
  for (const Evaluation& row : info.evaluations) {
    if (!row.unhealthy.empty()) rows->push_back({Kind::kDistrusted, info.step, row.evaluator, row.unhealthy});
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

void Judge(const StoreReader& reader, ReportData* data) {
  const std::vector<StepInfo>& steps = reader.steps();
  const auto count = [&](StepState state) {
    return static_cast<size_t>(
        std::count_if(steps.begin(), steps.end(), [state](const StepInfo& info) { return info.state == state; }));
  };
  const size_t damaged = count(StepState::kDamaged);
  const size_t lost = count(StepState::kLost);
  const size_t failed = count(StepState::kFailed);
  const auto distrusted = static_cast<size_t>(std::count_if(steps.begin(), steps.end(), [](const StepInfo& info) {
    return info.state == StepState::kCommitted && !info.unhealthy().empty();
  }));

  std::vector<std::string> troubles;
  if (!reader.manifest_problem().ok()) troubles.push_back("the manifest cannot be read");
  if (damaged > 0) troubles.push_back(Count(damaged, "step") + " found damaged");
  if (lost > 0) troubles.push_back(Count(lost, "step") + " lost");
  if (!reader.unread().empty()) troubles.push_back(Count(reader.unread().size(), "attempt") + " not readable");
  if (failed > 0) troubles.push_back(Count(failed, "failed save"));
  if (distrusted > 0) troubles.push_back(Count(distrusted, "committed step") + " distrusted by an evaluator");

  if (!data->latest) {
    const bool is_new = damaged + lost == 0 && reader.manifest_problem().ok();
    data->grade = is_new ? HealthGrade::kWarning : HealthGrade::kBad;
    data->verdict = "There is no committed step to restore";
  } else {
    const bool latest_trusted = data->latest->unhealthy().empty();
    const bool is_sound = reader.manifest_problem().ok() && damaged + lost == 0 && latest_trusted;
    data->grade = !is_sound ? HealthGrade::kBad : troubles.empty() ? HealthGrade::kGood : HealthGrade::kWarning;
    data->verdict = fmt::format("A restore takes step {}", data->latest->step);
    if (!latest_trusted) {
      data->verdict += data->latest_healthy
                           ? fmt::format(", which an evaluator distrusts (the latest healthy one is step {})",
                                         data->latest_healthy->step)
                           : ", which an evaluator distrusts, as it does every other one";
    }
  }
  data->verdict += troubles.empty() ? "; nothing is recorded against any step."
                                    : fmt::format("; on record: {}.", fmt::join(troubles, ", "));
}

}  // namespace

BestMode GuessMode(std::string_view metric) {
  static constexpr std::array<std::string_view, 22> kMoreIsBetter = {
      "acc",  "accuracy", "auc",    "auroc",  "bleu",   "correct", "f1",    "iou",  "map",  "ndcg",    "precision",
      "psnr", "r2",       "recall", "return", "reward", "rouge",   "score", "ssim", "top1", "success", "top5"};
  std::string word;
  const auto is_one = [&] {
    return std::find(kMoreIsBetter.begin(), kMoreIsBetter.end(), word) != kMoreIsBetter.end();
  };
  for (const char c : metric.substr(metric.find_last_of("./") + 1)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (is_one()) return BestMode::kHighest;
    word.clear();
  }
  return is_one() ? BestMode::kHighest : BestMode::kLowest;
}

std::string_view HealthKindName(HealthRow::Kind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "distrusted", "damaged", "lost", "save failed", "evaluation failed", "evaluation skipped", "not readable"};
  return kNames[static_cast<size_t>(kind)];
}

absl::StatusOr<ReportData> GatherReport(const StoreReader& reader, const std::vector<MetricChoice>& metrics,
                                        int64_t last) {
  ReportData data;
  const std::vector<StepInfo>& all = reader.steps();
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
  Judge(reader, &data);
  return data;
}

}  // namespace tidemark::inspect
