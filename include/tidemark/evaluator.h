// Evaluators in the training process: functions that are called with snapshots, in parallel with the training.
//
//   absl::Status added = checkpointer.AddEvaluator(
//       {.name = "validation", .entries = {"model.*"}},
//       [&](const tidemark::Snapshot& snapshot) -> absl::StatusOr<tidemark::Verdict> {
//         absl::Status loaded = tidemark::LoadModule(snapshot, "model", *model);  // tidemark/torch.h
//         if (!loaded.ok()) return loaded;
//         return tidemark::Metrics{{"loss", Loss(model)}};
//       });
//
// The value becomes the metric "validation/loss" of the step, even if the step was deleted meanwhile. The same function
// also works in a process of its own: see tidemark/worker.h.

#ifndef TIDEMARK_EVALUATOR_H_
#define TIDEMARK_EVALUATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/snapshot.h"
#include "tidemark/step_info.h"

namespace tidemark {

// The result of an evaluator. Converts implicitly from Metrics.
struct Verdict {
  Verdict() = default;
  Verdict(Metrics found, std::string why_unhealthy = "")  // NOLINT: implicit
      : metrics(std::move(found)), unhealthy(std::move(why_unhealthy)) {}

  Metrics metrics;
  // Why the step is not to be trusted. Such a step is never best, and RestoreOptions::healthy_only passes over it.
  // Empty: healthy.
  std::string unhealthy;
};

// Called with complete snapshots only. An error or an exception becomes an evaluation record; the training continues.
// The snapshot's memory belongs to the staging arena, and returns to it when the function has returned and
// Snapshot::memory() is not held.
using EvaluatorFunction = std::function<absl::StatusOr<Verdict>(const Snapshot&)>;

// The policy for a new snapshot while max_pending snapshots wait or are being evaluated. A snapshot that is skipped
// gets an evaluation record that says so.
enum class WhenLagging {
  // Save waits before it copies anything.
  kBlock,
  // The new snapshot is skipped.
  kSkip,
  // Replaces any waiting snapshot, which is skipped. At most one snapshot waits, also while max_pending are being
  // evaluated. If a save needs the memory of the waiting snapshot, that one is skipped: only a running evaluation can
  // block a save.
  kLatest,
  // The snapshot waits without holding memory. It is read from the committed checkpoint when its turn comes, without
  // entries of companions. Retention keeps the step until then. A snapshot that is only evaluated
  // (AsyncCheckpointer::Evaluate) waits as with kBlock. Steps that retention awaits and that an earlier process did not
  // evaluate are read in the same way, before all others.
  kQueue,
};

// Converts float32 and float64 tensors to half of their bytes or less, rounded to nearest even.
enum class HalfPrecision { kNone, kBfloat16, kFloat16 };

struct EvaluatorOptions {
  // Unique in the checkpointer; 1 to 256 bytes of UTF-8 without '/'. Prefix of the metrics: "name/loss".
  std::string name = {};
  // Snapshots that may wait or be evaluated at a time, and so hold staging memory. 1 or more. WhenLagging is the policy
  // for further ones. The default staging memory grows by as many states; add them to
  // CheckpointerOptions::staging_bytes_max if you set it.
  int64_t max_pending = 1;
  WhenLagging when_lagging = WhenLagging::kLatest;
  // Only steps divisible by it. 1 or more.
  int64_t every_steps = 1;
  // The mode (lowest or highest is best) of metrics, by the evaluator's own names for them. Needed only for metrics
  // whose names give no mode (BestModeOfName), or the wrong one. AddEvaluator records it in the store, for
  // BestStep, retention and checkpoint-inspect. It returns kInvalidArgument if a rule of RetentionOptions::keep_best
  // gives another mode. A worker process does not use it.
  std::map<std::string, BestMode> best = {};
  // Only entries whose names match one of these patterns ('*' any run of characters, '?' one). Empty: all. If a pattern
  // matches nothing in a snapshot, the evaluation fails.
  std::vector<std::string> entries = {};
  // Unless kNone, converted tensors get memory of their own, and the staging memory is released before the function is
  // called.
  HalfPrecision half_precision = HalfPrecision::kNone;
  // Calls at a time. 1 to 64. With more than one the function must be thread-safe, and results may be recorded out of
  // order.
  int threads = 1;
};

}  // namespace tidemark

#endif  // TIDEMARK_EVALUATOR_H_
