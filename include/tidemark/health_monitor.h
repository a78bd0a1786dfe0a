// HealthMonitor: an evaluator that finds signs of a diverging run in its weights and its loss.
//
//   auto monitor = tidemark::HealthMonitor::Create({.entries = {"model.*"}, .loss_metric = "loss"});
//   if (!monitor.ok()) return monitor.status();
//   absl::Status added = checkpointer.AddEvaluator((*monitor)->evaluator_options(), (*monitor)->function());
//   if (!added.ok()) return added;
//   for (int64_t step = first; step < steps; ++step) {
//     ...
//     const auto divergence = (*monitor)->TakeDivergence();
//     if (divergence && divergence->remediation == tidemark::Remediation::kSaveMoreOften) {
//       absl::Status shorter = checkpointer.SetSaveInterval(100);
//       if (!shorter.ok()) return shorter;
//     }
//     if (divergence && divergence->remediation == tidemark::Remediation::kRollBack) {
//       absl::StatusOr<int64_t> next = checkpointer.Resume(state, {.healthy_only = true});
//       if (!next.ok()) return next.status();  // no healthy step is left
//       (*monitor)->TakeDivergence();          // what it found before the restore has been rolled back with it
//       step = *next - 1;
//     }
//   }
//
// Rolled-back steps stay in the store, marked unhealthy, until the run reaches them again. Save replaces an unhealthy
// step without SaveOptions::overwrite, and ShouldSave returns true for it. A process that is restarted before then
// should restore with healthy_only too.
//
// Metrics that it reports for each step:
//   health/nan, health/inf          number of such values
//   health/norm                     norm of all finite values together
//   health/norm_jump                largest ratio between an entry's norm and its norm in the last healthy snapshot,
//                                   in either direction
//   health/loss_deviation           with loss_metric: distance from the mean, in standard deviations
//   health/gradient_norm_deviation  the same with gradient_norm_metric
//   health/loss_variance_jump       with loss_variance_jump_max, once loss_window values are known
//
// A step is compared with the last healthy ones. An intended change (a larger learning rate, reset weights) is
// therefore reported until Reset is called. It examines float16, bfloat16, float8, float32, float64 and complex
// tensors, but not float8_e8m0fnu and float4_e2m1fn_x2. Tied tensors count once.

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

// The action that a divergence asks of the trainer. The monitor itself takes none.
enum class Remediation {
  kRollBack,       // the step is unhealthy: restore from the latest healthy one
  kSaveMoreOften,  // the step is healthy, but the loss has become erratic: shorten the interval between saves
};

// Why a step is unhealthy, or about to become so.
struct Divergence {
  int64_t step = 0;
  std::string reason;  // names the worst entries
  Remediation remediation = Remediation::kRollBack;
};

struct HealthOptions {
  std::string name = "health";            // of the evaluator
  std::vector<std::string> entries = {};  // patterns; empty: all. Only floating-point tensors are examined
  double norm_jump_max = 10;              // ratio; > 1. An entry whose norm was 0 has no jump
  // Patterns of entries that also get metrics of their own: health/norm/NAME and health/norm_jump/NAME. These are kept
  // with every step. At most the first 64 matches in the state's order count, and none with a name of more than 1024
  // bytes; health/per_entry_left_out is the number of the others, if any. Empty: none.
  std::vector<std::string> per_entry = {};
  // A metric that is given with the save. A step is unhealthy if the metric is NaN or infinite, or differs from the
  // mean of the last `loss_window` healthy values by more than `loss_deviations_max` standard deviations. The standard
  // deviation counts as at least 1 % of the mean. Empty, or absent from a save: not examined.
  std::string loss_metric = {};
  double loss_deviations_max = 6;  // > 0
  int64_t loss_window = 50;        // 8 or more; until half of it is filled, only NaN and infinity are unhealthy
  // The variance of the newer half of the last `loss_window` healthy losses, divided by that of the older half. If it
  // rises above this value, there is a Divergence with kSaveMoreOften; the step stays healthy. Standard deviations
  // count as at least 1 % of the mean, as above. More than 1, or 0: not examined.
  double loss_variance_jump_max = 0;
  std::string gradient_norm_metric = {};  // the same rules; empty: not examined
  // Called once for each divergence, on the evaluator's thread. For an unhealthy step an exception is added to the
  // verdict's text, and the verdict stands; for kSaveMoreOften an exception fails the evaluation.
  std::function<void(const Divergence&)> on_divergence = {};
};

// Thread-safe.
class HealthMonitor {
 public:
  // kInvalidArgument: an option out of its range.
  static absl::StatusOr<std::unique_ptr<HealthMonitor>> Create(HealthOptions options);
  ~HealthMonitor();

  // The options ask for every snapshot, in order: kQueue, one thread. The function may outlive the monitor. All that
  // on_divergence uses must live as long as the checkpointer.
  EvaluatorOptions evaluator_options() const;
  EvaluatorFunction function();

  // Returns and removes the first divergence that was not taken yet. For trainers that ask once in each step. A
  // divergence with kRollBack replaces one with kSaveMoreOften that was not taken: the rollback comes first, and the
  // loss is judged again after it.
  std::optional<Divergence> TakeDivergence();

  // Call it after an intended change. Discards the baseline and any divergence that was not taken. A rollback needs no
  // Reset: when a snapshot arrives, its own step and later ones leave the baseline. The baseline is the last 8 healthy
  // snapshots. The first snapshot of a process, or after a Reset, has no baseline.
  void Reset();

 private:
  struct Impl;
  explicit HealthMonitor(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the functions
};

}  // namespace tidemark

#endif  // TIDEMARK_HEALTH_MONITOR_H_
