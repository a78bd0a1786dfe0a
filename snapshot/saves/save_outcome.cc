#include "snapshot/saves/save_outcome.h"

#include <array>
#include <string_view>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tidemark {
namespace {

std::string Bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

// "blocked 12.3 ms (room 0.1, copy 12.1)"
std::string Blocked(const HeldTimes& held) {
  std::string parts;
  const auto add = [&](std::string_view name, absl::Duration took) {
    if (took <= absl::ZeroDuration()) return;
    parts += fmt::format("{}{} {:.1f}", parts.empty() ? "" : ", ", name, absl::ToDoubleMilliseconds(took));
  };
  add("consumers", held.consumers);
  add("room", held.room);
  add("copy", held.copy);
  return fmt::format("blocked {:.1f} ms{}", absl::ToDoubleMilliseconds(held.total),
                     parts.empty() ? "" : fmt::format(" ({})", parts));
}

std::string Sizes(const StepInfo& info) {
  std::string sizes = fmt::format("{} -> {}", Bytes(info.logical_bytes), Bytes(info.stored_bytes));
  if (info.logical_bytes > 0) {
    sizes += fmt::format(" ({:.2f})", static_cast<double>(info.stored_bytes) / static_cast<double>(info.logical_bytes));
  }
  if (info.reused_bytes > 0) sizes += fmt::format(", {} reused", Bytes(info.reused_bytes));
  return sizes;
}

}  // namespace

std::string SaveLine(const SaveOutcome& outcome) {
  std::string line;
  const double behind = absl::ToDoubleSeconds(outcome.behind);
  if (!outcome.status.ok()) {
    line = fmt::format("step {} failed: {}, behind {:.2f} s; {}", outcome.step, Blocked(outcome.held), behind,
                       std::string(outcome.status.message()));
  } else if (!outcome.persist) {
    line = fmt::format("step {} not saved, only evaluated: {}, behind {:.2f} s", outcome.step, Blocked(outcome.held),
                       behind);
  } else {
    line = fmt::format("step {} committed: {}, behind {:.2f} s (write {:.2f}, commit {:.2f}), {}", outcome.step,
                       Blocked(outcome.held), behind, absl::ToDoubleSeconds(outcome.write),
                       absl::ToDoubleSeconds(outcome.commit), Sizes(outcome.info));
  }
  if (!outcome.notes.empty()) line += fmt::format("; {}", fmt::join(outcome.notes, "; "));
  return line;
}

std::string SkippedSaveLine(int64_t step, absl::Duration blocked, const std::string& why) {
  return fmt::format("step {} skipped: blocked {:.1f} ms; {}", step, absl::ToDoubleMilliseconds(blocked), why);
}

}  // namespace tidemark
