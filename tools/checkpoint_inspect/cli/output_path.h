// The path that a command writes to, as the command line gives it.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_OUTPUT_PATH_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_OUTPUT_PATH_H_

#include <string>

namespace tidemark::inspect {

// For CLI::Option::check: why no file can be written to a path; empty if one can. "-" is refused: a file is complete or
// absent, and standard output cannot be that.
std::string CheckOutputPath(const std::string& path);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_OUTPUT_PATH_H_
