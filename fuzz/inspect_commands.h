// The commands of checkpoint-inspect that look at a store, as somebody would type them, over one that may mean harm.

#ifndef TIDEMARK_FUZZ_INSPECT_COMMANDS_H_
#define TIDEMARK_FUZZ_INSPECT_COMMANDS_H_

#include <string>
#include <vector>

#include "tools/checkpoint_inspect/cli/command_line.h"
#include "tools/checkpoint_inspect/cli/console.h"

namespace tidemark::fuzz {

struct InspectCommand {
  void (*add)(inspect::CommandLine&);
  std::vector<std::string> words;  // behind the options that every command has
};

// Those that list records and indices, and read every byte.
std::vector<InspectCommand> LookingCommands();

// Those that make something of tensors and times, at `step`, a selector. Files are written into the folder `out`, over
// those that are there.
std::vector<InspectCommand> TensorCommands(const std::string& step, const std::string& out);

// Runs one with --untrusted, but outside of the sandbox, which would hold this process for good. Aborts where it ends
// with an exit code that is another command's.
inspect::ExitCode Run(const InspectCommand& command, inspect::Console& console, const std::string& store, bool json);

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_INSPECT_COMMANDS_H_
