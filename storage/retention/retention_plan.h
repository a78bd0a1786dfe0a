// What retention's rules say of a list of steps. A pure function: no clock, no I/O; the same list gives the same plan,
// and deleting what it lets go changes nothing of what it says about the rest.

#ifndef TIDEMARK_STORAGE_RETENTION_RETENTION_PLAN_H_
#define TIDEMARK_STORAGE_RETENTION_RETENTION_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "storage/records/best_modes.h"
#include "storage/records/kept_steps.h"
#include "tidemark/retention.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// Readers' claims: step, and who holds it in words ("leased by ...", "evaluator x has not read it yet").
using Claims = std::multimap<int64_t, std::string>;

// Whether a step is committed and no evaluator distrusts it. The highest one is "the latest healthy one" here, to
// StoreReader::LatestHealthyStep, and to RestoreOptions::healthy_only.
bool IsHealthy(const StepInfo& info);

// The words of a claim by an evaluator in this process: "evaluator 'validation' has not read it yet".
std::string YetToRead(std::string_view who);

// The claims of that kind that the trainer noted on the step when it last planned (StepInfo::kept), except those of
// evaluators that have given their row since. It refuses to delete the step as long as they hold.
std::vector<std::string> NotedHolds(const StepInfo& info);

// Why a plan keeps the step that the evaluators come to next.
inline constexpr std::string_view kNextToJudge = "the next step for an evaluator to judge";

// Whether the trainer noted that reason on the step when it last planned. Its rules keep the step until it is judged,
// which it may have been since.
bool IsNotedNextToJudge(const StepInfo& info);

// The steps that lack a row of an evaluator that has judged any of them. It is used in a plan without the trainer: only
// the trainer knows which steps its evaluators will still judge.
std::set<int64_t> UnjudgedByRecord(const CommittedSteps& steps);

// Whether the rule keeps the step: it is one of those that are awaited, and the evaluator has said nothing of it, or
// only that it failed.
bool IsAwaited(const AwaitEvaluation& rule, const StepInfo& info);

// Why the committed steps behind `after` may not be discarded; ok: they may. kFailedPrecondition: some of them are
// pinned, tagged or claimed, which the message names, or no step up to `after` is committed.
absl::Status CheckDiscard(int64_t after, const CommittedSteps& steps, const Claims& claims);

// Sets the mode of each rule of keep_best that has none, by FindBestMode. kInvalidArgument: neither the record nor the
// name of its metric gives a mode; the message names the field.
absl::Status ResolveBestModes(const BestModes& recorded, RetentionOptions& options);

// One decision for each committed step of `steps`, ascending. Steps in other states are ignored. Precondition:
// ResolveBestModes was ok.
//
// A step stays if RetentionOptions::keep or KeepBest::score throws on it. `warn` then gets a line with the exception;
// it may be null.
std::vector<RetentionDecision> PlanRetention(const RetentionOptions& options, const CommittedSteps& steps,
                                             const Claims& claims, const std::set<int64_t>& unjudged = {},
                                             const std::function<void(std::string_view)>& warn = nullptr);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RETENTION_RETENTION_PLAN_H_
