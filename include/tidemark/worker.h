// Evaluation in a process of its own: follows a store, on the same machine or over a shared file system, and reports
// metrics to whoever has the store open for writing.
//
//   auto done = tidemark::FollowStore({.directory = "run/ckpt", .evaluator = "validation", .entries = {"model.*"}},
//                                     [&](const tidemark::Snapshot& snapshot) -> absl::StatusOr<tidemark::Metrics> {
//                                       ...
//                                     });
//
// Every committed step is evaluated at least once, in order, and counted once, however many workers share an
// evaluator's name and however often they are killed: a report on disk says that the step is done, a lease that
// somebody is at it. While a lease lives, retention leaves the step's files alone. It ends with its holder: at once
// where trainer and worker run on the same kernel, else when it has not been renewed for `lease_expiry`.

#ifndef TIDEMARK_WORKER_H_
#define TIDEMARK_WORKER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/evaluator.h"

namespace tidemark {

struct WorkerOptions {
  // The store. It need not exist yet: it is waited for.
  std::string directory;
  // As EvaluatorOptions::name. Workers that share it share its steps.
  std::string evaluator;
  // For the history. Empty: process id and host name.
  std::string worker;

  // As in EvaluatorOptions, and entries of companions that match too ("ema.*"); nothing else is read.
  std::vector<std::string> entries;
  HalfPrecision half_precision = HalfPrecision::kNone;  // as in EvaluatorOptions
  int64_t every_steps = 1;                              // as in EvaluatorOptions
  int64_t begin_step = 0;                               // no step before this one
  // Evaluates also those of which the last word is that the evaluation failed: after a wrong argument or for want of
  // memory. Each once; one that fails again is left to the next worker that is told so.
  bool again_if_failed = false;
  // Returns when none up to this step is left to be done, by whomever, and none is to come: the last one up to it that
  // is divisible by every_steps is done, or a later one is, or the store has this step or a later one, whatever became
  // of it. A save that failed does not count.
  std::optional<int64_t> until_step;
  // Returns when there has been nothing to do for so long. Zero: what is there now is done, then it returns. Steps that
  // are waited for (below) are something to do, and so is, for 10 s, a manifest that is being rebuilt.
  absl::Duration idle_timeout = absl::InfiniteDuration();

  absl::Duration poll_interval = absl::Seconds(1);  // between looks at the manifest while there is nothing to do
  absl::Duration lease_expiry = absl::Seconds(60);  // at least a second; the same for all workers and the trainer

  // SIGTERM and SIGINT end it after the step at hand; a second one has the effect that it had before.
  bool stop_on_signal = true;
  // Asked between steps and while waiting; true ends it. Null: never. What the functions here throw comes out of the
  // call: the lease is let go of then, and what was delivered stays.
  std::function<bool()> stop;

  // As in CheckpointerOptions. Null: lines go to standard error.
  std::function<void(std::string_view)> on_warning;
  // Called after each report has been delivered. Null: nobody.
  std::function<void(int64_t step, const Evaluation&)> on_evaluated;
};

struct WorkerReport {
  enum class End { kUntilStep, kIdle, kSignal, kStopped };
  End end = End::kIdle;
  int64_t evaluated = 0;  // reports delivered, failed ones included
  int64_t failed = 0;
  std::optional<int64_t> last_step;  // of those
};

// Blocks until one of the ends above. Calls `function` on this thread. A function that fails is a row of the history,
// not an error, and so is a step that turns out to be damaged: such a step is done, but for again_if_failed. A step
// that is committed and whose files are not there is tried again, after 1 s, 2 s and so on up to 32 s, since over a
// shared file system they may be seen late; then, or when the manifest says that it is lost or deleted, it is passed
// over, the former with a warning. Later steps do not wait for it. Steps that another worker is at are waited for,
// since it may die.
//
// kInvalidArgument: an option. kUnimplemented: the store is of a newer format, or a step was saved by several ranks.
// kFailedPrecondition: the directory is none. kDataLoss: store.json or the manifest is damaged, or is another store's
// than before. kPermissionDenied, kResourceExhausted: a report or a lease cannot be written, or there is no memory for
// a snapshot. kInternal: the disk fails. What was not delivered is evaluated again next time.
absl::StatusOr<WorkerReport> FollowStore(const WorkerOptions& options, const EvaluatorFunction& function);

}  // namespace tidemark

#endif  // TIDEMARK_WORKER_H_
