// One save or evaluation: the options and results of AsyncCheckpointer::Save and Evaluate.

#ifndef TIDEMARK_SAVE_HANDLE_H_
#define TIDEMARK_SAVE_HANDLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tidemark/checkpointer_options.h"
#include "tidemark/future.h"
#include "tidemark/step_info.h"

namespace tidemark {

struct SaveOptions {
  // Recorded with the step. Names are UTF-8 of 1 to 4096 bytes. NaN and infinities are kept, and are never best.
  Metrics metrics = {};
  // A JSON object, kept with the step and shown by checkpoint-inspect. At most 16 MiB. Objects with more than 8,192
  // keys or 32,768 values, or nested deeper than 256, are kept too, but the tool's JSON and its exports lack them.
  std::string user_metadata = "{}";
  // Replaces the step if it is committed, or being saved. The old attempt stays until the new one is committed. A
  // committed step that an evaluator has called unhealthy is replaced without this too, in the same way.
  bool overwrite = false;
  // Instead of CheckpointerOptions::staging.
  std::optional<Staging> staging = {};
  // Asked some twenty times a second, on the thread that calls Save, while that waits for an evaluator
  // (WhenLagging::kBlock) or for staging memory: true ends it with kCancelled, and nothing was saved. For signals that
  // only this thread can handle. The last save of a PreemptionGuard does not ask. May be null.
  std::function<bool()> cancelled = {};
};

// As in SaveOptions.
struct EvaluateOptions {
  Metrics metrics = {};
  std::string user_metadata = "{}";
  std::optional<Staging> staging = {};
  std::function<bool()> cancelled = {};  // no evaluator gets the state then
};

// One call of Save or Evaluate. Cheap to copy; thread-safe; dropping it cancels nothing.
class SaveHandle {
 public:
  int64_t step() const { return step_; }

  // True if WhenFull::kSkip applied: nothing was saved, and both futures are kResourceExhausted.
  bool skipped() const { return skipped_; }

  // As the options say, or kBlocking if Staging::kOnDevice found no room on the device.
  Staging staging() const { return staging_; }

  // Resolves when the trainer may change its tensors.
  const Future& staged() const { return staged_; }

  // Resolves when the step would survive power loss, or with the reason why it never will. The save has released the
  // snapshot's memory by then; evaluators may hold it for longer.
  //   kUnknown: a sync failed, so the step may or may not be committed. The next change of the store, or the next
  //     opening, finds out. What evaluators say of the step counts if it turns out committed.
  //
  // Of Evaluate: resolves when every evaluator has ended.
  //
  // A callback runs on a background thread, or at once if the result is there. A callback of Evaluate may also run on
  // the trainer's thread, in a later Save, Evaluate or Close.
  const Future& committed() const { return committed_; }

  // The first failure of an earlier save that was not read when this one began; ok: there was none. It does not concern
  // this save. Until it is read here, or from its own save's future, CheckForErrors and Close return it too.
  absl::Status earlier_failure() const { return earlier_.Wait(); }

 private:
  friend class AsyncCheckpointer;
  int64_t step_ = 0;
  bool skipped_ = false;
  Staging staging_ = Staging::kBlocking;
  Future staged_;
  Future committed_;
  Future earlier_;  // `committed` of the save that failed
};

}  // namespace tidemark

#endif  // TIDEMARK_SAVE_HANDLE_H_
