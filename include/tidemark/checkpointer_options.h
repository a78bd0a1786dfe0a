// CheckpointerOptions: the options of AsyncCheckpointer::Open. Only `directory` has no default.

#ifndef TIDEMARK_CHECKPOINTER_OPTIONS_H_
#define TIDEMARK_CHECKPOINTER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/checkpoint_observer.h"
#include "tidemark/ranks.h"
#include "tidemark/retention.h"
#include "tidemark/tuning.h"

namespace tidemark {

// When Save returns.
enum class Staging {
  // When the state is staged.
  kBlocking,
  // At once. Values, generators and buffers of modules have been copied by then, because the next forward pass changes
  // them. Parameters and optimizer state must not change before WaitUntilStaged has returned: call it before
  // optimizer.step(). If a trainer forgets that, a step may mix the tensors of two steps, and
  // Tuning::check_overlapped_saves tells so. The State and its tensors must stay alive until then, or until Close has
  // returned anything but kDeadlineExceeded.
  kOverlapped,
  // When tensors on devices have been copied to other memory of the same device, and everything else is staged. The
  // trainer may then change its tensors, and the State need not outlive Save. The copies go to the host behind the next
  // steps. If a device has no room for them (Tuning::device_staging_bytes_max, or its own memory), the save is as with
  // kBlocking. SaveHandle::staging() and the step's properties say which mode was used.
  kOnDevice,
};

// The policy of Save when the staging arena has no room because earlier snapshots are still in use.
enum class WhenFull {
  kBlock,  // waits for room
  kSkip,   // saves nothing; SaveHandle::skipped() is true
  kFail,   // returns kResourceExhausted
};

// How chunks are stored: floating point as byte planes with zstd, everything else with zstd. A chunk that does not
// shrink is stored as it is.
enum class Compression {
  // Compresses everything in the first half of the time to the next save, and then, or once the trainer waits for the
  // commit, as kThroughput does. For that time the shortest of the last three is taken; so the first save is as with
  // kThroughput.
  kAuto,
  kThroughput,  // compresses only in the time in which the disk is busy anyway: never slower than kNone
  kSpace,       // compresses everything
  kNone,        // compresses nothing
};

// The argument of CheckpointerOptions::save_when, which ShouldSave calls.
struct SaveQuestion {
  int64_t step = 0;
  // The step of the last Save in this process; before the first Save, the highest step that was committed at Open.
  // nullopt: there is neither.
  std::optional<int64_t> last_saved = {};
  absl::Duration since_last = absl::ZeroDuration();  // since the last Save, or Open, by the wall clock
  bool in_flight = false;                            // a save is not committed yet
};

struct CheckpointerOptions {
  // The store: a directory. Open creates it, with its parents, if it does not exist and `create` is set. One process at
  // a time may hold it open for writing. Open resolves a relative path once. While the store is open, its directory
  // must not be moved or replaced: every call that writes is then kFailedPrecondition, "the store ... was moved or
  // replaced".
  //
  // The path to the store may go through symbolic links. Within a store every link is refused. Files have mode 0600 and
  // folders 0700. Therefore every process that writes to the store runs as the same user: the trainer, workers that
  // report, and checkpoint-inspect. An ACL opens the existing files to readers of another user. A default ACL has no
  // effect, since these modes mask it.
  std::string directory = {};
  // False: without a store Open is kNotFound and makes none, so that a mistyped path does not start a fresh run.
  bool create = true;

  // For a job of several processes that save common steps: tidemark/ranks.h. Every process opens the same directory.
  RankOptions ranks = {};

  // ShouldSave returns true if any of these rules says so. Without a rule: at every step.
  int64_t save_interval_steps = 0;          // at steps divisible by it; 0: no such rule
  std::vector<int64_t> save_on_steps = {};  // at these steps
  double save_interval_seconds = 0;  // at the first step this many seconds after the last save, or Open; 0: no rule
  // At steps for which this returns true: for schedules that the other rules cannot express. Called on the trainer's
  // thread. If it throws, the step is to be saved, and a warning has the message. Null: no such rule.
  std::function<bool(const SaveQuestion&)> save_when = {};

  // Bytes of host memory that snapshots may hold. 0: twice the size of the largest state saved, plus one state for
  // each snapshot that evaluators may hold (EvaluatorOptions::max_pending). One step can then be staged while the last
  // one is still being written.
  //
  // Memory is taken when it is first needed, and kept. If a device's driver locks the memory, LibTorch's allocators
  // round up to powers of two and may take twice as much. The last save of a PreemptionGuard takes one state more if
  // only evaluators hold the memory that it needs.
  //
  // No more is taken than the machine, and the process's memory cgroup, have available. If one state fits and two do
  // not, `when_full` applies until the save before is written, with one warning. A state that does not fit at all is
  // kResourceExhausted.
  uint64_t staging_bytes_max = 0;
  WhenFull when_full = WhenFull::kBlock;
  Staging staging = Staging::kBlocking;

  Compression compression = Compression::kAuto;
  // Does not write a chunk again if it is the same as in the last committed step. The new step then refers to the old
  // step's file, which stays as long as either step does. Damage of that file damages both steps. After damage was
  // seen, the next save writes everything. Off: every step stands on its own.
  //
  // Two things are bounded:
  // - Bytes: the files that a step needs have together at most twice the bytes of a whole step, and 256 KiB. To keep
  //   that bound, a save writes chunks again if they lie in files that hold few needed bytes. A save that changes much
  //   more than the one before may need up to three times the bytes of a whole step, and 256 KiB, until the next save.
  // - Risk: a rotten bit is in the steps of at most Tuning::reuse_saves_max saves. It is in fewer if the scrub finds it
  //   before (Tuning::scrub_bytes_per_second_max).
  //
  // With ranks, each one compares with its last shard that refers to no other file; the first save writes everything.
  bool reuse = true;

  // Which steps stay. Retention deletes the others behind the training.
  RetentionOptions retention = {};

  // How long a save may take, from the call of Save to the commit. After that its `committed` is kDeadlineExceeded, a
  // warning names the step, and the save is abandoned: before the next chunk is written, or before the commit. The next
  // save works as soon as the disk does; until then the snapshot keeps its memory. A Save that finds no room in time
  // returns kDeadlineExceeded. If the commit itself was standing still, the step may be committed later all the same.
  // Evaluate and the last save of a PreemptionGuard have no such limit. More than 0; infinite: no limit.
  absl::Duration save_timeout = absl::InfiniteDuration();
  // How long Close() and the destructor wait for saves and evaluators. More than 0.
  absl::Duration close_timeout = absl::Minutes(30);

  // A file for the statistics in the text format of Prometheus, for its node exporter's text file collector. It is
  // replaced as a whole after each save, and every few seconds while something changes. Its mode is 0644, less the
  // umask, so that other users can read it. Open resolves a relative path once. Empty: none.
  std::string metrics_file = {};

  // Threads, chunks, depths and rates; tidemark/tuning.h.
  Tuning tuning = {};

  // Is told of commits, failures, deletions, evaluations and warnings. Null: warnings go to standard error.
  std::shared_ptr<CheckpointObserver> observer = {};
};

}  // namespace tidemark

#endif  // TIDEMARK_CHECKPOINTER_OPTIONS_H_
