// What retention's rules say of a list of steps. A pure function: no clock, no I/O; the same list gives the same plan,
// and deleting what it lets go changes nothing of what it says about the rest.

#ifndef TIDEMARK_STORAGE_MANIFEST_RETENTION_PLAN_H_
#define TIDEMARK_STORAGE_MANIFEST_RETENTION_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "storage/manifest/kept_steps.h"
#include "tidemark/retention.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// Readers' claims: step, and who holds it in words ("leased by ...", "evaluator x has yet to read it").
using Claims = std::multimap<int64_t, std::string>;

// Whether the rule keeps the step: it is one of those that are awaited, and the evaluator has said nothing of it, or
// only that it failed.
bool IsAwaited(const AwaitEvaluation& rule, const StepInfo& info);

// One decision for each committed step of `steps`, ascending, whatever other ones are among them.
std::vector<RetentionDecision> PlanRetention(const RetentionOptions& options, const CommittedSteps& steps,
                                             const Claims& claims, const std::set<int64_t>& unjudged = {});

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_RETENTION_PLAN_H_
