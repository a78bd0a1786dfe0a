#include "storage/manifest/retention_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tidemark::storage {
namespace {

// What speaks for a step, in the order of the rules. Nothing in it changes as long as the step stays for the same
// reasons: no rank, for it would be another one after every save.
struct RetentionCandidate {
  const StepInfo* info;
  std::vector<std::string> reasons;
};

std::string_view FirstVerdict(const StepInfo& info) {
  for (const Evaluation& evaluation : info.evaluations) {
    if (!evaluation.unhealthy.empty()) return evaluation.unhealthy;
  }
  return {};
}

std::optional<double> ValueOf(const StepInfo& info, const std::string& metric) {
  const auto found = info.metrics.find(metric);
  if (found == info.metrics.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

// The latest by step, whatever the rules; and so many by the order in which they were committed, since a run that was
// rolled back saves lower steps than the ones it has given up.
void AddLatest(std::vector<RetentionCandidate>& steps, int64_t max_to_keep) {
  if (steps.empty()) return;
  steps.back().reasons.push_back("latest");
  std::vector<size_t> by_commit(steps.size());
  std::iota(by_commit.begin(), by_commit.end(), size_t{0});
  std::sort(by_commit.begin(), by_commit.end(), [&](size_t a, size_t b) {
    return std::pair(steps[a].info->sequence, a) > std::pair(steps[b].info->sequence, b);
  });
  const size_t count = std::min(steps.size(), static_cast<size_t>(std::max<int64_t>(max_to_keep, 0)));
  for (size_t i = 0; i < count; ++i) {
    if (by_commit[i] + 1 < steps.size()) {
      steps[by_commit[i]].reasons.push_back(fmt::format("among the latest {}", max_to_keep));
    }
  }
  if (count == 0 && by_commit[0] + 1 != steps.size()) steps[by_commit[0]].reasons.push_back("committed last");
}

void AddBest(std::vector<RetentionCandidate>& steps, const KeepBest& rule) {
  std::vector<std::pair<double, size_t>> values;  // and the step's place
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::optional<double> value = ValueOf(*steps[i].info, rule.metric);
    if (value && FirstVerdict(*steps[i].info).empty()) values.emplace_back(*value, i);
  }
  const size_t count = std::min(values.size(), static_cast<size_t>(std::max<int64_t>(rule.count, 0)));
  const auto better = [&](const auto& a, const auto& b) {
    if (a.first != b.first) return rule.mode == BestMode::kLowest ? a.first < b.first : a.first > b.first;
    return a.second > b.second;
  };
  std::partial_sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), values.end(), better);
  values.resize(count);
  for (const auto& [value, place] : values) {
    steps[place].reasons.push_back(
        rule.count == 1 ? fmt::format("best {} ({:.6g})", rule.metric, value)
                        : fmt::format("among the best {} of {} ({:.6g})", rule.count, rule.metric, value));
  }
}

// "pinned", "pinned (NOTE)", "tagged paper, v1 (NOTE)"
std::string PinReason(const StepInfo& info) {
  std::string reason = info.tags.empty() ? "pinned" : fmt::format("tagged {}", fmt::join(info.tags, ", "));
  if (!info.pin_note.empty()) reason += fmt::format(" ({})", info.pin_note);
  return reason;
}

// Whether a step stays depends on those that stay before it and on no other, so deleting the others changes nothing.
void AddIntervals(std::vector<RetentionCandidate>& steps, absl::Duration interval) {
  std::optional<absl::Time> last;
  for (RetentionCandidate& step : steps) {
    const absl::Time created = step.info->created;
    // A clock that was set back says nothing about the time that passed.
    if (last && created >= *last && created - *last < interval) continue;
    last = created;
    step.reasons.push_back(fmt::format("first in {}", absl::FormatDuration(interval)));
  }
}

// Returns whether anything is.
bool AddWhatIsAwaited(RetentionCandidate& step, const std::vector<AwaitEvaluation>& rules) {
  bool awaited = false;
  for (const AwaitEvaluation& rule : rules) {
    if (!IsAwaited(rule, *step.info)) continue;
    const bool failed = step.info->evaluated_by(rule.evaluator);
    step.reasons.push_back(fmt::format("evaluator {} {}", rule.evaluator,
                                       failed ? "failed and has yet to say what it finds" : "has yet to report"));
    awaited = true;
  }
  return awaited;
}

// "not among the latest 3, the best 2 of loss, or divisible by 1000"
std::string DescribeRules(const RetentionOptions& options) {
  std::vector<std::string> rules;
  if (options.max_to_keep > 0) rules.push_back(fmt::format("the latest {}", options.max_to_keep));
  for (const KeepBest& rule : options.keep_best) {
    rules.push_back(rule.count == 1 ? fmt::format("the best of {}", rule.metric)
                                    : fmt::format("the best {} of {}", rule.count, rule.metric));
  }
  if (!rules.empty()) rules[0].insert(0, "among ");
  if (options.keep_every_steps > 0) rules.push_back(fmt::format("divisible by {}", options.keep_every_steps));
  if (options.keep_interval > absl::ZeroDuration()) {
    rules.push_back(fmt::format("the first in {}", absl::FormatDuration(options.keep_interval)));
  }
  if (options.keep) rules.push_back("asked for by the predicate");
  std::string text = "not ";
  for (size_t i = 0; i < rules.size(); ++i) {
    if (i > 0) text += rules.size() > 2 ? ", " : " ";
    if (i > 0 && i + 1 == rules.size()) text += "or ";
    text += rules[i];
  }
  return text;
}

std::string Join(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

void AddRules(const RetentionOptions& options, const std::set<int64_t>& unjudged,
              std::vector<RetentionCandidate>& steps) {
  AddLatest(steps, options.max_to_keep);
  for (const KeepBest& rule : options.keep_best) AddBest(steps, rule);
  for (RetentionCandidate& step : steps) {
    if (options.keep_every_steps > 0 && step.info->step % options.keep_every_steps == 0) {
      step.reasons.push_back(fmt::format("divisible by {}", options.keep_every_steps));
    }
  }
  if (options.keep_interval > absl::ZeroDuration()) AddIntervals(steps, options.keep_interval);
  RetentionCandidate* healthy = nullptr;
  RetentionCandidate* presumed = nullptr;  // healthy, as far as is known; after `healthy`, or the same
  RetentionCandidate* next = nullptr;      // the first after `healthy` of which that is not known yet
  for (RetentionCandidate& step : steps) {
    if (options.keep && options.keep(*step.info)) step.reasons.push_back("asked for by the predicate");
    const bool awaited = AddWhatIsAwaited(step, options.keep_unevaluated_until);
    if (awaited || !FirstVerdict(*step.info).empty()) continue;
    presumed = &step;
    if (!unjudged.contains(step.info->step)) {
      healthy = &step;
      next = nullptr;
    } else if (next == nullptr) {
      next = &step;
    }
  }
  // What a run that diverges is rolled back to. Where all is well it is the latest.
  if (healthy != nullptr && healthy != &steps.back()) healthy->reasons.push_back("the latest healthy one");
  if (presumed != healthy && presumed != &steps.back()) {
    presumed->reasons.push_back("the latest healthy one, unless an evaluator finds otherwise");
  }
  // So that an evaluator that always lags behind still comes to one that is there.
  if (next != nullptr && next != presumed) next->reasons.push_back("the next that an evaluator has yet to judge");
}

}  // namespace

bool IsAwaited(const AwaitEvaluation& rule, const StepInfo& info) {
  if (info.step % rule.every_steps != 0) return false;
  // A mistake of the evaluator's must not cost the steps that it was to choose from.
  return std::none_of(info.evaluations.begin(), info.evaluations.end(), [&](const Evaluation& row) {
    return row.evaluator == rule.evaluator && row.outcome != Evaluation::Outcome::kFailed;
  });
}

std::vector<RetentionDecision> PlanRetention(const RetentionOptions& options, const CommittedSteps& steps,
                                             const Claims& claims, const std::set<int64_t>& unjudged) {
  std::vector<RetentionCandidate> candidates;
  candidates.reserve(steps.size());
  for (const auto& info : steps) {
    if (info->state == StepState::kCommitted) candidates.push_back({.info = info.get(), .reasons = {}});
  }
  AddRules(options, unjudged, candidates);
  const bool rules = options.any();
  const std::string none = rules ? DescribeRules(options) : "no rule is set";
  std::vector<RetentionDecision> decisions;
  decisions.reserve(candidates.size());
  for (RetentionCandidate& step : candidates) {
    const StepInfo& info = *step.info;
    if (info.pinned) step.reasons.push_back(PinReason(info));
    const auto [first, last] = claims.equal_range(info.step);
    for (auto claim = first; claim != last; ++claim) step.reasons.push_back(claim->second);
    RetentionDecision& decision = decisions.emplace_back();
    decision.step = info.step;
    decision.keep = !rules || !step.reasons.empty();
    decision.reason = step.reasons.empty() ? none : Join(step.reasons);
    const std::string_view verdict = FirstVerdict(info);
    if (!decision.keep && !verdict.empty()) decision.reason += fmt::format("; unhealthy: {}", verdict);
  }
  return decisions;
}

}  // namespace tidemark::storage

namespace tidemark {
namespace {

absl::Status OutOfRange(const std::string& field, auto value, std::string_view range) {
  return absl::InvalidArgumentError(fmt::format("RetentionOptions::{} is {}; it must be {}", field, value, range));
}

}  // namespace

bool RetentionOptions::any() const {
  return max_to_keep > 0 || !keep_best.empty() || keep_every_steps > 0 || keep_interval > absl::ZeroDuration() || keep;
}

RetentionOptions RetentionOptions::MaxToKeep(int64_t count) {
  RetentionOptions options;
  options.max_to_keep = count;
  return options;
}

RetentionOptions RetentionOptions::SaveTotalLimit(int64_t count) { return MaxToKeep(count); }

RetentionOptions RetentionOptions::SaveTopK(int64_t k, std::string monitor, BestMode mode) {
  RetentionOptions options;
  options.keep_best.push_back({.metric = std::move(monitor), .mode = mode, .count = k});
  return options;
}

absl::Status ValidateRetention(const RetentionOptions& options) {
  if (options.max_to_keep < 0) return OutOfRange("max_to_keep", options.max_to_keep, ">= 0");
  for (size_t i = 0; i < options.keep_best.size(); ++i) {
    const KeepBest& rule = options.keep_best[i];
    const std::string field = fmt::format("keep_best[{}]", i);
    if (rule.metric.empty()) return OutOfRange(field + ".metric", "''", "a name");
    if (rule.count < 1) return OutOfRange(field + ".count", rule.count, ">= 1");
  }
  if (options.keep_every_steps < 0) return OutOfRange("keep_every_steps", options.keep_every_steps, ">= 0");
  if (options.keep_interval < absl::ZeroDuration() || options.keep_interval == absl::InfiniteDuration()) {
    return OutOfRange("keep_interval", absl::FormatDuration(options.keep_interval), ">= 0 and finite");
  }
  for (size_t i = 0; i < options.keep_unevaluated_until.size(); ++i) {
    const AwaitEvaluation& rule = options.keep_unevaluated_until[i];
    const std::string field = fmt::format("keep_unevaluated_until[{}]", i);
    if (rule.evaluator.empty()) return OutOfRange(field + ".evaluator", "''", "a name");
    if (rule.every_steps < 1) return OutOfRange(field + ".every_steps", rule.every_steps, ">= 1");
  }
  return absl::OkStatus();
}

}  // namespace tidemark
