// CheckpointObserver: is told what happens behind the training, for a log, a dashboard or a trainer that reacts.
//
//   class Log final : public tidemark::CheckpointObserver {
//     void Committed(const tidemark::StepInfo& info) override { std::printf("step %ld is committed\n", info.step); }
//     void Warning(std::string_view line) override { std::puts(std::string(line).c_str()); }
//   };
//   auto checkpointer = tidemark::AsyncCheckpointer::Open(
//       {.directory = "run/ckpt", .observer = std::make_shared<Log>()});

#ifndef TIDEMARK_CHECKPOINT_OBSERVER_H_
#define TIDEMARK_CHECKPOINT_OBSERVER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Override the functions that you need. A checkpointer calls them as follows; for others see WorkerOptions::observer
// and BestFileOptions::observer.
//
// Thread: background threads, several at once, with no lock held. At the end of Evaluate's work also the trainer's
// thread, in Save or Close. A function must be quick, and call only the checkpointer's thread-safe functions. Deleted
// and Evaluated must not call Tidy, which would wait for them.
//
// Exceptions are caught. A warning names the function. If Warning throws, its line goes to standard error.
//
// Ownership is shared. If threads still run after a Close that ran out of time, they keep the observer, and the last of
// them may destroy it. A forked child neither calls nor destroys it.
class CheckpointObserver {
 public:
  CheckpointObserver() = default;
  CheckpointObserver(const CheckpointObserver&) = delete;
  CheckpointObserver& operator=(const CheckpointObserver&) = delete;
  virtual ~CheckpointObserver();

  // A step was committed.
  virtual void Committed(const StepInfo& /*info*/) {}

  // A save or an Evaluate failed. Its future has the same status.
  virtual void Failed(int64_t /*step*/, const absl::Status& /*status*/) {}

  // A step was deleted, by retention or on request, for this reason.
  virtual void Deleted(int64_t /*step*/, std::string_view /*reason*/) {}

  // An evaluation of the step was recorded, or was skipped. What a worker appends while no checkpointer is open is not
  // told; the steps' records have it.
  virtual void Evaluated(int64_t /*step*/, const Evaluation& /*evaluation*/) {}

  // A BestFile has exported the step to the file.
  virtual void Exported(int64_t /*step*/, std::string_view /*path*/) {}

  // A save or an Evaluate ended. The line has the step, the time that the trainer was blocked, the time of the rest,
  // the sizes, and anything that was skipped, with the reason. Also soon after Open: a save that the end of an earlier
  // process cut short was removed. Also in Open, on the trainer's thread: a store of the first format was converted.
  virtual void SaveLine(std::string_view /*line*/) {}

  // An event that a person should know of and that no Status carries: a damaged step that was passed over, a record
  // without files. Prints the line to standard error, unless it is overridden.
  virtual void Warning(std::string_view line);
};

}  // namespace tidemark

#endif  // TIDEMARK_CHECKPOINT_OBSERVER_H_
