// Opening a store and finding steps in it, with what to say and which exit code where that fails.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_STEPS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_STEPS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/cli/exit_code.h"

namespace tidemark::inspect {

// StoreReader::Open, and again if the journal could not be read: while a process makes it anew, its folder is gone for
// a moment. `untrusted`: StoreReader::OpenUntrusted. kUnimplemented also for a store of the first format, with what to
// do; an untrusted one is read from its shards.
absl::StatusOr<std::unique_ptr<StoreReader>> OpenStore(const std::string& directory, bool untrusted);

// StoreReader::Refresh, and again if the journal could not be read.
absl::Status RefreshStore(StoreReader& reader);

// Of an error of OpenStore.
ExitCode OpenExitCode(const absl::Status& status);

// Of an error of opening a store to write, of repairing it, or of a change that was asked for.
ExitCode WriteExitCode(const absl::Status& status);

// Of an error of reading a step that the store has a record of.
ExitCode StepExitCode(const absl::Status& status);

// Of an error of Resolve: kNothingRestorable or, without a journal, kIntegrity where no step qualifies; kUsage where
// the metric has no mode.
ExitCode SelectorExitCode(const StoreReader& reader, const absl::Status& status);

// What a command that found nothing wrong itself returns: kOk, or kDamagedButUsable or kIntegrity if the journal could
// not be read.
ExitCode StoreExitCode(const StoreReader& reader);

// The record of a failed save may not tell when it was: its time is the epoch.
bool KnowsCreated(const StepInfo& info);

// A warning about the step that a restore takes: "; it is unhealthy (validation: diverged), and the latest healthy one
// is step 2", "; it is unhealthy (...), and no step is healthy"; empty if no evaluator distrusts it. `healthy`: the
// latest healthy step that can be restored.
std::string UnhealthyText(const StoreReader& reader, int64_t step, std::optional<int64_t> healthy);

// "step 3", "steps 3, 7", "steps 1, 2, 3, 4, 5 and 12 more"
std::string StepsText(const std::vector<int64_t>& steps);

// Age of a step whose time is known, else "-".
std::string AgeOf(const StepInfo& info, absl::Time now);

// Of a pinned step, not escaped: "pinned", "pinned: NOTE", "tagged paper, v1", "tagged paper, v1: NOTE".
std::string PinText(const StepInfo& info);

// Why retention keeps the step, for people; empty where nothing is on record, or the step is pinned: a pin keeps it
// whatever the rules say.
std::string KeptText(const StepInfo& info);

Colour StateColour(StepState state);
Colour OutcomeColour(Evaluation::Outcome outcome);

bool IsCommitted(const StepInfo& info);

// Whether there are, or should be, files to read: a failed save left none, retention let a deleted step's go, and an
// unsaved step never had any.
bool HasFiles(const StepInfo& info);

// Whether its folder is there, and named by its record.
bool IsOnDisk(const StepInfo& info);

// How often a step is looked up again because its files went away meanwhile. A trainer that replaces a step more often
// than this while it is being read is not what this tool was made for.
inline constexpr int kStepLookupsMax = 20;

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_STEPS_H_
