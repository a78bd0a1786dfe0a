// SaveOutcome: what became of one save and how long each part of it took, for the log, the statistics and callbacks.

#ifndef TIDEMARK_SNAPSHOT_SAVES_SAVE_OUTCOME_H_
#define TIDEMARK_SNAPSHOT_SAVES_SAVE_OUTCOME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark {

// How long Save held the trainer: in all, and with what.
struct HeldTimes {
  absl::Duration total;
  absl::Duration consumers;  // until evaluators that block had room
  absl::Duration room;       // for staging memory
  absl::Duration copy;       // all that came after
};

struct SaveOutcome {
  int64_t save = 0;  // PendingSave::number
  int64_t step = 0;
  bool persist = true;  // see SaveRequest
  absl::Status status;  // of one that was not to be saved: whether it could be evaluated
  HeldTimes held;
  absl::Duration behind;  // from the copy's end, or from Save's return if that was earlier, until its fate was known
  absl::Duration write;   // compressing and writing, until synced, of the last attempt
  absl::Duration commit;
  StepInfo info;                   // as committed; else only the step, and after kUnknown of the commit the attempt
  std::vector<std::string> notes;  // what was left out on the way: "validation skipped: lagging"
};

// One line for a log:
//   step 1200 committed: blocked 12.3 ms (copy 12.1), behind 0.84 s (write 0.82, commit 0.02), 2.00 GiB -> 1.33 GiB
//   (0.67), 0.40 GiB reused; validation skipped: lagging
// without the line break.
std::string SaveLine(const SaveOutcome& outcome);

// The same for one that WhenFull kept from being tried.
std::string SkippedSaveLine(int64_t step, absl::Duration blocked, const std::string& why);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_SAVE_OUTCOME_H_
