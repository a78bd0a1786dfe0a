// Start here. AsyncCheckpointer saves a training state without stopping the training, and restores it.
//
//   absl::Status Train(Model& model, int64_t steps) {
//     auto checkpointer = tidemark::AsyncCheckpointer::Open({.directory = "run/ckpt"});
//     if (!checkpointer.ok()) return checkpointer.status();
//     tidemark::State state;  // plain memory; tidemark::TorchState (tidemark/torch.h) takes modules and optimizers
//     state.AddTensor("weight", tidemark::Dtype::kFloat32, {512, 128}, model.weight.data());
//     absl::StatusOr<int64_t> first = (*checkpointer)->Resume(state);  // 0 in a fresh run
//     if (!first.ok()) return first.status();  // never start anew here: that would bury the old run
//     for (int64_t step = *first; step < steps; ++step) {
//       const double loss = model.TrainStep(step);
//       if (!(*checkpointer)->ShouldSave(step)) continue;
//       auto save = (*checkpointer)->Save(step, state, {.metrics = {{"loss", loss}}});
//       if (!save.ok()) return save.status();
//     }
//     return (*checkpointer)->Close();  // waits until the last save is committed
//   }
//
// Two words are used in one sense only. *Staged*: the state has been copied, the trainer may change its tensors.
// *Committed*: the step survives power loss, and restore finds it.
//
// The other programs of a run:
//   an evaluator         AddEvaluator, or tidemark/worker.h for a process of its own (examples/follow)
//   an inference loader  tidemark/store_reader.h, which takes no lock (examples/serve)
//   a rollback           Restore and DiscardAfter, or tidemark/capture.h without the disk (examples/rollback)

#ifndef TIDEMARK_ASYNC_CHECKPOINTER_H_
#define TIDEMARK_ASYNC_CHECKPOINTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/checkpointer_options.h"
#include "tidemark/companion.h"
#include "tidemark/evaluator.h"
#include "tidemark/future.h"
#include "tidemark/restore_options.h"
#include "tidemark/retention.h"
#include "tidemark/save_handle.h"
#include "tidemark/state.h"
#include "tidemark/statistics.h"
#include "tidemark/step_info.h"
#include "tidemark/step_selector.h"

namespace tidemark {

struct Machine;

// The payload of what WaitUntilEvaluated and Close return at their deadline if a save still runs. The thread of one that
// is committed may not have come to its end.
inline constexpr char kSaveRunsPayload[] = "tidemark/save-runs";

// Owned by the trainer. Functions are called by one thread at a time (thread-compatible), unless they say otherwise.
// After Close every function is kFailedPrecondition, unless it says otherwise. An exception becomes an error of the
// function that returns a status or a future: kResourceExhausted for std::bad_alloc, kInternal for others. Only where
// there is no memory even for a future that has the error, Committed and ReportMetrics throw std::bad_alloc. A function
// that reads records of steps may also return errors of reading journal and index: kDataLoss, kInternal. One that
// changes the store may also return:
//   kUnknown: a sync failed, so the change may or may not survive a power loss. The next change finds out.
//   kFailedPrecondition: another process has opened the store for writing, because the lock does not reach it.
//   kUnavailable: other processes append to the journal faster than this one can.
//
// Threads that still run when Close runs out of time, or after the destructor, go on in the background. Evaluators,
// callbacks and a State that is being copied must therefore own all that they use, or return. The next process
// evaluates queued steps that are on disk (WhenLagging::kQueue). Other waiting snapshots are recorded as skipped.
// Retention deletes nothing any more. If a callback or an evaluator drops the last owner, another thread closes the
// store, and the destructor does not wait.
//
// In a job of several ranks (tidemark/ranks.h) all ranks call Open, Restore, RestoreLatest, Resume and DiscardAfter
// alike, and get the same step or the same error. These functions may return errors of RankOptions::all_gather, and
// kFailedPrecondition if the ranks are in different calls. What differs there:
//   Save           steps up to 2^47 - 2. A save that one rank refuses fails on all ranks, and is recorded as failed.
//                  `committed` may also be kAborted: the message has the rank that failed, and why. A committed step is
//                  replaced only with `overwrite`, also if it was called unhealthy.
//   ShouldSave     rank 0 decides if a rule depends on the time or on a function; then all ranks must call it.
//   Restore        entries that this rank's state lacks are left out. If another rank's state does not fit, or its
//                  shards are damaged, tensors and values of this rank's state may have been set by then.
//   AddCompanion   kUnimplemented; so is AddEvaluator with WhenLagging::kQueue, but on rank 0.
//   Delete, Tidy, RetentionPlan    kFailedPrecondition but on rank 0, whose retention is that of the store.
//
// A forked child must not use it: every function is kFailedPrecondition there, ShouldSave is false and statistics() are
// empty. Futures that had no result at the fork resolve there with that error, and the destructor releases nothing. A
// child that calls exit() skips the destructors of objects that were static before the first Open. A child does not
// keep the store's lock when the trainer ends.
class AsyncCheckpointer {
 public:
  // Opens or creates the store, takes its lock, and reads the journal. A store that an older version wrote is converted
  // first. A journal that is lost or damaged is made anew, with warnings.
  //   kInvalidArgument: an option is out of its range; the message has the range.
  //   kNotFound: there is no store, and CheckpointerOptions::create is off.
  //   kFailedPrecondition: the directory holds something that is not a store.
  //   kUnavailable: another process holds the store; the message names it. (For checkpoint-inspect Open waits 10 s.)
  //   kUnimplemented: a newer version wrote the store.
  //   kPermissionDenied, kResourceExhausted: the directory cannot be written.
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(CheckpointerOptions options);

  // Closes as Close does; its error is a warning. After a Close that ran out of time it does not wait again. If only
  // evaluators still run, the store is released first, which the destructor awaits for at most 10 s.
  ~AsyncCheckpointer();

  // Whether the options ask for a save at this step. False if the step is being saved, or is committed and not called
  // unhealthy; this is looked up only if a rule says yes. False after Close.
  bool ShouldSave(int64_t step) const;

  // Replaces CheckpointerOptions::save_interval_steps. 0: no such rule. Thread-safe. kInvalidArgument: less than 0.
  absl::Status SetSaveInterval(int64_t steps);

  // Saves `state` as `step` (0 to 2^63 - 2). Blocks only as SaveOptions::staging says; the rest happens behind the
  // training. `state` must stay alive until it is staged.
  //
  // Errors that leave the store as it was:
  //   kAlreadyExists: the step is committed or being saved, and `overwrite` is off.
  //   kInvalidArgument: the state (a name twice), the metadata (no JSON object), a metric's name, or the step.
  //   kResourceExhausted: the state is larger than staging_bytes_max, the system has no memory or no thread, or
  //     WhenFull::kFail applied.
  //   kUnimplemented: a sparse or quantised tensor. kCancelled: SaveOptions::cancelled said so while it waited.
  // If the state cannot be copied (kInternal, kResourceExhausted), the step may have a record of the failure.
  //
  // An earlier failure that was not read does not prevent this save. A warning names it once, and
  // SaveHandle::earlier_failure() has the first one. CheckForErrors returns the others.
  absl::StatusOr<SaveHandle> Save(int64_t step, State& state, SaveOptions options = {});

  // Gives the evaluators and companions a snapshot of `state` as `step`, and saves nothing. Their results become the
  // history of a step in the state `unsaved`. If the step was saved before, and is now deleted, lost or damaged, they
  // are dropped with a warning. Errors: those of Save, and kAlreadyExists for a step that is committed or in flight.
  absl::StatusOr<SaveHandle> Evaluate(int64_t step, State& state, EvaluateOptions options = {});

  // Blocks until the last save is staged, or one entry of it; its error if that failed. Trainers that update a layer as
  // soon as its gradient is there wait for an entry: parameters are copied in the order in which they were added, each
  // followed by its optimizer state; of one that another rank writes, what comes before it. kNotFound: no such entry.
  absl::Status WaitUntilStaged();
  absl::Status WaitUntilStaged(std::string_view entry);

  // Takes the memory that a save of `state` needs, and touches it, so that the first save is as fast as later ones. For
  // a state that has grown since Resume. If there is no memory, this is ok and the save fails. Errors: as in Save.
  absl::Status Prepare(State& state);
  // The same, but a thread touches the memory. For a fresh run whose optimizer makes its state in the first step.
  absl::Status PrepareInBackground(State& state);

  // Blocks until every save so far is committed or has failed. Returns the first failure that was not read yet.
  absl::Status WaitUntilCommitted();

  // The `committed` future of the step's save in flight; Evaluate does not count as a save. Without a save in flight it
  // is resolved: ok if the step is committed, else kNotFound.
  Future Committed(int64_t step) const;

  // The first failure of a background save that was not read yet; it then counts as read. Of those after the first ten,
  // one call returns the number and the last failure. Never blocks. Thread-safe; may be called after Close.
  absl::Status CheckForErrors();

  // Fills `state` from the highest committed step, after waiting for saves in flight. A step that turns out damaged is
  // marked and reported, and the next older one is taken. A step that the device fails to read twice is passed over.
  //   kNotFound: no step is committed, or none that `options` wants.
  //   kInvalidArgument: the checkpoint does not fit the state. One message lists every missing, unexpected, reshaped
  //     and retyped entry, or names two tensors that share memory in the state and differ in the checkpoint. Nothing of
  //     the state has been touched.
  //   kDataLoss: every candidate is damaged or lost. Tensors of the state may hold parts of it, values never do. Also:
  //     an older step does not fill every tensor that a damaged one had begun to fill.
  //   kResourceExhausted, and errors of the state itself; of an object's `load` see State::AddObject.
  absl::StatusOr<RestoreReport> RestoreLatest(State& state, const RestoreOptions& options = {});

  // Fills `state` as RestoreLatest does, and returns the step to train next: the restored step + 1. Returns 0, with
  // `state` untouched, in a fresh run: no step was ever committed. Then does PrepareInBackground. Stop on errors:
  //   kFailedPrecondition: steps have been committed, but `options` wants none of them, or all were deleted. A fresh
  //     run needs another directory.
  //   kOutOfRange: the restored step is INT64_MAX. `state` has been filled.
  //   Other errors: those of RestoreLatest. kDataLoss: no committed step can be restored.
  absl::StatusOr<int64_t> Resume(State& state, const RestoreOptions& options = {});

  // Fills `state` from the selected step; a number selects its step (tidemark/step_selector.h). A step that is named by
  // its number and marked damaged or lost is examined anew; if every byte verifies, the mark is taken back. With "best"
  // the next best step takes the place of one that turns out damaged. Else as RestoreLatest.
  //
  // Steps after the restored one stay: a restart resumes from the highest of them, and ShouldSave is false for them. A
  // run that goes on from an older step calls DiscardAfter, saves with SaveOptions::overwrite, or has another store.
  //   kNotFound: no committed step is selected, or `options` wants none of them.
  //   kFailedPrecondition: several steps have the tag.
  //   kDataLoss: the selected steps are damaged.
  absl::StatusOr<RestoreReport> Restore(const StepSelector& step, State& state, const RestoreOptions& options = {});

  // The highest committed step. kNotFound: no step is committed.
  absl::StatusOr<StepInfo> LatestStep() const;

  // The committed, healthy step at which the metric was best; of several the last. NaN and infinities are never best. A
  // step is healthy unless an evaluation says otherwise. Without a mode, the one that the store has recorded counts
  // (KeepBest::mode, EvaluatorOptions::best), else the one that the metric's name gives (BestModeOfName).
  //   kNotFound: no such step has the metric.
  //   kInvalidArgument: no mode is given, recorded, or known by the name.
  absl::StatusOr<StepInfo> BestStep(std::string_view metric, BestMode mode) const;
  absl::StatusOr<StepInfo> BestStep(std::string_view metric) const;

  // All recorded steps, ascending by step, including those that were deleted or only evaluated.
  absl::StatusOr<std::vector<StepInfo>> Steps() const;

  // Calls `function` on threads of its own with every snapshot from the next save on, as the options say. If retention
  // awaits this evaluator (RetentionOptions::keep_unevaluated_until), it first waits for saves in flight, and handles
  // committed steps that are due and lack a record of it: with WhenLagging::kQueue they are evaluated first, from the
  // store; otherwise they are recorded as skipped, so that retention goes on.
  //   kInvalidArgument: an option is out of its range.
  //   kAlreadyExists: the name is taken. kResourceExhausted: no thread.
  absl::Status AddEvaluator(EvaluatorOptions options, EvaluatorFunction function);

  // Gives the companion every snapshot from the next save on; its entries are saved with it. Waits for saves in flight.
  // A save is then not written before all of it is staged. A restore fills the companion from the same step as the
  // state, so add it before. If the step has no entries of the companion, it begins anew, with a warning. If they do
  // not fit, the restore is kInvalidArgument and touches nothing. Damage in its entries is damage of the step.
  //   kInvalidArgument: the prefix is empty, or has one of ".*?" or a line end. Or the prefixes of all companions, with
  //     a line end between them, have more than 64 KiB.
  //   kAlreadyExists: the prefix is taken.
  absl::Status AddCompanion(std::shared_ptr<Companion> companion);

  // Records metrics of a saved step, at any time. They are known as "evaluator/name", and replace the earlier record of
  // that evaluator for the step. Thread-safe; never blocks. Resolves when step and metrics survive power loss.
  //   kNotFound: no such step, or its save failed. kInvalidArgument: a name. kFailedPrecondition: see above, or moved.
  //   Any other error is the disk's. The metrics may be recorded all the same.
  Future ReportMetrics(int64_t step, std::string evaluator, Metrics metrics);

  // A pinned step is never deleted by retention. Pin replaces the note and keeps tags; Unpin removes the tags too.
  // kNotFound: the step is not committed. Thread-safe.
  absl::Status Pin(int64_t step, std::string note = "");
  absl::Status Unpin(int64_t step);

  // Gives a committed step a name, for StepSelector::Tag, and pins it if it is not pinned. Untag takes the name from
  // its step, which stays pinned. Both survive power loss when they return ok. Thread-safe.
  //   kNotFound: the step is not committed; Untag: no step has the name.
  //   kAlreadyExists: another step has the name. kOutOfRange: the step has 64 tags.
  //   kInvalidArgument: the name is not of 1 to 128 letters, digits and "._/-", or begins with '-'.
  absl::Status Tag(int64_t step, std::string_view name);
  absl::Status Untag(std::string_view name);

  // Deletes a committed step, with this reason in its record, which stays. The deletion survives power loss when this
  // returns ok; the files are removed behind the training. Thread-safe.
  //   kNotFound: the step is not committed. kUnavailable: a restore is going on.
  //   kFailedPrecondition: the step stays under all rules (tidemark/retention.h): the latest, the latest healthy one,
  //     pinned ones, and those that are being read. The message says which. Also in a callback that retention calls
  //     while it deletes other steps: RetentionOptions::keep, KeepBest::score, CheckpointObserver::Warning.
  absl::Status Delete(int64_t step, std::string reason = "deleted by the trainer");

  // Deletes all committed steps after `step`, the latest included, as Delete does, and returns them, the highest first.
  // For a run that was restored to an older step and goes on from there: Resume and RestoreLatest then find that run's
  // steps, and ShouldSave is true for the numbers of the discarded ones. Waits for saves in flight. If a step was
  // deleted, the next save writes every chunk. A crash, or an error of the disk, leaves all steps up to some number at
  // or after `step`. Then call it again.
  //   kFailedPrecondition: a later step is pinned or tagged (Unpin first), is being read by a worker or another
  //     process, or an evaluator has yet to read it (WaitUntilEvaluated first). The message names these steps. Or no
  //     step up to `step` is committed, so nothing would remain. Nothing is deleted then.
  //   Other errors, and those in callbacks: as Delete.
  absl::StatusOr<std::vector<int64_t>> DiscardAfter(int64_t step,
                                                    std::string reason = "the run went back to an earlier step");

  // Blocks until the evaluators have finished their snapshots and the results are recorded. Returns the first error of
  // recording, which is tried again. At the deadline kDeadlineExceeded names the saves and evaluators that still run; it
  // has kSaveRunsPayload if a save is among them. In an evaluator or a callback: kFailedPrecondition.
  absl::Status WaitUntilEvaluated();
  absl::Status WaitUntilEvaluated(absl::Time deadline);

  // Reads what workers and checkpoint-inspect have appended, carries out what they ask, applies retention now, and
  // blocks until that is done. Returns the first error; the failed work is tried again later. kFailedPrecondition also
  // in the observer's Deleted and Evaluated, and in RetentionOptions::keep. Thread-safe.
  absl::Status Tidy();

  // What retention would keep and delete now, and why: every committed step, ascending. kFailedPrecondition: as for
  // Tidy. Thread-safe.
  absl::StatusOr<std::vector<RetentionDecision>> RetentionPlan() const;

  // Empty where there is no memory for them. Thread-safe; may be called after Close.
  CheckpointerStatistics statistics() const;

  // Waits for the saves in flight and for the evaluators, then releases the store. Returns the first failure that was
  // not read yet; further ones are warnings. If no save failed, an error may say how many evaluations the disk refused
  // to record. Idempotent. Without a deadline it waits for CheckpointerOptions::close_timeout. kDeadlineExceeded names
  // the saves and evaluators that still run; the store stays locked, and Close may be called again.
  absl::Status Close();
  absl::Status Close(absl::Time deadline);

 private:
  friend class PreemptionGuard;           // for the last save
  friend class CheckpointerOnFileSystem;  // for tests: the same on a file system that fails or forgets
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOn(const Machine& machine, CheckpointerOptions options);
  AsyncCheckpointer();
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with what goes on behind a Close that ran out of time
};

}  // namespace tidemark

#endif  // TIDEMARK_ASYNC_CHECKPOINTER_H_
