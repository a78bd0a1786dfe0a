#include "tools/checkpoint_inspect/progress_line.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {

std::string ProgressText(std::string_view what, uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed) {
  const double fraction = bytes_total == 0 ? 1 : static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  std::string text =
      fmt::format("{}: {} of {} ({:.0f}%)", what, HumanBytes(bytes_done), HumanBytes(bytes_total), 100 * fraction);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (bytes_done == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(bytes_done) / seconds;
  const absl::Duration left = absl::Seconds(static_cast<double>(bytes_total - bytes_done) / rate);
  return text + fmt::format(", {}/s, {} left", HumanBytes(static_cast<uint64_t>(rate)), Age(left));
}

ProgressLine::ProgressLine(Console& console, uint64_t bytes_total)
    : console_(console), bytes_total_(bytes_total), start_(absl::Now()) {}

ProgressLine::~ProgressLine() { console_.ShowProgress(""); }

void ProgressLine::Update(std::string_view what, uint64_t bytes_done) {
  if (!console_.progress()) return;
  const absl::Time now = absl::Now();
  if (now - shown_ < absl::Seconds(1) / kUpdatesPerSecondMax) return;
  shown_ = now;
  const uint64_t done = bytes_finished_ + bytes_done;
  console_.ShowProgress(ProgressText(what, done, std::max(done, bytes_total_), now - start_));
}

void ProgressLine::FinishPart(uint64_t bytes) {
  bytes_finished_ += bytes;
  console_.ShowProgress("");
}

}  // namespace tidemark::inspect
