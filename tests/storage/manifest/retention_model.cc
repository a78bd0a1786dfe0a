#include "tests/storage/manifest/retention_model.h"

#include <cmath>

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

bool IsAwaited(const ModelStep& step, const RetentionOptions& options) {
  for (const AwaitEvaluation& rule : options.keep_unevaluated_until) {
    if (step.identity.step % rule.every_steps == 0 && !step.evaluators.contains(rule.evaluator)) return true;
  }
  return false;
}

}  // namespace

bool CanBeBest(const ModelStep& step, const std::string& metric) {
  const auto value = step.metrics.find(metric);
  return !step.deleted && !step.unhealthy && value != step.metrics.end() && std::isfinite(value->second);
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

bool IsWanted(const Model& model, const ModelStep& step, const RetentionOptions& options) {
  int64_t higher = 0;
  int64_t higher_healthy = 0;
  int64_t later = 0;
  for (const auto& [number, other] : model) {
    if (other.deleted) continue;
    if (number > step.identity.step) {
      ++higher;
      if (!other.unhealthy && !IsAwaited(other, options)) ++higher_healthy;
    }
    if (other.identity.sequence > step.identity.sequence) ++later;
  }
  if (higher == 0 || later == 0 || step.pinned || later < options.max_to_keep) return true;
  if (higher_healthy == 0 && !step.unhealthy) return true;
  for (const KeepBest& rule : options.keep_best) {
    if (CanBeBest(step, rule.metric) && BetterThan(model, step, rule.metric, rule.mode) < rule.count) return true;
  }
  if (options.keep_every_steps > 0 && step.identity.step % options.keep_every_steps == 0) return true;
  if (options.keep_interval > absl::ZeroDuration() && IsFirstOfAnInterval(model, step, options.keep_interval)) {
    return true;
  }
  if (options.keep && step.identity.step % 7 == 3) return true;
  return IsAwaited(step, options);
}

}  // namespace tidemark::storage
