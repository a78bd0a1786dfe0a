// The command that brings a store into order, or says what that would do.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_REPAIR_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_REPAIR_H_

#include <string>

#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/cli/exit_code.h"

namespace tidemark::inspect {

// `directory`: as the user named it. Without `apply` nothing is changed.
ExitCode RepairDirectory(Console& console, const std::string& directory, bool apply, bool json);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_REPAIR_H_
