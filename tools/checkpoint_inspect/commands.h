// The commands. Each prints its data through the console and returns the exit code; errors have been printed when it
// returns. None writes to the store.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/console.h"
#include "tools/checkpoint_inspect/exit_code.h"

namespace tidemark::inspect {

// What the commands share. Not owned.
struct Invocation {
  Console& console;
  StoreReader& reader;
  const std::string& directory;  // as the user named it
  bool json;
  absl::Time now;  // ages count from here
};

// The steps that the store has a record of; deleted and unsaved ones only if `all`.
ExitCode ListSteps(const Invocation& invocation, bool all);

// One step, from its record and the index of its shards; nullopt: the latest committed one.
ExitCode ShowStep(const Invocation& invocation, std::optional<int64_t> step);

// What evaluators said, a row for each step and evaluator; or, of the steps that have any of them, these metrics.
ExitCode ShowHistory(const Invocation& invocation, const std::vector<std::string>& metrics);

// Every byte of one step, or of all that were committed.
ExitCode VerifySteps(const Invocation& invocation, std::optional<int64_t> step);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_H_
