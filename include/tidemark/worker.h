// Evaluation in a process of its own: follows a store, on the same machine or over a shared file system, and reports
// metrics to the trainer.
//
//   auto done = tidemark::FollowStore(
//       {.directory = "run/ckpt", .evaluator = "validation", .entries = {"model.*"}},
//       [&](const tidemark::Snapshot& snapshot) -> absl::StatusOr<tidemark::Verdict> {
//         return tidemark::Metrics{{"loss", Loss(snapshot)}};
//       });
//   if (!done.ok()) return done.status();
//
// Every committed step is evaluated at least once, in order, and counted once. This holds for any number of workers
// that share an evaluator's name, and however often they are killed. A report in the store's journal says that a step
// is done; a lease says that a worker is evaluating it. While a lease lives, retention keeps the step's files. A lease
// ends with its holder. If trainer and worker run on the same kernel, it ends immediately, even if children that the
// worker forked live on. Otherwise it ends when it was not renewed for `lease_expiry`.

#ifndef TIDEMARK_WORKER_H_
#define TIDEMARK_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/checkpoint_observer.h"
#include "tidemark/evaluator.h"

namespace tidemark {

struct WorkerOptions {
  // The store. If it does not exist yet, the worker waits for it. If an older version wrote it, the worker waits until
  // it is converted, and warns. A relative path is resolved once, by FollowStore.
  std::string directory = {};
  // As EvaluatorOptions::name. Workers that share it share its steps.
  std::string evaluator = {};
  // For the history. Empty: process id and host name.
  std::string worker = {};

  // kQueue: every step is evaluated. kLatest: of the steps that the options select, only the one that was saved last;
  // earlier ones are recorded as skipped. Others are kInvalidArgument.
  WhenLagging when_lagging = WhenLagging::kQueue;
  // A step more than this many steps behind the one that was saved last is recorded as skipped. 0: no bound.
  int64_t staleness_max = 0;
  // False: evaluates and tells the observer, but writes nothing to the store: no reports, and no leases, so retention
  // may delete a step before it was read. For inference servers and read-only mounts. Steps that this call evaluated
  // are not evaluated again by it; `evaluator` may be empty, and if it is not, steps with a report of that name are
  // done.
  bool report = true;

  // As in EvaluatorOptions, and entries of companions that match too ("ema.*"); nothing else is read.
  std::vector<std::string> entries = {};
  HalfPrecision half_precision = HalfPrecision::kNone;  // as in EvaluatorOptions
  int64_t every_steps = 1;                              // as in EvaluatorOptions
  int64_t begin_step = 0;                               // no step before this one
  // Evaluates also steps whose evaluation failed, for example for lack of memory. Each once in a call.
  bool again_if_failed = false;
  // Returns when every step up to this one is done, by this or another worker, and no other can come. No other can come
  // if the last selected step up to it is done, or a later one is. The same holds if the store has this step or a later
  // one in any state except failed.
  std::optional<int64_t> until_step = {};
  // Returns when there was nothing to do for this long. Zero: evaluates the steps that are there now, then returns.
  // Waiting for a step (below), and for 10 s waiting for a journal that is being made, count as something to do.
  absl::Duration idle_timeout = absl::InfiniteDuration();

  absl::Duration poll_interval = absl::Seconds(1);  // between looks at the journal while there is nothing to do
  absl::Duration lease_expiry = absl::Seconds(60);  // at least a second; a lease tells others its own expiry

  // SIGTERM and SIGINT end the call after the current step. A second one has its previous effect.
  bool stop_on_signal = true;
  // Asked between steps and while waiting; true ends the call. Null: never. An exception of a function here ends the
  // call with kInternal: the lease is released, and delivered reports stay.
  std::function<bool()> stop = {};

  // Evaluated is called after each evaluated or skipped step, when its report has been delivered; Warning as in a
  // checkpointer. Both on the thread of FollowStore. An exception ends the call as one of `stop` does. Null: warnings
  // go to standard error.
  std::shared_ptr<CheckpointObserver> observer = {};
};

struct WorkerReport {
  enum class End { kUntilStep, kIdle, kSignal, kStopped };
  End end = End::kIdle;
  int64_t evaluated = 0;  // failed evaluations included
  int64_t failed = 0;
  int64_t skipped = 0;               // because of when_lagging or staleness_max
  std::optional<int64_t> last_step;  // evaluated
};

// Blocks until one of the ends above. Calls `function` on this thread.
//
// A function that fails, and a step that is damaged, become evaluation records, not errors; such a step is done unless
// again_if_failed. A committed step whose files are not visible is tried again after 1 s, 2 s and so on up to 32 s,
// because a shared file system may show them late. Then it is passed over with a warning; a lost or deleted step is
// passed over at once. Later steps do not wait for it. The call waits for steps that another worker is evaluating,
// because that worker may die.
//
// A function that returns kCancelled ends the call with that error. Nothing is recorded of its step.
//
// Errors; a step whose report was not delivered is evaluated again by the next call:
//   kInvalidArgument     an option
//   kUnimplemented       the store is of a newer format
//   kFailedPrecondition  the path is not a directory, or the store was moved or replaced meanwhile
//   kDataLoss            store.json or the journal is damaged
//   kPermissionDenied    a report or a lease cannot be written
//   kResourceExhausted   the same, or no memory for a snapshot
//   kUnavailable         other processes append to the journal faster than this one can
//   kNotFound            the journal was away for 10 s when a report was to be appended
//   kUnknown             a sync failed: the report may or may not survive a power loss
//   kInternal            the disk fails, or a callback of the options threw
absl::StatusOr<WorkerReport> FollowStore(const WorkerOptions& options, const EvaluatorFunction& function);

}  // namespace tidemark

#endif  // TIDEMARK_WORKER_H_
