// What pruning would do: retention's own plan, and the bytes that it frees. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PRUNE_PLAN_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PRUNE_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/retention/retention_plan.h"
#include "tidemark/retention.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

// "METRIC", "METRIC:highest", "METRIC:3", "METRIC:lowest:3". A metric whose own name ends like that needs a further
// suffix. Without an end the mode is nullopt. kInvalidArgument: no metric, or a count below 1.
absl::StatusOr<KeepBest> ParseKeepBest(std::string_view text);

// A committed step.
struct PrunedStep {
  int64_t step = 0;
  std::string attempt;
  bool keep = true;
  std::string reason;
  uint64_t stored_bytes = 0;       // of its shard files
  uint64_t freed_bytes = 0;        // of these, once it is deleted
  std::vector<int64_t> needed_by;  // steps that stay and have chunks in its files, which therefore stay, too; ascending
};

struct PrunePlan {
  std::vector<PrunedStep> steps;  // ascending
  uint64_t freed_bytes = 0;       // of all, with those below
  uint64_t bygone_bytes = 0;      // of steps deleted earlier, whose files only steps that go now have kept

  size_t deletions() const;
};

// `steps`: all steps of the store, ascending. `references`: see StoreReader::References. `claims`: by step, the readers
// and evaluators that read the step or have yet to. Precondition: ValidateRetention(options), each rule of keep_best
// has its mode, and there is a rule.
PrunePlan PlanPruning(const RetentionOptions& options, const std::vector<StepInfo>& steps,
                      const std::function<std::vector<std::string>(int64_t step)>& references,
                      const storage::Claims& claims);

// The same where all steps behind `after` go, the latest included. Precondition: storage::CheckDiscard is ok.
PrunePlan PlanDiscard(int64_t after, const std::vector<StepInfo>& steps,
                      const std::function<std::vector<std::string>(int64_t step)>& references);

// The committed ones.
storage::CommittedSteps CommittedOf(const std::vector<StepInfo>& steps);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PRUNE_PLAN_H_
