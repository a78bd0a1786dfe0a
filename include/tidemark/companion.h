// Companion: something that is computed from the snapshots of a state and goes with it, such as an average of its
// weights (tidemark/average.h). Its entries are written into the same step as the snapshot that they come from, under
// a prefix of their own, and are restored with it.

#ifndef TIDEMARK_COMPANION_H_
#define TIDEMARK_COMPANION_H_

#include <string>

#include "absl/status/status.h"
#include "tidemark/snapshot.h"
#include "tidemark/state.h"

namespace tidemark {

// Its functions are called by one thread at a time: Update on the persister's thread, state() there and during a
// restore on the trainer's. The trainer may call them itself while no save is in flight (WaitUntilCommitted), and after
// Close.
class Companion {
 public:
  virtual ~Companion() = default;

  // "ema": every entry of state() is named "ema." and more. Constant; unique in a checkpointer; 1 to 256 bytes without
  // '.', '*', '?' and line ends.
  virtual const std::string& prefix() const = 0;

  // Takes in a snapshot: each one, in order, also those that are not to be saved. Afterwards state() belongs to the
  // snapshot's step. An error, or whatever it throws, fails that save, and goes to on_warning if there was nothing to
  // save. It comes before the step is written: if that fails and the save is repeated, the same step comes once more.
  virtual absl::Status Update(const Snapshot& snapshot) = 0;

  // Its entries, all of them in host memory, where they stay as they are until the next Update. A restore calls
  // PrepareRestore with what the checkpoint holds under the prefix, and where that is nothing, Reset.
  virtual State& state() = 0;

  // Forgets every snapshot: a step without entries of this companion was restored.
  virtual void Reset() = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_COMPANION_H_
