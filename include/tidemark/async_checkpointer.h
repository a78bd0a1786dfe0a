// Start here. AsyncCheckpointer saves a training state without stopping the training, and restores it.
//
//   auto checkpointer = tidemark::AsyncCheckpointer::Open({.directory = "run/ckpt"});
//   tidemark::TorchState state;                        // tidemark/torch.h; or tidemark::State for plain memory
//   state.AddModule("model", *model);
//   state.AddOptimizer("optimizer", optimizer, *model);
//   auto restored = (*checkpointer)->RestoreLatest(state);  // kNotFound: a fresh run
//   for (int64_t step = restored.ok() ? restored->step + 1 : 0; step < steps; ++step) {
//     ...
//     if ((*checkpointer)->ShouldSave(step)) {
//       auto save = (*checkpointer)->Save(step, state, {.metrics = {{"loss", loss}}});
//     }
//   }
//   absl::Status closed = (*checkpointer)->Close();
//
// Two words are used in one sense only. *Staged*: the state has been copied, the trainer may change its tensors.
// *Committed*: the step survives power loss, and restore finds it.

#ifndef TIDEMARK_ASYNC_CHECKPOINTER_H_
#define TIDEMARK_ASYNC_CHECKPOINTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/companion.h"
#include "tidemark/evaluator.h"
#include "tidemark/future.h"
#include "tidemark/retention.h"
#include "tidemark/state.h"
#include "tidemark/statistics.h"
#include "tidemark/step_info.h"

namespace tidemark {

namespace storage {
class FileSystem;
}
class Deadline;

// When Save returns.
enum class Staging {
  // When the state is staged.
  kBlocking,
  // At once. The State and its tensors must stay alive until WaitUntilStaged has returned, or Close with anything but
  // kDeadlineExceeded, and parameters and optimizer state must not change before: call WaitUntilStaged before
  // optimizer.step(). What changes earlier (values, generators, buffers of modules) has been copied when Save returns.
  kOverlapped,
  // When tensors on devices have been copied to memory of their own there, at the speed of that memory, and everything
  // else is staged: the trainer may change its tensors, and the copies go to the host behind the next steps. Where a
  // device has no room for them (device_staging_bytes_max, or its own), the save is as with kBlocking;
  // SaveHandle::staging() and the step's properties say so. The State need not outlive Save.
  kOnDevice,
};

// What Save does when the staging arena has no room because earlier snapshots are still in use.
enum class WhenFull {
  kBlock,  // waits for room
  kSkip,   // saves nothing; SaveHandle::skipped() says so
  kFail,   // returns kResourceExhausted
};

// Byte planes and zstd for floating point, zstd for everything else, raw where a chunk does not shrink.
enum class Compression {
  kThroughput,  // as much of it as there is time for while the disk is busy: never slower than kNone
  kSpace,       // all of it
  kNone,        // none
};

// Which system calls move the bytes.
enum class IoBackend {
  kAuto,     // io_uring where the kernel allows it, else threads; the choice is in a step's properties
  kUring,    // io_uring, or Open fails
  kThreads,  // pread and pwrite on a few threads
};

struct CheckpointerOptions {
  // The store. Created with its parents if it does not exist. One process at a time may hold it open for writing. The
  // path to it may go through symbolic links; within a store every link is refused, so a manifest/ on another disk is
  // mounted there. Files have mode 0600 and folders 0700: workers and readers run as the same user, or the files that
  // are there are opened to others by an ACL; a default ACL does not do, for these modes mask it.
  std::string directory;

  // When ShouldSave says yes: if any of these does. With none of them set: at every step.
  int64_t save_interval_steps = 0;     // at steps divisible by it; 0: off
  std::vector<int64_t> save_on_steps;  // at these steps
  double save_interval_seconds = 0;    // at the first step that is so long after the last save, or after Open; 0: off

  // Bytes of host memory that snapshots may hold. 0: twice the size of the largest state saved, so that one step can be
  // staged while the last is still being written, and as many more as evaluators may hold (their max_pending). Memory
  // is taken when it is first needed and kept. Where a device's driver locks it, that may take up to twice as much, for
  // LibTorch's allocators round up to powers of two. The last save of a PreemptionGuard takes one state more where only
  // evaluators are in its way.
  uint64_t staging_bytes_max = 0;
  WhenFull when_full = WhenFull::kBlock;
  Staging staging = Staging::kBlocking;
  // Bytes of device memory that Staging::kOnDevice may hold, over all devices. 0: as much as the devices give.
  uint64_t device_staging_bytes_max = 0;

  Compression compression = Compression::kThroughput;
  // Chunks that are the same as in the last committed step are not written again; the new step refers to the old step's
  // file, which then stays as long as either of them, and whose damage would be the damage of both. After damage was
  // seen the next save writes everything. Off: every step stands on its own.
  bool reuse = true;
  // Bytes of an entry that are compressed, checked and read as one. A power of two, 4 KiB to 64 MiB.
  uint32_t chunk_bytes = 1 << 20;
  // Threads that compress and decompress. 0: one for each core. At most 256. A save uses fewer where chunk_bytes is
  // large, so that their buffers stay within max(2 * chunk_bytes, 64 MiB).
  int codec_threads = 0;
  IoBackend io = IoBackend::kAuto;
  // Blocks of 1 MiB in flight to the disk. 1 to 256.
  int io_depth = 16;
  // Bytes that saves write to the disk in a second, at most. 0: as many as it takes. Else 1 MiB or more.
  uint64_t write_bytes_per_second_max = 0;
  // How much the threads behind a save give way to the trainer's: added to their niceness, 0 to 19.
  int background_nice = 5;
  // Saves write only when nobody else uses the disk: the kernel's idle I/O class, where its scheduler has one.
  bool background_io_idle = false;

  // Which steps stay. The others are deleted behind the training.
  RetentionOptions retention;
  // How often reports of worker processes, and requests of checkpoint-inspect, are looked for.
  absl::Duration inbox_poll_interval = absl::Seconds(1);

  // How long Close() and the destructor wait for saves and evaluators. More than 0.
  absl::Duration close_timeout = absl::Minutes(30);

  // Called with no lock held, by background threads, and where a save that is only evaluated ends in Save or Close by
  // the trainer's; several may be called at once. They must be quick, and call nothing of the checkpointer but its
  // thread-safe functions; on_deleted and on_evaluated not Tidy, which would wait for them. Null: nobody is told.
  std::function<void(const StepInfo&)> on_committed;
  std::function<void(int64_t step, const absl::Status&)> on_failed;
  std::function<void(int64_t step, std::string_view reason)> on_deleted;
  std::function<void(int64_t step, const Evaluation&)> on_evaluated;

  // Receives one line for every save when its fate is known: step, how long the trainer was held, how long the rest
  // took, sizes, and what was skipped and why. Any thread. Null: no lines.
  std::function<void(std::string_view)> on_save_line;

  // A file that has the statistics in the text format of Prometheus, for its node exporter's text file collector:
  // replaced as a whole after each save, and every few seconds while something changes. Unlike the store's files it is
  // for other users too, as far as the umask lets them (mode 0644). Empty: none.
  std::string metrics_file;

  // Receives one line for everything that a person should know and no Status carries: a damaged step that was passed
  // over, a record without files. Any thread. Null: lines go to standard error.
  std::function<void(std::string_view)> on_warning;

  // The wall clock, for tests. Called by several threads at once. Null: absl::Now.
  std::function<absl::Time()> now;
};

struct SaveOptions {
  // Recorded with the step. Names are UTF-8 of 1 to 4096 bytes. NaN and infinities are kept, and are never best.
  Metrics metrics;
  // A JSON object, kept with the step and shown by checkpoint-inspect. At most 16 MiB. With more than 8,192 keys or
  // 32,768 values, or nested deeper than 256, it is kept as well, but the tool's JSON and its exports lack it.
  std::string user_metadata = "{}";
  // Replace the step if it is committed, or being saved. The old attempt stays until the new one is committed. A
  // committed step that an evaluator has called unhealthy is replaced without this too, in the same way.
  bool overwrite = false;
  // Instead of CheckpointerOptions::staging.
  std::optional<Staging> staging;
  // False: the snapshot goes to the evaluators only, and is forgotten then; `committed` resolves when all of them have
  // had their say. That is kept as history of a step that is `unsaved`; where the step was saved before and is deleted,
  // lost or damaged since, its record stays that of the save, and what evaluators say is dropped with a warning.
  bool persist = true;
};

// What became of one Save. Cheap to copy; thread-safe; dropping it cancels nothing.
class SaveHandle {
 public:
  int64_t step() const { return step_; }

  // True if WhenFull::kSkip applied: nothing was saved, and both futures say kResourceExhausted.
  bool skipped() const { return skipped_; }

  // As asked for, or kBlocking where Staging::kOnDevice found no room on the device.
  Staging staging() const { return staging_; }

  // Resolves when the trainer may change its tensors.
  const Future& staged() const { return staged_; }

  // Resolves when the step would survive power loss, or with the reason why it never will. By then the save has let go
  // of the snapshot's memory; evaluators may hold it for longer. Its callback runs on a background thread, or at once
  // if the result is there; where nothing was to be saved (SaveOptions::persist) also on the trainer's, in a later Save
  // or Close.
  const Future& committed() const { return committed_; }

 private:
  friend class AsyncCheckpointer;
  int64_t step_ = 0;
  bool skipped_ = false;
  Staging staging_ = Staging::kBlocking;
  Future staged_;
  Future committed_;
};

struct RestoreOptions {
  // Not from steps that an evaluator has called unhealthy, be it that this could not be recorded. RestoreLatest first
  // waits for evaluations in flight, but no longer than evaluations_timeout, by which an evaluator may be stuck; which
  // ones have not come to their end is then told to on_warning, and what they have yet to say does not count.
  bool healthy_only = false;
  absl::Duration evaluations_timeout = absl::Minutes(5);

  // Restore only from steps that this returns true for. Null: any committed step. Called on the restoring thread, while
  // nothing may be deleted: it must not call Tidy, which would wait for it. What it throws comes out of the restore.
  std::function<bool(const StepInfo&)> accept;

  // Partial restore: only entries of the state whose names match one of these patterns, where '*' stands for any run of
  // characters and '?' for one; the others keep their values. Empty: all entries, and everything in the checkpoint must
  // be wanted, but for entries of companions. A pattern that matches nothing that is restored is kInvalidArgument. A
  // companion is restored if every one of its entries matches, else it keeps what it has.
  std::vector<std::string> only;

  // {name in the checkpoint, name in the state}, applied to names that are equal to the first or go on with a dot:
  // {"model.encoder", "model.backbone"} maps model.encoder.weight to model.backbone.weight. The first rule that fits
  // counts. One that fits no entry of the checkpoint is kInvalidArgument. An entry that is renamed takes the place of
  // one that had the name already, which is then unexpected: to load an average into the model,
  // {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}. A companion keeps its entries under their own names
  // unless the new ones are under its prefix too.
  std::vector<std::pair<std::string, std::string>> renames;

  bool allow_missing = false;     // entries of the state that the checkpoint lacks keep their values
  bool allow_unexpected = false;  // entries of the checkpoint that the state lacks are left out
};

struct RestoreReport {
  int64_t step = 0;
  StepInfo info;
  // Newer steps that were not taken, newest first, and why.
  std::vector<std::pair<int64_t, std::string>> passed_over;
  // Entries of the state that kept their values, and of the checkpoint that nobody wanted, those of companions that
  // were not restored included.
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  uint64_t bytes = 0;
};

// Owned by the trainer; its functions are called by one thread at a time (thread-compatible), except where they say
// otherwise.
class AsyncCheckpointer {
 public:
  // Opens or creates the store, takes its lock and brings manifest and shards into agreement: complete attempts without
  // a record are adopted, incomplete ones removed, records without files marked lost, a broken manifest rebuilt from
  // the shards.
  //
  // kInvalidArgument: an option out of its range (the message has the range). kFailedPrecondition: the directory holds
  // something that is not a store. kUnavailable: another process holds the store (the message names it); at once,
  // without waiting. kUnimplemented: written by a newer version. kPermissionDenied, kResourceExhausted: the directory
  // cannot be written.
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(CheckpointerOptions options);

  // Like Close, and what Close would return goes to on_warning; but where a Close has run out of time, nothing is
  // waited for again. What is then still running is left to itself, with the memory that it uses; functions of
  // evaluators, callbacks and a State that is being copied must therefore own what they touch, or return. Where only
  // evaluators are, the store is released first: that takes a few syncs, and is waited for ten seconds at most. What
  // waited with WhenLagging::kQueue and is saved gets no row, as after a kill; other snapshots that waited get one that
  // says that they were left out. Retention lets nothing go any more, for nobody knows what the missing rows would have
  // said.
  ~AsyncCheckpointer();

  // Whether the options ask for a save at this step. False if the step is being saved, or committed and not called
  // unhealthy; that is looked up in the manifest, and only where the options say yes.
  bool ShouldSave(int64_t step) const;

  // Saves `state` as `step` (>= 0). Blocks only as SaveOptions::staging says; the rest happens behind the training.
  // `state` must stay alive until it is staged.
  //
  // Errors, with nothing saved and, but for the last two, the store as it was: kAlreadyExists: the step is committed or
  // being saved, and not `overwrite`; a committed one that was called unhealthy only if this is not to be saved.
  // kInvalidArgument: the state (a name twice), the metadata (no JSON object), a metric's name or the step.
  // kResourceExhausted: the state is larger than staging_bytes_max, the system has no memory or no thread, or
  // WhenFull::kFail applied. kFailedPrecondition: after Close. kUnimplemented: a sparse or quantised tensor. kDataLoss,
  // kInternal: the manifest cannot be read. kInternal, kResourceExhausted: the state could not be copied; unless that
  // was found before anything was to be written, the step then has a record of the failure. Also the failure of an
  // earlier save, if nobody has looked at its future yet: it is then reported here, once, and the message says that
  // this step was not saved.
  absl::StatusOr<SaveHandle> Save(int64_t step, State& state, SaveOptions options = {});

  // Blocks until the last save is staged; its error if that failed.
  absl::Status WaitUntilStaged();

  // The same for one entry, for trainers that update a layer as soon as its gradient is there: blocks until the entry
  // of this name is staged. Parameters are copied in the order in which they were added, each followed by what the
  // optimizer keeps for it. kNotFound: the last save has no such entry.
  absl::Status WaitUntilStaged(std::string_view entry);

  // Takes the memory that a save of `state` needs, and touches it, so that the first save is as fast as the others. A
  // wish: where there is no memory, the save will say so. Errors: those of the state, as in Save.
  absl::Status Prepare(State& state);

  // Blocks until every save so far is committed or has failed; returns the first failure that nobody has looked at.
  absl::Status WaitUntilCommitted();

  // The `committed` of the step's save in flight, for who has no SaveHandle; one that is not to be saved is none.
  // Resolved at once if there is none: ok if the step is committed, kNotFound if not; kFailedPrecondition after Close.
  Future Committed(int64_t step) const;

  // The first failure of a background save that nobody has looked at, which then counts as looked at. Never blocks.
  // Thread-safe; may be called after Close.
  absl::Status CheckForErrors();

  // Fills `state` from the highest committed step, after waiting for saves in flight. A step that turns out damaged is
  // marked so, reported and passed over, and the next older one is taken; one that the device fails to read, twice, is
  // reported and passed over.
  //
  // kNotFound: nothing is committed, or nothing that options.accept wants. kInvalidArgument: the checkpoint does not
  // fit the state; the one message lists every missing, unexpected, reshaped and retyped entry, and nothing of the
  // state has been touched. kDataLoss: every candidate is damaged or lost, or the one that is not cannot fill what a
  // damaged one had begun to; tensors of the state may then hold parts of it, values never do. Other errors are the
  // state's own, or kResourceExhausted.
  absl::StatusOr<RestoreReport> RestoreLatest(State& state, const RestoreOptions& options = {});

  // The same from this step alone. One that is marked damaged or lost is examined anew, and the mark taken back if
  // every byte of it verifies. kNotFound: it is not committed. kDataLoss: it is damaged.
  absl::StatusOr<RestoreReport> Restore(int64_t step, State& state, const RestoreOptions& options = {});

  // The highest committed step. kNotFound: nothing is committed. Other errors here and below: kFailedPrecondition after
  // Close, else the manifest's own.
  absl::StatusOr<StepInfo> LatestStep() const;

  // The committed, healthy step at which the metric was best; of several the last. NaN and infinities never are. An
  // unhealthy step is one that an evaluation does not trust. kNotFound: no such step has the metric.
  absl::StatusOr<StepInfo> BestStep(std::string_view metric, BestMode mode) const;

  // All steps that the manifest knows, ascending by step; those that were deleted or only evaluated included.
  absl::StatusOr<std::vector<StepInfo>> Steps() const;

  // Calls `function` on threads of its own with every snapshot from the next save on, as the options say. Where
  // retention awaits this evaluator (RetentionOptions::keep_unevaluated_until), waits for saves in flight first and
  // then sees to committed steps that are due by the options and have no row of it, because an earlier process ended
  // too soon, or because they were saved before this call: those that are awaited are evaluated first, from the store,
  // with WhenLagging::kQueue, and otherwise get rows as skipped, so that retention goes on.
  //
  // kInvalidArgument: an option out of its range. kAlreadyExists: the name is taken. kResourceExhausted: no thread.
  // With such steps, the manifest's own.
  absl::Status AddEvaluator(EvaluatorOptions options, EvaluatorFunction function);

  // Has the companion take in every snapshot from the next save on; its entries are saved with it. A save is then not
  // written before it is staged as a whole. Waits for saves in flight. Restores fill the companion from the same step
  // as the state, or, with a warning, have it begin anew where that step has nothing of it; so add it before. What does
  // not fit it is kInvalidArgument, with nothing touched, and damage in its entries is damage of the step.
  // kInvalidArgument: a prefix with one of ".*?", a line end, or none. kAlreadyExists: the prefix is taken.
  absl::Status AddCompanion(std::shared_ptr<Companion> companion);

  // Records metrics of a step that was saved, at any time: as those of `evaluator`, they are known as
  // "evaluator/name" and replace what that evaluator said of the step before. Never blocks; resolves when they survive
  // power loss, which is after the step does. kNotFound: there is no such step, or its save failed. kInvalidArgument:
  // a name. kFailedPrecondition: after Close. Any other error is the disk's: the metrics may have reached it all the
  // same, and be recorded by the next start. Thread-safe.
  Future ReportMetrics(int64_t step, std::string evaluator, Metrics metrics);

  // A pinned step is never deleted by retention. Pin replaces the note and keeps tags; Unpin takes the tags, too.
  // kNotFound: it is not committed.
  // Thread-safe.
  absl::Status Pin(int64_t step, std::string note = "");
  absl::Status Unpin(int64_t step);

  // Blocks until the evaluators have come to the end of what they were given, and what they said is recorded. The first
  // error of recording it, which is tried again.
  absl::Status WaitUntilEvaluated();

  // Takes in reports of workers and requests, and applies retention now, not behind the training, and blocks until that
  // is done; the first error of any, which is tried again. kFailedPrecondition: after Close, or where it is called by
  // on_deleted, on_evaluated or RetentionOptions::keep. Thread-safe.
  absl::Status Tidy();

  // What retention would keep and delete now, and why: every committed step, ascending. Changes nothing. Thread-safe.
  absl::StatusOr<std::vector<RetentionDecision>> RetentionPlan() const;

  // Thread-safe.
  CheckpointerStatistics statistics() const;

  // Waits for the saves in flight and for the evaluators, then releases the store. Returns the first failure that
  // nobody has looked at; more of them go to on_warning. Idempotent. After it, calls are kFailedPrecondition and
  // ShouldSave is false. Without a deadline it waits for CheckpointerOptions::close_timeout. How long that is from
  // now is settled at once: a wall clock that is set meanwhile neither prolongs nor shortens the wait.
  //
  // kDeadlineExceeded names the saves and evaluators that were still running. Nothing has been dropped: they go on in
  // the background, the store stays locked, and Close may be called again. Where no save has failed, another error says
  // how many evaluations could not be recorded, because the disk refused them to the end; the store is released.
  absl::Status Close();
  absl::Status Close(absl::Time deadline);

 private:
  friend class PreemptionGuard;           // for the last save
  friend class CheckpointerOnFileSystem;  // for tests: the same on a file system that fails or forgets
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOn(storage::FileSystem& files,
                                                                   CheckpointerOptions options);
  AsyncCheckpointer();
  // Save. With a `last_chance`: whatever has failed before, without waiting for evaluators, and, whatever WhenFull
  // says, waiting until then for an earlier copy of the state and for room; an unhealthy step is replaced only as
  // PreemptionGuard::SaveAndClose says.
  absl::StatusOr<SaveHandle> SaveBy(const Deadline* last_chance, int64_t step, State& state,
                                    const SaveOptions& options);
  // Close, with a deadline of its own for saves and evaluators.
  absl::Status CloseBy(const Deadline& drained, const Deadline& released);
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with what goes on behind a Close that ran out of time
};

}  // namespace tidemark

#endif  // TIDEMARK_ASYNC_CHECKPOINTER_H_
