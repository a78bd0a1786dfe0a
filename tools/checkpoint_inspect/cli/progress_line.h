// ProgressLine: how far long work has come, as one line that is rewritten on a terminal.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_PROGRESS_LINE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_PROGRESS_LINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tools/checkpoint_inspect/cli/console.h"

namespace tidemark::inspect {

// "step 1000: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left". Rate and time left once there is something to tell them
// from. `what` is escaped text, and cut off where all of it would be wider than `columns_max`. Where hardly any of it
// would stay, the bytes go first: "step 1000: 25%, 512.0 MiB/s, 6 s left", and then `what` altogether; these figures
// stay, however wide they are.
std::string ProgressText(std::string_view what, uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed,
                         size_t columns_max);

// Thread-compatible.
class ProgressLine {
 public:
  static constexpr int kUpdatesPerSecondMax = 10;
  // Of a tensor's name, where `what` is one.
  static constexpr size_t kNameColumnsMax = 40;

  // `bytes_total`: of all that will be read.
  ProgressLine(Console& console, uint64_t bytes_total);
  // Removes the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Of the part that is being read now, `what` in escaped text, so many bytes have been. Shown kUpdatesPerSecondMax
  // times at most, so that whoever has news of every small piece may bring them.
  void Update(std::string_view what, uint64_t bytes_done);
  // A part of `bytes` has been read; removes the line, for its result comes next.
  void FinishPart(uint64_t bytes);

 private:
  Console& console_;
  const uint64_t bytes_total_;
  const absl::Time start_;
  absl::Time shown_ = absl::InfinitePast();
  uint64_t bytes_finished_ = 0;  // of the parts before the current one
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_PROGRESS_LINE_H_
