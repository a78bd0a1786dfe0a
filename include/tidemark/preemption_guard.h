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
  // The end of the allotted time, where that is known beforehand: preempted() is true from `grace` before it on. A time
  // of the wall clock, as that is set whenever somebody asks.
  absl::Time end = absl::InfiniteFuture();
};

struct PreemptionReport {
  int64_t step = 0;
  absl::Status save;  // ok: the step is committed
  // ok: nothing was still running at the deadline, no earlier save had failed, and no evaluation is lost. Else the text
  // has all of it that nobody had looked at.
  absl::Status close;
  bool committed() const { return save.ok(); }
  // One line for a log: what was saved, and what was not.
  std::string Describe() const;
};

// Installed once in a process at a time. The handler only notes the signal; a second one of the same kind has the
// effect that it had before the guard was installed. Destruction restores the old handlers. Thread-safe.
class PreemptionGuard {
 public:
  // kFailedPrecondition: there is one already. kInvalidArgument: no such signal, one that cannot be caught, or a
  // negative grace. kResourceExhausted: no file descriptor.
  static absl::StatusOr<std::unique_ptr<PreemptionGuard>> Install(PreemptionOptions options);
  ~PreemptionGuard();

  // Cheap enough for every step: reads one variable and, with `end`, the clock.
  bool preempted() const;

  // When the process must be gone, as the wall clock is set now; infinite as long as it is not preempted. The grace
  // after a signal is measured by a clock that nobody sets.
  absl::Time deadline() const;

  // Saves the state as `step`, unless it is being saved or committed, waits until it is committed, and closes the
  // checkpointer, all by the deadline. How long that is is settled at once, and a wall clock that is set meanwhile does
  // not change it. Unless the options say otherwise the state is staged before that. A copy that an earlier, overlapped
  // save still makes of it is waited for in any case; where that has not come to its end in time, `save` is
  // kDeadlineExceeded, and the state must stay alive.
  //
  // A committed step that was called unhealthy stays too, with what was said of it, for evaluators may not come to
  // judge the same state again. It is saved anew where this checkpointer has, since it was committed, restored all of
  // this State from a healthy step before it, and nothing since: then the state is another one; and with
  // SaveOptions::overwrite, as any step is.
  //
  // An uninterrupted run does not make this save. The state of the resumed run is bit for bit that of an uninterrupted
  // one. An average is not, because it takes in this snapshot too: see `every_steps` in tidemark/average.h.
  //
  // It is the last chance, so failures of earlier saves that nobody has looked at do not keep this one from being made;
  // they are in `close`. It waits for no evaluator, however they lag. For room in the staging arena it waits as long as
  // earlier saves are being written, whatever WhenFull says: kResourceExhausted in `save` if there is none in time.
  // Where only evaluators are in the way, it takes memory beyond staging_bytes_max, for one state, without waiting.
  // Evaluators get what is left then, but for a second before the deadline, or a tenth of the grace if that is less, in
  // which the store is released; the checkpointer's destructor waits for them no more. What is still running at the
  // deadline goes on until the process ends, and `close` names it: the step may yet turn out to be committed.
  //
  // Called by the thread that uses the checkpointer. Without a deadline it waits for as long as it takes.
  PreemptionReport SaveAndClose(AsyncCheckpointer& checkpointer, int64_t step, State& state, SaveOptions options);

 private:
  PreemptionGuard(PreemptionOptions options, std::unique_ptr<TerminationSignal> asked);
  const PreemptionOptions options_;
  const std::unique_ptr<TerminationSignal> asked_;
};

}  // namespace tidemark

#endif  // TIDEMARK_PREEMPTION_GUARD_H_
