// PreemptionGuard: turns SIGTERM, or the end of an allotted time, into one last save.
//
//   auto guard = tidemark::PreemptionGuard::Install({.grace = absl::Seconds(25)});
//   if (!guard.ok()) return guard.status();
//   for (int64_t step = first; step < steps; ++step) {
//     ...
//     if ((*guard)->preempted()) {
//       tidemark::PreemptionReport last = (*guard)->SaveAndClose(checkpointer, step, state, {});
//       return last.save;
//     }
//   }

#ifndef TIDEMARK_PREEMPTION_GUARD_H_
#define TIDEMARK_PREEMPTION_GUARD_H_

#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

class TerminationSignal;

struct PreemptionOptions {
  std::vector<int> signals = {SIGTERM};
  // From the signal to the moment by which the process must be gone.
  absl::Duration grace = absl::Seconds(30);
  // The end of the allotted time, if it is known beforehand: preempted() is true from `grace` before it on. A time of
  // the wall clock. If that clock is set, preempted() and deadline() follow it.
  absl::Time end = absl::InfiniteFuture();
};

struct PreemptionReport {
  int64_t step = 0;
  absl::Status save;  // ok: the step is committed
  // ok: at the deadline nothing was running, no failure of an earlier save was unread, and no evaluation is lost. Else
  // the message has all of that.
  absl::Status close;
  bool committed() const { return save.ok(); }
  // One line for a log: what was saved, and what was not.
  std::string Describe() const;
};

// A process can have one at a time that listens to signals. The handler only notes the signal. A second signal of the
// same kind has the effect that it had before the guard was installed. The destructor restores the old handlers.
// Thread-safe.
class PreemptionGuard {
 public:
  // kFailedPrecondition: there is one already. kInvalidArgument: no such signal, one that cannot be caught, or a
  // negative grace. kResourceExhausted: no file descriptor.
  static absl::StatusOr<std::unique_ptr<PreemptionGuard>> Install(PreemptionOptions options);
  ~PreemptionGuard();

  // Cheap enough for every step: reads one variable and, with `end`, the clock.
  bool preempted() const;

  // Of a job of several ranks (tidemark/ranks.h): whether any rank is preempted. All ranks call it after the same
  // steps, on the thread that uses the checkpointer, and get the same answer. From the first yes on it is theirs:
  // preempted() is true, and deadline() is at most that of the rank that had the least time left. So all of them can
  // save the same step.
  //
  // Each call calls RankOptions::all_gather until there is a yes. A job with short steps may ask after every tenth.
  // If that fails, there is a warning, and each rank goes by its own signals. In a job of one process, and after Close,
  // it is preempted().
  bool PreemptedOnAnyRank(AsyncCheckpointer& checkpointer);

  // When the process must be gone, by the wall clock as it is set now. Infinite while it is not preempted. The grace
  // after a signal is measured by the monotonic clock.
  absl::Time deadline() const;

  // Saves the state as `step`, waits until it is committed, and closes the checkpointer, all by deadline(). That is
  // read once: a wall clock that is set meanwhile changes nothing. Without a deadline it waits for as long as it takes.
  // Called by the thread that uses the checkpointer.
  //
  // A step that is being saved, or is committed, is not saved again. The save is a blocking one, unless the options
  // say otherwise. If an earlier overlapped save is still copying the state, this call waits for the copy. If the copy
  // is not finished in time, `save` is kDeadlineExceeded, and the state must stay alive.
  //
  // A committed step that an evaluator called unhealthy stays too, with the verdict, because evaluators may not judge
  // the same state again. It is saved anew in two cases:
  //   - SaveOptions::overwrite is set.
  //   - Since the commit this checkpointer has restored all of this State from a healthy step before it, and has
  //     restored nothing since. The state is then another one.
  //
  // An uninterrupted run does not make this save. The state of the resumed run is bit for bit that of an uninterrupted
  // one. An average is not, because it takes in this snapshot too: see `every_steps` in tidemark/average.h.
  //
  // Failures of earlier saves that are still unread do not prevent this save; `close` has them. Whatever WhenFull says,
  // the save waits for room in the staging arena while earlier saves are being written. If there is no room in time,
  // `save` is kResourceExhausted. If only evaluators hold the memory, the save takes memory for one more state beyond
  // staging_bytes_max, and does not wait for them.
  //
  // Evaluators get the time that is left after the save, up to a second before the deadline, or a tenth of the grace
  // if that is less. Then the store is released. The checkpointer's destructor does not wait for evaluators again. What
  // still runs at the deadline goes on until the process ends, and `close` names it. The step may then be committed all
  // the same.
  //
  // In a job of several ranks all of them call it with the same step. Whatever RankOptions::vote_timeout is, rank 0
  // gives up a rank that does not vote in four fifths of the time, also in a save that is still going on: `save` is
  // kAborted then, and names it.
  PreemptionReport SaveAndClose(AsyncCheckpointer& checkpointer, int64_t step, State& state, SaveOptions options);

 private:
  PreemptionGuard(PreemptionOptions options, std::unique_ptr<TerminationSignal> asked);
  const PreemptionOptions options_;
  const std::unique_ptr<TerminationSignal> asked_;
  std::atomic<int64_t> end_of_job_ns_;  // by the monotonic clock, where ranks have agreed on it; else the maximum
};

}  // namespace tidemark

#endif  // TIDEMARK_PREEMPTION_GUARD_H_
