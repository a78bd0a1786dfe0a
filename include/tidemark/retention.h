// Retention: which committed steps are kept.
//
//   auto checkpointer = tidemark::AsyncCheckpointer::Open({
//       .directory = "run/ckpt",
//       .retention = {.max_to_keep = 3, .keep_best = {{"validation/loss"}}, .keep_every_steps = 10'000},
//   });
//
// A step is kept if any rule wants it. Without a rule all steps are kept. Always kept:
//   - the latest committed step, and the one that was committed last (another one after a rollback)
//   - the latest healthy step: the highest one that no evaluator called unhealthy
//   - while an awaited evaluator (below), or one in this process, has not reported on that step: also the latest
//     healthy step that all of them have judged, and the next step after it
//   - pinned and tagged steps, and steps on which a live reader holds a lease
// Damaged and lost steps are neither counted nor deleted.
//
// A deleted step keeps its record: metrics, history and the reason. Its file is removed when no other step refers to
// chunks in it.

#ifndef TIDEMARK_RETENTION_H_
#define TIDEMARK_RETENTION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Keeps the `count` (>= 1) best healthy steps by a metric: "loss", or "validation/loss" of an evaluator. Of equal
// steps the later ones count. NaN and infinities are never best.
struct KeepBest {
  std::string metric = {};
  // Whether the lowest or the highest value is the best. A given mode is recorded in the store, for BestStep and
  // checkpoint-inspect. nullopt: the mode that the store has recorded for the metric, else the mode that its name gives
  // (BestModeOfName), at the time of each retention pass. If neither gives one at Open, that returns kInvalidArgument.
  // With `score` nullopt is the lowest.
  std::optional<BestMode> mode = {};
  int64_t count = 1;
  // Computes the value from all metrics of the step, instead of taking `metric`, which may then be empty or a name for
  // the records. NaN: the step has none. Called on the housekeeping thread, also for RetentionPlan. If it throws, the
  // step stays, and a warning has the message.
  std::function<double(const Metrics&)> score = {};
  // Steps without the value stay, and `count` does not count them. So an evaluator that reads only some steps costs
  // none of the others.
  bool keep_without_metric = false;
};

// Keeps steps divisible by `every_steps` (>= 1) until `evaluator` has reported on them, or has skipped them. A failed
// evaluation does not count, because it may be repeated (WorkerOptions::again_if_failed, or WhenLagging::kQueue in a
// later process). A step on which the evaluator always fails is kept until AsyncCheckpointer::ReportMetrics reports on
// it under that name, or until the store is opened without this rule. Steps that a killed trainer had not evaluated are
// kept until an evaluator of that name is added again: it evaluates them, or they are recorded as skipped
// (AsyncCheckpointer::AddEvaluator).
struct AwaitEvaluation {
  std::string evaluator = {};
  int64_t every_steps = 1;
};

struct RetentionOptions {
  // The rules. 0 or empty: no such rule.
  int64_t max_to_keep = 0;                              // this many, by order of commits
  std::vector<KeepBest> keep_best = {};                 // the best steps by each of these
  int64_t keep_every_steps = 0;                         // steps divisible by it
  absl::Duration keep_interval = absl::ZeroDuration();  // the first step in every such span of wall-clock time
  // Steps that were saved at most this long before the step that was committed last. The current time does not count,
  // so a run that stands still loses nothing.
  absl::Duration keep_for = absl::ZeroDuration();
  // Those for which it returns true. Called on the housekeeping thread, for each committed step in each retention pass.
  // If it throws, the step stays, and a warning has the message.
  std::function<bool(const StepInfo&)> keep = {};

  // Not a rule by itself: delays deletions, so that a late metric can still make a step the best one.
  std::vector<AwaitEvaluation> keep_unevaluated_until = {};

  // Whether any rule is set.
  bool any() const;

  // Other libraries' names for common policies; set further fields as you like.
  static RetentionOptions MaxToKeep(int64_t count);       // Orbax, TensorFlow
  static RetentionOptions SaveTotalLimit(int64_t count);  // Hugging Face: the same
  static RetentionOptions SaveTopK(int64_t k, std::string monitor,
                                   BestMode mode);  // Lightning: the k best and the latest
};

// kInvalidArgument names the field, its value and the legal range.
absl::Status ValidateRetention(const RetentionOptions& options);

struct RetentionDecision {
  int64_t step = 0;
  bool keep = true;
  std::string reason;  // every rule that keeps the step, or why no rule does: "not among the latest 3, ..."
};

}  // namespace tidemark

#endif  // TIDEMARK_RETENTION_H_
