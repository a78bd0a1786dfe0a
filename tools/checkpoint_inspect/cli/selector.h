// Selector: how the command line names a step of a store.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SELECTOR_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SELECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

struct Selector {
  enum class Kind {
    kStep,           // "1000" or "step:1000": that step, in whatever state
    kLatest,         // "latest": the highest committed step
    kLatestHealthy,  // "latest-healthy": the highest committed step that no evaluator distrusts
    kBest,           // "best:METRIC": the committed, healthy step whose metric is the best; "best:METRIC:highest"
    kTag,            // "tag:NAME": the step that has this name, in whatever state
  };
  Kind kind = Kind::kLatest;
  int64_t step = 0;              // kStep
  std::string metric;            // kBest
  std::optional<BestMode> mode;  // kBest; nullopt: BestEnd tells
  std::string tag;               // kTag

  friend bool operator==(const Selector&, const Selector&) = default;
};

// For --help and error messages.
inline constexpr std::string_view kSelectorHelp =
    "N, latest, latest-healthy, best:METRIC[:lowest|:highest] or tag:NAME";

// A step as the command line names it: decimal digits, at most INT64_MAX. nullopt: no such number.
std::optional<int64_t> ParseStep(std::string_view text);

// kInvalidArgument: it is none of the above; the message says what there is.
absl::StatusOr<Selector> ParseSelector(std::string_view text);

// Whether a command can do anything with a step.
using StepPredicate = bool (*)(const StepInfo&);
inline bool IsAnyStep(const StepInfo&) { return true; }

// What the selector stands for now; it need not be `usable`. kNotFound: kStep: the message names the nearest steps that
// are; kBest: no step has the metric, and the message names those that there are; kTag: the same of the tags.
// kAlreadyExists: more than one step has the tag, and the message names them. kFailedPrecondition: of kLatest,
// kLatestHealthy and kBest: no step is committed, or none that qualifies. `directory`: for messages.
absl::StatusOr<StepInfo> Resolve(const StoreReader& reader, const std::string& directory, const Selector& selector,
                                 StepPredicate usable = IsAnyStep);

// The mode for a command that only reads: `said`, else StoreReader::BestModeOf, else the lowest. In the last case a
// command that deletes refuses.
BestMode BestEnd(const StoreReader& reader, const std::string& metric, std::optional<BestMode> said);

// A note on a metric whose mode is not known: "lower was taken for better: best:x:lowest is step 900 (0.25),
// best:x:highest is step 3000 (0.75)". Empty if the mode is known, or if both ends are one step. `before`: the text
// before the metric, "best:".
std::string UnknownEnd(const StoreReader& reader, std::string_view before, const std::string& metric);

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
