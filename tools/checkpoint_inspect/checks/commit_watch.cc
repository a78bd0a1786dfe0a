#include "tools/checkpoint_inspect/checks/commit_watch.h"

#include <algorithm>

namespace tidemark::inspect {

std::vector<uint64_t> CommitWatch::CommittedOf(const std::vector<StepInfo>& steps) {
  std::vector<uint64_t> committed;
  for (const StepInfo& info : steps) {
    if (info.state == StepState::kCommitted) committed.push_back(info.sequence);
  }
  std::sort(committed.begin(), committed.end());
  return committed;
}

std::vector<StepInfo> CommitWatch::Take(const std::vector<StepInfo>& steps) {
  std::vector<StepInfo> fresh;
  for (const StepInfo& info : steps) {
    if (info.state != StepState::kCommitted) continue;
    if (!std::binary_search(known_.begin(), known_.end(), info.sequence)) fresh.push_back(info);
  }
  std::sort(fresh.begin(), fresh.end(), [](const StepInfo& a, const StepInfo& b) { return a.sequence < b.sequence; });
  known_ = CommittedOf(steps);
  return fresh;
}

}  // namespace tidemark::inspect
