// ProgressLine: how far a verification has come, as one line that is rewritten on a terminal.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PROGRESS_LINE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PROGRESS_LINE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/console.h"

namespace tidemark::inspect {

// "step 1000: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left". Rate and time left once there is something to tell them
// from.
std::string ProgressText(int64_t step, uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed);

// Thread-compatible.
class ProgressLine {
 public:
  // `bytes_total`: of all steps that will be read.
  ProgressLine(Console& console, uint64_t bytes_total);
  // Removes the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(int64_t step, const VerifyProgress& progress);
  // A step of `bytes` has been read; removes the line, for its result comes next.
  void FinishStep(uint64_t bytes);

 private:
  Console& console_;
  const uint64_t bytes_total_;
  const absl::Time start_;
  uint64_t bytes_finished_ = 0;  // of the steps before the current one
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PROGRESS_LINE_H_
