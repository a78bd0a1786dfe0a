// CommitWatch: which steps have become committed since it last looked.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_COMMIT_WATCH_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_COMMIT_WATCH_H_

#include <cstdint>
#include <vector>

#include "tidemark/step_info.h"

namespace tidemark::inspect {

// Thread-compatible.
class CommitWatch {
 public:
  // What is committed by now is not new.
  explicit CommitWatch(const std::vector<StepInfo>& steps) : known_(CommittedOf(steps)) {}

  // Those that are committed and were not at the last call: new attempts, and those that were found sound again. In the
  // order in which they were saved.
  std::vector<StepInfo> Take(const std::vector<StepInfo>& steps);

 private:
  // The sequence numbers of the committed attempts, ascending. No two attempts of a store have the same.
  static std::vector<uint64_t> CommittedOf(const std::vector<StepInfo>& steps);

  std::vector<uint64_t> known_;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_COMMIT_WATCH_H_
