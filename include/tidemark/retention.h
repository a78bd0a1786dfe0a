// Retention: which committed steps stay.
//
//   tidemark::AsyncCheckpointer::Open({
//       .directory = "run/ckpt",
//       .retention = {.max_to_keep = 3, .keep_best = {{"validation/loss"}}, .keep_every_steps = 10'000},
//   });
//
// A step stays if any rule wants it. Whatever the rules say, these stay: the latest committed step; the one that was
// committed last (another one after a rollback); the latest healthy one, of which no awaited evaluator (below) has yet
// to report, and if one in this process has yet to, also the latest on which all of them have and the next after that;
// pinned ones; and those that a live reader holds a lease on. Without a rule all stay. Steps that are not committed
// (damaged, lost) are neither counted nor deleted.
//
// A step that is let go keeps its record: metrics, history, and why it went. Its file goes when no other step refers to
// chunks in it.

#ifndef TIDEMARK_RETENTION_H_
#define TIDEMARK_RETENTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark {

// The `count` (>= 1) best healthy steps by a metric: "loss", or "validation/loss" of an evaluator. Of equal ones the
// later ones; NaN and infinities never.
struct KeepBest {
  std::string metric;
  BestMode mode = BestMode::kLowest;
  int64_t count = 1;
};

// Steps divisible by `every_steps` (>= 1) stay until `evaluator` has said something of them, be it that it skipped
// them. That it failed does not count, since it may be asked again (WorkerOptions::again_if_failed, or
// WhenLagging::kQueue in a later process): a step on which it always fails stays until somebody reports on it in that
// name (AsyncCheckpointer::ReportMetrics), or opens the store without this rule. What one in the trainer's
// process had yet to evaluate when that was killed stays until an evaluator of that name is added in a later process:
// it evaluates those steps then, or they get rows which say that it did not (see AsyncCheckpointer::AddEvaluator).
// Where none is added, and no worker or ReportMetrics reports on them, they stay.
struct AwaitEvaluation {
  std::string evaluator;
  int64_t every_steps = 1;
};

struct RetentionOptions {
  // The rules. 0 or empty: no such rule.
  int64_t max_to_keep = 0;                              // so many, those that were committed last
  std::vector<KeepBest> keep_best;                      // the best so many of each of these
  int64_t keep_every_steps = 0;                         // steps divisible by it
  absl::Duration keep_interval = absl::ZeroDuration();  // the first step in every such span of wall-clock time
  std::function<bool(const StepInfo&)> keep;            // those for which it returns true; housekeeping thread

  // Not a rule by itself: delays what the rules would delete, so that a late metric can still make a step the best one.
  std::vector<AwaitEvaluation> keep_unevaluated_until;

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
  std::string reason;  // all that speaks for the step, or what speaks for none: "not among the latest 3, ..."
};

}  // namespace tidemark

#endif  // TIDEMARK_RETENTION_H_
