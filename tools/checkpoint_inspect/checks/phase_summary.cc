#include "tools/checkpoint_inspect/checks/phase_summary.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tidemark::inspect {

double PhaseSummary::ShareOf(absl::Duration whole) const {
  if (whole <= absl::ZeroDuration() || lanes == 0) return 0;
  return absl::FDivDuration(busy, whole) / static_cast<double>(lanes);
}

double PhaseSummary::Rate() const {
  const double seconds = absl::ToDoubleSeconds(extent());
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

std::vector<PhaseSummary> SummarisePhases(std::span<const SavePhase> phases) {
  std::vector<PhaseSummary> summaries;
  std::set<std::pair<std::string, std::string>> seen;
  for (const SavePhase& phase : phases) {
    auto summary = std::find_if(summaries.begin(), summaries.end(),
                                [&](const PhaseSummary& other) { return other.name == phase.name; });
    if (summary == summaries.end()) {
      summary = summaries.insert(summary, {.name = phase.name, .begin = phase.begin, .end = {}, .busy = {}});
    }
    if (seen.emplace(phase.name, phase.lane).second) ++summary->lanes;
    if (phase.lane == "trainer") summary->holds_trainer = true;
    summary->begin = std::min(summary->begin, phase.begin);
    summary->end = std::max(summary->end, phase.begin + phase.duration);
    summary->busy += phase.busy;
    summary->bytes += phase.bytes;
  }
  std::stable_sort(summaries.begin(), summaries.end(),
                   [](const PhaseSummary& a, const PhaseSummary& b) { return a.begin < b.begin; });
  return summaries;
}

absl::Duration WholeSave(std::span<const SavePhase> phases) {
  absl::Duration whole;
  for (const SavePhase& phase : phases) whole = std::max(whole, phase.begin + phase.duration);
  return whole;
}

}  // namespace tidemark::inspect
