// HealthMonitor: an evaluator that looks for what a diverging run leaves in its weights, and says so before the damage
// is trained on.
//
//   auto monitor = tidemark::HealthMonitor::Create({.entries = {"model.*"}, .loss_metric = "loss"});
//   checkpointer->AddEvaluator((*monitor)->evaluator_options(), (*monitor)->function());
//   ...
//   if (std::optional<tidemark::Divergence> divergence = (*monitor)->TakeDivergence()) {
//     auto restored = checkpointer->RestoreLatest(state, {.healthy_only = true});
//   }
//
// Reports, as metrics of the step: health/nan, health/inf (how many), health/norm (of all entries together),
// health/norm_jump (the largest ratio of an entry's norm to its norm one snapshot before, or the other way round), and,
// with loss_metric, health/loss_deviation.

#ifndef TIDEMARK_HEALTH_MONITOR_H_
#define TIDEMARK_HEALTH_MONITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/evaluator.h"

namespace tidemark {

// Why a step was called unhealthy.
struct Divergence {
  int64_t step = 0;
  std::string reason;  // names the worst entries
};

struct HealthOptions {
  std::string name = "health";       // of the evaluator
  std::vector<std::string> entries;  // patterns; empty: all. Only floating-point tensors are looked at
  double norm_jump_max = 10;         // ratio; > 1. An entry whose norm was 0 has no jump
  // A metric given with the save. Unhealthy: NaN, infinite, or further from the mean of the last `loss_window` healthy
  // ones than so many of their standard deviations. Empty: not looked at.
  std::string loss_metric;
  double loss_deviations_max = 6;    // > 0
  int64_t loss_window = 50;          // 8 or more; before half of it is there only NaN and infinity count
  std::string gradient_norm_metric;  // the same rules; empty: not looked at
  // Called once for each unhealthy step, on the evaluator's thread.
  std::function<void(const Divergence&)> on_divergence;
};

// Thread-safe. Must outlive the checkpointer that calls function().
class HealthMonitor {
 public:
  // kInvalidArgument: an option out of its range.
  static absl::StatusOr<std::unique_ptr<HealthMonitor>> Create(HealthOptions options);
  ~HealthMonitor();

  // Sees every snapshot, in order: kQueue, one thread.
  EvaluatorOptions evaluator_options() const;
  EvaluatorFunction function();

  // The first divergence that nobody has taken yet, which has been now. For trainers that look once in each step.
  std::optional<Divergence> TakeDivergence();

  // After a rollback: what comes next is not held against what went before.
  void Reset();

 private:
  struct Impl;
  explicit HealthMonitor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark

#endif  // TIDEMARK_HEALTH_MONITOR_H_
