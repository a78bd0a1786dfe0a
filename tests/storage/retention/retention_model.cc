#include "tests/storage/retention/retention_model.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/non_finite.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

bool IsFirstOfAnInterval(const Model& model, const ModelStep& step, absl::Duration interval) {
  const ModelStep* last = nullptr;
  for (const auto& [number, other] : model) {
    if (other.deleted) continue;
    const bool stays = last == nullptr || other.created < last->created || other.created >= last->created + interval;
    if (&other == &step) return stays;
    if (stays) last = &other;
  }
  return false;
}

// Whether all between it and the latest below it that is known to be healthy are known not to be.
bool IsNextToBeJudged(const Model& model, const ModelStep& step,
                      const std::function<bool(const ModelStep&)>& is_presumed) {
  for (auto other = model.rbegin(); other != model.rend(); ++other) {
    if (other->first >= step.identity.step || other->second.deleted || !is_presumed(other->second)) continue;
    return !other->second.unjudged;
  }
  return true;
}

bool IsAwaited(const ModelStep& step, const RetentionOptions& options) {
  for (const AwaitEvaluation& rule : options.keep_unevaluated_until) {
    if (step.identity.step % rule.every_steps == 0 && !step.answers.contains(rule.evaluator)) return true;
  }
  return false;
}

}  // namespace

void Say(ModelStep& step, const Evaluation& evaluation) {
  const bool done = evaluation.outcome == Evaluation::Outcome::kDone;
  const bool says_nothing = !done && evaluation.unhealthy.empty();
  const std::string& name = evaluation.evaluator;
  if (says_nothing && (step.finders.contains(name) || step.doubters.contains(name))) return;
  const bool failed_before = step.evaluators.contains(name) && !step.answers.contains(name);
  if (says_nothing && evaluation.outcome == Evaluation::Outcome::kSkipped && failed_before) return;
  const std::string prefix = evaluation.evaluator + "/";
  std::erase_if(step.metrics, [&](const auto& metric) { return absl::StartsWith(metric.first, prefix); });
  for (const auto& [name, value] : evaluation.metrics) step.metrics[prefix + name] = value;
  step.evaluators.insert(evaluation.evaluator);
  const auto note = [&](std::set<std::string>& names, bool is) {
    if (is) {
      names.insert(evaluation.evaluator);
    } else {
      names.erase(evaluation.evaluator);
    }
  };
  note(step.finders, done);
  note(step.answers, evaluation.outcome != Evaluation::Outcome::kFailed);
  note(step.doubters, !evaluation.unhealthy.empty());
}

bool CanBeBest(const ModelStep& step, const std::string& metric) {
  const auto value = step.metrics.find(metric);
  return !step.deleted && step.doubters.empty() && value != step.metrics.end() && std::isfinite(value->second);
}

int64_t BetterThan(const Model& model, const ModelStep& step, const std::string& metric, BestMode mode) {
  const double mine = step.metrics.at(metric);
  int64_t better = 0;
  for (const auto& [number, other] : model) {
    if (!CanBeBest(other, metric)) continue;
    const double theirs = other.metrics.at(metric);
    if (mode == BestMode::kLowest ? theirs < mine : theirs > mine) ++better;
    if (theirs == mine && number > step.identity.step) ++better;
  }
  return better;
}

std::optional<int64_t> BestOf(const Model& model, const std::string& metric, BestMode mode) {
  for (const auto& [number, step] : model) {
    if (CanBeBest(step, metric) && BetterThan(model, step, metric, mode) == 0) return number;
  }
  return std::nullopt;
}

std::set<std::string> WhyWanted(const Model& model, const ModelStep& step, const RetentionOptions& options) {
  int64_t higher = 0;
  int64_t higher_healthy = 0;
  int64_t later = 0;
  int64_t higher_presumed = 0;
  const auto is_presumed = [&](const ModelStep& any) { return any.doubters.empty(); };
  const auto is_open = [&](const ModelStep& any) { return is_presumed(any) && !IsAwaited(any, options); };
  const auto is_healthy = [&](const ModelStep& any) { return is_open(any) && !any.unjudged; };
  for (const auto& [number, other] : model) {
    if (other.deleted) continue;
    if (number > step.identity.step) {
      ++higher;
      if (is_healthy(other)) ++higher_healthy;
      if (is_presumed(other)) ++higher_presumed;
    }
    if (other.identity.sequence > step.identity.sequence) ++later;
  }
  std::set<std::string> why;
  if (higher == 0) why.insert("latest");
  if (later == 0 || later < options.max_to_keep) why.insert("recent");
  if (higher_healthy == 0 && is_healthy(step)) why.insert("healthy");
  if (higher_presumed == 0 && is_presumed(step)) {
    why.insert("healthy");
  } else if (higher_healthy == 0 && is_open(step) && step.unjudged && IsNextToBeJudged(model, step, is_open)) {
    why.insert("next");
  }
  if (step.pinned) why.insert("pinned");
  for (const KeepBest& rule : options.keep_best) {
    if (CanBeBest(step, rule.metric) && BetterThan(model, step, rule.metric, *rule.mode) < rule.count) {
      why.insert("best " + rule.metric);
    }
  }
  if (options.keep_every_steps > 0 && step.identity.step % options.keep_every_steps == 0) why.insert("every");
  if (options.keep_interval > absl::ZeroDuration() && IsFirstOfAnInterval(model, step, options.keep_interval)) {
    why.insert("interval");
  }
  if (options.keep && step.identity.step % 7 == 3) why.insert("predicate");
  if (IsAwaited(step, options)) why.insert("awaited");
  return why;
}

std::string RuleOf(std::string_view text) {
  const std::pair<const char*, const char*> beginnings[] = {{"latest", "latest"},
                                                            {"among the latest ", "recent"},
                                                            {"committed last", "recent"},
                                                            {"the latest healthy one", "healthy"},
                                                            {"the latest that evaluators found", "healthy"},
                                                            {"the next step for an evaluator to judge", "next"},
                                                            {"pinned", "pinned"},
                                                            {"divisible by ", "every"},
                                                            {"first in ", "interval"},
                                                            {"kept by the predicate", "predicate"},
                                                            {"evaluator validation ", "awaited"}};
  for (const auto& [beginning, rule] : beginnings) {
    if (text.starts_with(beginning)) return rule;
  }
  for (const char* metric : kModelMetrics) {
    if (text.starts_with(absl::StrCat("best ", metric, " ("))) return absl::StrCat("best ", metric);
    if (text.starts_with(absl::StrCat("among the best 2 of ", metric, " ("))) return absl::StrCat("best ", metric);
  }
  return absl::StrCat("unknown: ", std::string(text));
}

double RandomValue(std::mt19937& random) {
  const double odd[] = {kNan, kInfinity, -kInfinity};
  if (RandomNumber(random, 0, 4) == 0) return odd[RandomNumber(random, 0, 2)];
  return static_cast<double>(RandomNumber(random, -3, 3));
}

RetentionOptions RandomRules(std::mt19937& random) {
  const auto draw = [&](int64_t from, int64_t to) { return RandomNumber(random, from, to); };
  RetentionOptions options;
  options.max_to_keep = draw(0, 3);
  for (const char* metric : kModelMetrics) {
    const BestMode mode = draw(0, 1) == 0 ? BestMode::kLowest : BestMode::kHighest;
    if (draw(0, 2) == 0) options.keep_best.push_back({.metric = metric, .mode = mode, .count = draw(1, 2)});
  }
  if (draw(0, 3) == 0) options.keep_every_steps = draw(2, 9);
  if (draw(0, 3) == 0) options.keep_interval = absl::Minutes(draw(1, 9));
  if (draw(0, 3) == 0) options.keep = [](const StepInfo& info) { return info.step % 7 == 3; };
  if (draw(0, 3) == 0) options.keep_unevaluated_until = {{.evaluator = "validation", .every_steps = draw(1, 5)}};
  return options;
}

uint32_t FirstSeed() {
  const auto seed = SeedOfCases();
  std::cout << "seed " << seed << "\n";
  return seed;
}

int64_t RandomNumber(std::mt19937& random, int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(random);
}

std::string NewFolderInMemory(std::string_view name) {
  std::string folder =
      absl::StrCat(ParentInMemory(), "tidemark-", absl::string_view(name.data(), name.size()), "-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  return folder;
}

}  // namespace tidemark::storage
