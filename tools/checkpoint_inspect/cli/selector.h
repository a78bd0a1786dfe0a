// The step that a StepSelector of the command line selects, and what is said if it selects none. StepSelector::Parse
// reads the text, so the same text means the same step in a restore. One thing is added,
// StepSelector::Purpose::kInspect: if no committed step has a tag, the tag selects the damaged, lost or deleted step
// that has it, which a restore refuses.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SELECTOR_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SELECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/step_selector.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

// For --help and error messages.
inline constexpr std::string_view kSelectorHelp =
    "N, latest, latest-healthy, best:METRIC[:lowest|:highest] or tag:NAME";

// A step as the command line names it: decimal digits, at most INT64_MAX. nullopt: no such number.
std::optional<int64_t> ParseStep(std::string_view text);

// Whether a command can do anything with a step.
using StepPredicate = bool (*)(const StepInfo&);
inline bool IsAnyStep(const StepInfo&) { return true; }

// The selected step, in whatever state it is; it need not be `usable`.
//   kNotFound: of kStep, the message names the nearest steps that are usable; of kBest, no step has the metric, and the
//     message names those that there are; of kTag the same of the tags.
//   kInvalidArgument: of kBest, as of StepSelector::WithMode.
//   kAlreadyExists: several steps have the tag.
//   kFailedPrecondition: of kLatest, kLatestHealthy and kBest, no step is committed, or none that qualifies.
// `directory`: for messages.
absl::StatusOr<StepInfo> Resolve(const StoreReader& reader, const std::string& directory, const StepSelector& selector,
                                 StepPredicate usable = IsAnyStep);

// "5 and 10", "10": the nearest usable steps below and above this one, itself left out. Empty where there are none.
std::string NearestSteps(const std::vector<StepInfo>& steps, int64_t step, StepPredicate usable = IsAnyStep);

// Where on the command line a metric is named.
struct MetricPlace {
  std::string_view before;       // "best:", "--keep-best ": what stands before it
  std::string_view no_end = "";  // the error if ":highest" follows, "only valid with --plot, ..."; empty: it may follow
};

// "no step has a metric 'x'; there are: a, b", of the metrics of all steps: kNotFound; ok if some step has it. Of a
// metric that there is with an end that there is not, or that has no place here, the message says so instead.
absl::Status CheckMetric(const StoreReader& reader, const std::string& metric, const MetricPlace& place);

// The same of a tag.
absl::Status CheckSomeStepHasTag(const StoreReader& reader, const std::string& tag);

// Those that have the tag, ascending: one, but where a crash or somebody who copied files has left more.
std::vector<StepInfo> TaggedSteps(const StoreReader& reader, const std::string& tag);

// "step 1", "steps 1, 2": for messages.
std::string StepNumbers(const std::vector<StepInfo>& steps);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SELECTOR_H_
