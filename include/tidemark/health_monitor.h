// HealthMonitor: an evaluator that looks for what a diverging run leaves in its weights, and says so before the damage
// is trained on.
//
//   auto monitor = tidemark::HealthMonitor::Create({.entries = {"model.*"}, .loss_metric = "loss"});
//   checkpointer->AddEvaluator((*monitor)->evaluator_options(), (*monitor)->function());
//   ...
//   if (std::optional<tidemark::Divergence> divergence = (*monitor)->TakeDivergence()) {
//     auto restored = checkpointer->RestoreLatest(state, {.healthy_only = true});
//     if (!restored.ok()) return restored.status();  // nothing healthy is left
//     (*monitor)->TakeDivergence();  // what it found before the restore has been rolled back with it
//     step = restored->step + 1;
//   }
//
// The steps that were rolled back stay, called unhealthy, until the run comes to them again: Save replaces an unhealthy
// step without SaveOptions::overwrite, and ShouldSave says yes to it. A run that is started anew before then should
// restore with healthy_only too.
//
// Reports, as metrics of the step: health/nan, health/inf (how many), health/norm (of what is finite in all entries
// together), health/norm_jump (the largest ratio of an entry's norm to its norm in the last healthy snapshot, or the
// other way round), and, with loss_metric and gradient_norm_metric, health/loss_deviation and
// health/gradient_norm_deviation.
//
// A step is held against the last healthy ones, so a change that is meant (a larger learning rate, reset weights) goes
// on being reported until Reset. Tensors of float16, bfloat16, float8, float32, float64 and complex numbers of these
// are looked at; those of exponents alone (float8_e8m0fnu) and packed ones (float4_e2m1fn_x2) are not. Tied tensors
// count once.

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
  // Patterns of entries whose own norms and jumps are metrics too, health/norm/NAME and health/norm_jump/NAME. They are
  // kept with every step, so name what is looked at. The first 64 that match count, in the state's order, and none with
  // a name of more than 1024 bytes; health/per_entry_left_out says how many others matched, if any did. Empty: none.
  std::vector<std::string> per_entry;
  // A metric given with the save. Unhealthy: NaN, infinite, or further from the mean of the last `loss_window` healthy
  // ones than so many of their standard deviations, of which each is at least 1 % of that mean. Empty, or not given
  // with a save: not looked at.
  std::string loss_metric;
  double loss_deviations_max = 6;    // > 0
  int64_t loss_window = 50;          // 8 or more; before half of it is there only NaN and infinity count
  std::string gradient_norm_metric;  // the same rules; empty: not looked at
  // Called once for each unhealthy step, on the evaluator's thread. What it throws is told with the verdict, which
  // stands.
  std::function<void(const Divergence&)> on_divergence;
};

// Thread-safe.
class HealthMonitor {
 public:
  // kInvalidArgument: an option out of its range.
  static absl::StatusOr<std::unique_ptr<HealthMonitor>> Create(HealthOptions options);
  ~HealthMonitor();

  // Sees every snapshot, in order: kQueue, one thread. The function may outlive the monitor; what on_divergence uses
  // must live as long as the checkpointer that calls it.
  EvaluatorOptions evaluator_options() const;
  EvaluatorFunction function();

  // The first divergence that nobody has taken yet, which has been now. For trainers that look once in each step.
  std::optional<Divergence> TakeDivergence();

  // After a change that is meant: what comes next is not held against what went before, and a divergence that nobody
  // has taken is forgotten. A rollback needs none: a snapshot's own step and later ones are forgotten by themselves,
  // and it is held against what was healthy before. That is known of the last eight healthy snapshots; farther back
  // there is nothing to hold it against. After a Reset, or in a new process, that is so of the first snapshot too.
  void Reset();

 private:
  struct Impl;
  explicit HealthMonitor(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the functions
};

}  // namespace tidemark

#endif  // TIDEMARK_HEALTH_MONITOR_H_
