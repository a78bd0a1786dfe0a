// Companion: a state that is computed from the snapshots of another state, such as an average of its weights
// (tidemark/average.h). Its entries are written into the same step as the snapshot, under a prefix of their own, and
// are restored with it.

#ifndef TIDEMARK_COMPANION_H_
#define TIDEMARK_COMPANION_H_

#include <string>

#include "absl/status/status.h"
#include "tidemark/snapshot.h"
#include "tidemark/state.h"

namespace tidemark {

// Called by one thread at a time: Update on the persister's thread; state() there, and during a restore on the
// trainer's thread. The trainer may call them while no save is in flight (WaitUntilCommitted), and after Close.
class Companion {
 public:
  virtual ~Companion() = default;

  // "ema": every entry of state() is named "ema." and more. Constant; unique in a checkpointer; 1 to 256 bytes without
  // '.', '*', '?' and line ends.
  virtual const std::string& prefix() const = 0;

  // Takes in a snapshot. Called with every snapshot, in order, also with those that are only evaluated. Afterwards
  // state() belongs to the snapshot's step. An error or exception fails that save; it is a warning if the
  // snapshot was only to be evaluated. Called before the step is written: if a save fails and is repeated, the same
  // step arrives again.
  virtual absl::Status Update(const Snapshot& snapshot) = 0;

  // Its entries, all in host memory, unchanged until the next Update. A restore calls PrepareRestore with the
  // checkpoint's entries under the prefix, or Reset if there are none.
  virtual State& state() = 0;

  // Forgets every snapshot. Called when a step without entries of this companion was restored.
  virtual void Reset() = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_COMPANION_H_
