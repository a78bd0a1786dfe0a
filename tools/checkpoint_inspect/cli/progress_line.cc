#include "tools/checkpoint_inspect/cli/progress_line.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Of what is worked on: less of it tells nothing, unless that is all.
constexpr size_t kWhatColumnsMin = 12;

// ", 512.0 MiB/s, 6 s left"; "" where there is nothing to tell it from.
std::string PaceText(uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (bytes_done == 0 || seconds <= 0) return "";
  const double rate = static_cast<double>(bytes_done) / seconds;
  const absl::Duration left = absl::Seconds(static_cast<double>(bytes_total - bytes_done) / rate);
  return fmt::format(", {}/s, {} left", HumanBytes(static_cast<uint64_t>(rate)), Age(left));
}

}  // namespace

std::string ProgressText(std::string_view what, uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed,
                         size_t columns_max) {
  const double fraction = bytes_total == 0 ? 1 : static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  const std::string percent = fmt::format("{:.0f}%", 100 * fraction);
  const std::string pace = PaceText(bytes_done, bytes_total, elapsed);
  const std::string figures = percent + pace;
  const size_t what_columns_min = std::min(DisplayWidth(what), kWhatColumnsMin);
  for (const std::string& rest :
       {fmt::format(": {} of {} ({}){}", HumanBytes(bytes_done), HumanBytes(bytes_total), percent, pace),
        ": " + figures}) {
    const size_t columns = DisplayWidth(rest);
    if (columns + what_columns_min <= columns_max) return Shorten(what, columns_max - columns) + rest;
  }
  return figures;
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
  const uint64_t total = std::max(done, bytes_total_);
  console_.ShowProgress(ProgressText(what, done, total, now - start_, console_.ProgressColumns()));
}

void ProgressLine::FinishPart(uint64_t bytes) {
  bytes_finished_ += bytes;
  console_.ShowProgress("");
}

}  // namespace tidemark::inspect
