// What pruning would do: retention's own plan, and the bytes that it frees. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PRUNE_PLAN_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PRUNE_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/manifest/retention_plan.h"
#include "tidemark/retention.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

// What --keep-best asks for.
struct BestRule {
  KeepBest keep;
  bool names_end = false;  // whether it says which end of the metric is the best
};

// "METRIC", "METRIC:highest", "METRIC:3", "METRIC:lowest:3": the lowest one unless it says otherwise. A metric whose
// own name ends like that is followed by what is meant. kInvalidArgument: no metric, or a count below 1.
absl::StatusOr<BestRule> ParseKeepBest(std::string_view text);

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

// `steps`: all that the store knows, ascending. `references`: see StoreReader::References. `leases`: who reads a step,
// by step. Precondition: ValidateRetention(options), and there is a rule.
PrunePlan PlanPruning(const RetentionOptions& options, const std::vector<StepInfo>& steps,
                      const std::function<std::vector<std::string>(int64_t step)>& references,
                      const storage::Claims& leases);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_PRUNE_PLAN_H_
