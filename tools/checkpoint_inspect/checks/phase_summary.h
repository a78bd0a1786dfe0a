// What the phases of a save come to: one row for each, whatever number of threads and pieces it had. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PHASE_SUMMARY_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PHASE_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

struct PhaseSummary {
  std::string name;
  size_t lanes = 0;
  bool holds_trainer = false;  // a piece of it is on the trainer's lane: the training waited for it
  absl::Duration begin;        // of the first piece on any lane, since Save was called
  absl::Duration end;          // of the last one
  absl::Duration busy;         // of all pieces on all lanes together
  uint64_t bytes = 0;

  absl::Duration extent() const { return end - begin; }
  // For how much of `whole` a lane of it was busy on average: 0 to 1.
  double ShareOf(absl::Duration whole) const;
  // Bytes per second from `begin` to `end`; 0 where there are none, or no time passed.
  double Rate() const;
};

// By begin; what begins at the same time as it comes.
std::vector<PhaseSummary> SummarisePhases(std::span<const SavePhase> phases);

// From the call of Save to the end of what ended last.
absl::Duration WholeSave(std::span<const SavePhase> phases);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PHASE_SUMMARY_H_
