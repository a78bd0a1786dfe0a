#include "tools/checkpoint_inspect/checks/prune_plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/metric_choice.h"

namespace tidemark::inspect {
namespace {

std::optional<int64_t> ParseCount(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return count;
}

// Which steps that stay have chunks in the files of an attempt, ascending.
using Needs = std::map<std::string, std::vector<int64_t>>;

// `decisions`: one for each committed step.
PrunePlan PlanOf(const std::vector<RetentionDecision>& decisions, const storage::CommittedSteps& committed,
                 const std::vector<StepInfo>& steps,
                 const std::function<std::vector<std::string>(int64_t step)>& references) {
  std::set<int64_t> going;
  for (const RetentionDecision& decision : decisions) {
    if (!decision.keep) going.insert(decision.step);
  }
  Needs needs;
  std::set<std::string> let_go;  // attempts that steps which go have chunks in
  for (const StepInfo& info : steps) {
    if (info.state == StepState::kDeleted) continue;
    for (const std::string& attempt : references(info.step)) {
      if (going.contains(info.step)) {
        let_go.insert(attempt);
      } else {
        needs[attempt].push_back(info.step);
      }
    }
  }
  PrunePlan plan;
  for (size_t i = 0; i < committed.size(); ++i) {
    const StepInfo& info = *committed[i];
    PrunedStep& step = plan.steps.emplace_back();
    step.step = info.step;
    step.attempt = info.attempt;
    step.keep = decisions[i].keep;
    step.reason = decisions[i].reason;
    step.stored_bytes = info.stored_bytes;
    if (step.keep) continue;
    if (const auto found = needs.find(info.attempt); found != needs.end()) step.needed_by = found->second;
    step.freed_bytes = step.needed_by.empty() ? info.stored_bytes : 0;
    plan.freed_bytes += step.freed_bytes;
  }
  for (const StepInfo& info : steps) {
    if (info.state != StepState::kDeleted || needs.contains(info.attempt) || !let_go.contains(info.attempt)) continue;
    plan.bygone_bytes += info.stored_bytes;
  }
  plan.freed_bytes += plan.bygone_bytes;
  return plan;
}

}  // namespace

absl::StatusOr<KeepBest> ParseKeepBest(std::string_view text) {
  KeepBest rule;
  std::string_view rest = text;
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    if (const std::optional<int64_t> count = ParseCount(rest.substr(colon + 1))) {
      rule.count = *count;
      rest = rest.substr(0, colon);
    }
  }
  const MetricChoice choice = ParseMetricChoice(rest);
  rule.metric = choice.name;
  rule.mode = choice.mode;
  if (rule.metric.empty() || rule.count < 1) {
    return absl::InvalidArgumentError(
        fmt::format("--keep-best needs METRIC[:lowest|:highest][:COUNT] with a COUNT of at least 1, not '{}'", text));
  }
  return rule;
}

size_t PrunePlan::deletions() const {
  return static_cast<size_t>(
      std::count_if(steps.begin(), steps.end(), [](const PrunedStep& step) { return !step.keep; }));
}

storage::CommittedSteps CommittedOf(const std::vector<StepInfo>& steps) {
  storage::CommittedSteps committed;
  for (const StepInfo& info : steps) {
    if (info.state == StepState::kCommitted) committed.push_back(std::make_shared<const StepInfo>(info));
  }
  return committed;
}

PrunePlan PlanPruning(const RetentionOptions& options, const std::vector<StepInfo>& steps,
                      const std::function<std::vector<std::string>(int64_t step)>& references,
                      const storage::Claims& claims) {
  const storage::CommittedSteps committed = CommittedOf(steps);
  return PlanOf(storage::PlanRetention(options, committed, claims, storage::UnjudgedByRecord(committed)), committed,
                steps, references);
}

PrunePlan PlanDiscard(int64_t after, const std::vector<StepInfo>& steps,
                      const std::function<std::vector<std::string>(int64_t step)>& references) {
  const storage::CommittedSteps committed = CommittedOf(steps);
  std::vector<RetentionDecision> decisions;
  for (const auto& info : committed) {
    const bool keep = info->step <= after;
    decisions.push_back(
        {.step = info->step, .keep = keep, .reason = fmt::format("{}after step {}", keep ? "not " : "", after)});
  }
  return PlanOf(decisions, committed, steps, references);
}

}  // namespace tidemark::inspect
