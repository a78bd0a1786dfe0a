// Stopwatch: how long something took, and waits that last so long, by a clock that nobody sets.

#ifndef TIDEMARK_SNAPSHOT_STOPWATCH_H_
#define TIDEMARK_SNAPSHOT_STOPWATCH_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidemark {

// Runs from its construction on. Immutable.
class Stopwatch {
 public:
  absl::Duration elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - begin_); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Waits by `wait_until`, which returns whether what it waits for is there, and false at a time of the wall clock. Where
// that clock was set forward meanwhile the time has come too early, and it is called again. False: not after `timeout`.
// It is called once at least.
template <typename WaitUntil>
bool WaitFor(absl::Duration timeout, const WaitUntil& wait_until) {
  const Stopwatch waiting;
  for (;;) {
    const absl::Duration left = timeout - waiting.elapsed();
    if (wait_until(absl::Now() + left)) return true;
    if (waiting.elapsed() >= timeout) return false;
  }
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STOPWATCH_H_
