// Stopwatch: how long something took, by a clock that nobody sets.

#ifndef TIDEMARK_SNAPSHOT_STOPWATCH_H_
#define TIDEMARK_SNAPSHOT_STOPWATCH_H_

#include <chrono>

#include "absl/time/time.h"

namespace tidemark {

// Runs from its construction on. Immutable.
class Stopwatch {
 public:
  absl::Duration elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - begin_); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STOPWATCH_H_
