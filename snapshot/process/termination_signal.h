// TerminationSignal: SIGTERM and its like as something that can be asked and waited for.

#ifndef TIDEMARK_SNAPSHOT_PROCESS_TERMINATION_SIGNAL_H_
#define TIDEMARK_SNAPSHOT_PROCESS_TERMINATION_SIGNAL_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tidemark {

// Installs handlers that only note the first signal of each kind; a second one has the effect that it had before. So
// has every one in a child that was forked meanwhile. Any number of these may note the same signal: the first installs
// the handler, the last puts back what was there, unless somebody has installed another one since. Thread-safe.
class TerminationSignal {
 public:
  // kInvalidArgument: a number that is no signal's, or one that cannot be caught. kResourceExhausted: no descriptor.
  static absl::StatusOr<std::unique_ptr<TerminationSignal>> Install(std::vector<int> signals);
  ~TerminationSignal();

  // Whether any of the signals has come. Reads a few variables.
  bool received() const;

  // When the first of them came, as the wall clock is set now: so long ago, whatever was done to that clock meanwhile.
  std::optional<absl::Time> received_at() const;

  // Blocks until one of them has come, or for so long; then whether one has. Wakes at once.
  bool WaitFor(absl::Duration duration) const;

 private:
  explicit TerminationSignal(std::vector<int> signals);
  const std::vector<int> signals_;  // those whose handlers are installed; each once
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PROCESS_TERMINATION_SIGNAL_H_
