#include "storage/retention/retention_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/check.h"
#include "storage/io/exception_status.h"

namespace tidemark::storage {
namespace {

// Parts of the reasons' text: Join, YetToRead and AddRules write it, and NotedReasons reads it again.
constexpr std::string_view kBetweenReasons = "; ";
constexpr std::string_view kHoldBegin = "evaluator '";
constexpr std::string_view kYetToRead = "' has not read it yet";

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

using Warn = std::function<void(std::string_view)>;

// What a function of the trainer returns for a step. nullopt: it threw, and the step stays. The reason leaves out the
// exception's message, because it is recorded and the message may differ at each call.
template <typename Function, typename Argument>
auto Ask(const Function& function, const Argument& argument, std::string_view name, RetentionCandidate& step,
         const Warn& warn) -> std::optional<decltype(function(argument))> {
  try {
    return function(argument);
  } catch (...) {
    const absl::Status thrown = ExceptionStatus(name);
    step.reasons.push_back(fmt::format("{} threw an exception", name));
    if (warn)
      warn(fmt::format("retention keeps the steps on which it gets no answer: {}", std::string(thrown.message())));
    return std::nullopt;
  }
}

std::optional<double> ValueOf(RetentionCandidate& step, const KeepBest& rule, const Warn& warn) {
  std::optional<double> value;
  if (rule.score) {
    value = Ask(rule.score, step.info->metrics, "KeepBest::score", step, warn);
  } else if (const auto found = step.info->metrics.find(rule.metric); found != step.info->metrics.end()) {
    value = found->second;
  }
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string_view NameOf(const KeepBest& rule) {
  return rule.metric.empty() ? std::string_view("score") : std::string_view(rule.metric);
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

void AddBest(std::vector<RetentionCandidate>& steps, const KeepBest& rule, const Warn& warn) {
  Check(rule.mode.has_value(), "a plan of retention with a rule of keep_best whose mode is not resolved");
  std::vector<std::pair<double, size_t>> values;  // and the step's place
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::optional<double> value = ValueOf(steps[i], rule, warn);
    if (value && FirstVerdict(*steps[i].info).empty()) values.emplace_back(*value, i);
    if (!value && rule.keep_without_metric) steps[i].reasons.push_back(fmt::format("without {}", NameOf(rule)));
  }
  const size_t count = std::min(values.size(), static_cast<size_t>(std::max<int64_t>(rule.count, 0)));
  const bool lowest = *rule.mode == BestMode::kLowest;
  const auto better = [&](const auto& a, const auto& b) {
    if (a.first != b.first) return lowest ? a.first < b.first : a.first > b.first;
    return a.second > b.second;
  };
  std::partial_sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), values.end(), better);
  values.resize(count);
  for (const auto& [value, place] : values) {
    steps[place].reasons.push_back(
        rule.count == 1 ? fmt::format("best {} ({:.6g})", NameOf(rule), value)
                        : fmt::format("among the best {} of {} ({:.6g})", rule.count, NameOf(rule), value));
  }
}

// Keeps the steps that were saved within the span before the one that was committed last. A step with a later time was
// saved before a clock was set back. Its time says nothing about its age.
void AddRecent(std::vector<RetentionCandidate>& steps, absl::Duration span) {
  const auto last = std::max_element(steps.begin(), steps.end(),
                                     [](const auto& a, const auto& b) { return a.info->sequence < b.info->sequence; });
  for (RetentionCandidate& step : steps) {
    if (last->info->created - step.info->created > span) continue;
    step.reasons.push_back(fmt::format("saved within {}", absl::FormatDuration(span)));
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
                                       failed ? "failed and has not reported a result yet" : "has not reported yet"));
    awaited = true;
  }
  return awaited;
}

// "not among the latest 3, the best 2 of loss, or divisible by 1000"
std::string DescribeRules(const RetentionOptions& options) {
  std::vector<std::string> rules;
  if (options.max_to_keep > 0) rules.push_back(fmt::format("the latest {}", options.max_to_keep));
  for (const KeepBest& rule : options.keep_best) {
    rules.push_back(rule.count == 1 ? fmt::format("the best of {}", NameOf(rule))
                                    : fmt::format("the best {} of {}", rule.count, NameOf(rule)));
  }
  if (!rules.empty()) rules[0].insert(0, "among ");
  if (options.keep_every_steps > 0) rules.push_back(fmt::format("divisible by {}", options.keep_every_steps));
  if (options.keep_interval > absl::ZeroDuration()) {
    rules.push_back(fmt::format("the first in {}", absl::FormatDuration(options.keep_interval)));
  }
  if (options.keep_for > absl::ZeroDuration()) {
    rules.push_back(fmt::format("saved within {}", absl::FormatDuration(options.keep_for)));
  }
  if (options.keep) rules.push_back("kept by the predicate");
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
  for (const std::string& reason : reasons) {
    if (!text.empty()) text += kBetweenReasons;
    text += reason;
  }
  return text;
}

void AddRules(const RetentionOptions& options, const std::set<int64_t>& unjudged, const Warn& warn,
              std::vector<RetentionCandidate>& steps) {
  AddLatest(steps, options.max_to_keep);
  for (const KeepBest& rule : options.keep_best) AddBest(steps, rule, warn);
  for (RetentionCandidate& step : steps) {
    if (options.keep_every_steps > 0 && step.info->step % options.keep_every_steps == 0) {
      step.reasons.push_back(fmt::format("divisible by {}", options.keep_every_steps));
    }
  }
  if (options.keep_interval > absl::ZeroDuration()) AddIntervals(steps, options.keep_interval);
  if (options.keep_for > absl::ZeroDuration()) AddRecent(steps, options.keep_for);
  RetentionCandidate* latest = nullptr;  // that is healthy: no evaluator distrusts it
  RetentionCandidate* judged = nullptr;  // the latest healthy one on which every evaluator has reported
  RetentionCandidate* next = nullptr;    // the first healthy one after `judged` that is not judged yet
  for (RetentionCandidate& step : steps) {
    if (options.keep && Ask(options.keep, *step.info, "RetentionOptions::keep", step, warn).value_or(false)) {
      step.reasons.push_back("kept by the predicate");
    }
    const bool awaited = AddWhatIsAwaited(step, options.keep_unevaluated_until);
    if (!IsHealthy(*step.info)) continue;
    latest = &step;
    if (awaited) continue;
    if (!unjudged.contains(step.info->step)) {
      judged = &step;
      next = nullptr;
    } else if (next == nullptr) {
      next = &step;
    }
  }
  // What a run that diverges is rolled back to. Where all is well it is the latest.
  if (latest != nullptr && latest != &steps.back()) latest->reasons.push_back("the latest healthy one");
  // The run goes back to this step if an evaluator later distrusts the latest one.
  if (judged != latest && judged != nullptr && judged != &steps.back()) {
    judged->reasons.push_back("the latest that evaluators found healthy");
  }
  // So that an evaluator that always lags behind still comes to one that is there.
  if (next != nullptr && next != latest) next->reasons.emplace_back(kNextToJudge);
}

std::vector<std::string_view> NotedReasons(const StepInfo& info) {
  std::vector<std::string_view> reasons;
  std::string_view rest = info.kept;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(kBetweenReasons), rest.size());
    reasons.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + kBetweenReasons.size(), rest.size()));
  }
  return reasons;
}

}  // namespace

std::string YetToRead(std::string_view who) { return fmt::format("{} has not read it yet", who); }

std::vector<std::string> NotedHolds(const StepInfo& info) {
  std::vector<std::string> holds;
  for (const std::string_view reason : NotedReasons(info)) {
    if (!reason.starts_with(kHoldBegin) || !reason.ends_with(kYetToRead)) continue;
    if (reason.size() < kHoldBegin.size() + kYetToRead.size()) continue;
    const std::string_view evaluator =
        reason.substr(kHoldBegin.size(), reason.size() - kHoldBegin.size() - kYetToRead.size());
    if (!info.evaluated_by(evaluator)) holds.emplace_back(reason);
  }
  return holds;
}

bool IsNotedNextToJudge(const StepInfo& info) {
  const std::vector<std::string_view> reasons = NotedReasons(info);
  return std::find(reasons.begin(), reasons.end(), kNextToJudge) != reasons.end();
}

absl::Status CheckDiscard(int64_t after, const CommittedSteps& steps, const Claims& claims) {
  constexpr size_t kNamedMax = 8;
  std::vector<std::string> kept;
  bool remains = false;
  size_t more = 0;
  for (const auto& info : steps) {
    if (info->step <= after) {
      remains = true;
      continue;
    }
    const auto claim = claims.find(info->step);
    if (!info->pinned && claim == claims.end()) continue;
    if (kept.size() == kNamedMax) {
      ++more;
      continue;
    }
    kept.push_back(
        fmt::format("step {} is kept: {}", info->step, info->pinned ? PinReason(*info) : std::string(claim->second)));
  }
  if (!remains) {
    return absl::FailedPreconditionError(
        fmt::format("the steps after {} are not discarded: no committed step would remain", after));
  }
  if (kept.empty()) return absl::OkStatus();
  if (more > 0) kept.push_back(fmt::format("and {} more steps", more));
  return absl::FailedPreconditionError(
      fmt::format("the steps after {} are not discarded: {}", after, fmt::join(kept, kBetweenReasons)));
}

std::set<int64_t> UnjudgedByRecord(const CommittedSteps& steps) {
  std::set<std::string> evaluators;
  for (const auto& info : steps) {
    for (const Evaluation& row : info->evaluations) {
      if (row.outcome == Evaluation::Outcome::kDone) evaluators.insert(row.evaluator);
    }
  }
  std::set<int64_t> unjudged;
  for (const auto& info : steps) {
    const bool all = std::all_of(evaluators.begin(), evaluators.end(),
                                 [&](const std::string& name) { return info->evaluated_by(name); });
    if (!all) unjudged.insert(info->step);
  }
  return unjudged;
}

bool IsHealthy(const StepInfo& info) { return info.state == StepState::kCommitted && FirstVerdict(info).empty(); }

bool IsAwaited(const AwaitEvaluation& rule, const StepInfo& info) {
  if (info.step % rule.every_steps != 0) return false;
  // A mistake of the evaluator's must not cost the steps that it was to choose from.
  return std::none_of(info.evaluations.begin(), info.evaluations.end(), [&](const Evaluation& row) {
    return row.evaluator == rule.evaluator && row.outcome != Evaluation::Outcome::kFailed;
  });
}

absl::Status ResolveBestModes(const BestModes& recorded, RetentionOptions& options) {
  for (size_t i = 0; i < options.keep_best.size(); ++i) {
    KeepBest& rule = options.keep_best[i];
    if (!rule.mode) rule.mode = rule.score ? BestMode::kLowest : FindBestMode(recorded, rule.metric);
    if (rule.mode) continue;
    return absl::InvalidArgumentError(
        fmt::format("RetentionOptions::keep_best[{}].mode is not set, and the name '{}' does not tell whether lower or "
                    "higher is better; set BestMode::kLowest or BestMode::kHighest",
                    i, rule.metric));
  }
  return absl::OkStatus();
}

std::vector<RetentionDecision> PlanRetention(const RetentionOptions& options, const CommittedSteps& steps,
                                             const Claims& claims, const std::set<int64_t>& unjudged,
                                             const Warn& warn) {
  std::vector<RetentionCandidate> candidates;
  candidates.reserve(steps.size());
  for (const auto& info : steps) {
    if (info->state == StepState::kCommitted) candidates.push_back({.info = info.get(), .reasons = {}});
  }
  AddRules(options, unjudged, warn, candidates);
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
  return max_to_keep > 0 || !keep_best.empty() || keep_every_steps > 0 || keep_interval > absl::ZeroDuration() ||
         keep_for > absl::ZeroDuration() || keep;
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
    if (rule.metric.empty() && !rule.score) return OutOfRange(field + ".metric", "''", "a name");
    if (rule.count < 1) return OutOfRange(field + ".count", rule.count, ">= 1");
  }
  if (options.keep_every_steps < 0) return OutOfRange("keep_every_steps", options.keep_every_steps, ">= 0");
  if (options.keep_interval < absl::ZeroDuration() || options.keep_interval == absl::InfiniteDuration()) {
    return OutOfRange("keep_interval", absl::FormatDuration(options.keep_interval), ">= 0 and finite");
  }
  if (options.keep_for < absl::ZeroDuration() || options.keep_for == absl::InfiniteDuration()) {
    return OutOfRange("keep_for", absl::FormatDuration(options.keep_for), ">= 0 and finite");
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
