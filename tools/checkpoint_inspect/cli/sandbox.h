// What checkpoint-inspect gives up before it parses what a stranger made, so that a fault in a parser is worth little
// to whoever finds it: docs/checkpoint-inspect.md says what is left.
//
// Two walls, of the kernel: a seccomp filter (which system calls there are, with which arguments) and a Landlock
// ruleset (which files). Either holds by itself against writing, running programs and the network; only Landlock knows
// paths. The filter is written by hand and not with libseccomp: it is a list of some fifty numbers, which the kernel's
// headers have, and it needs nothing that would have to be installed or kept up. What it does not list fails: a system
// call that a later C library begins to use ends in an error message, never in a hole.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SANDBOX_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SANDBOX_H_

#include <string>

#include "absl/status/statusor.h"

namespace tidemark::inspect {

// From here on this process, with the threads that it starts, may open files and directories for reading beneath
// `directory` alone, write to its standard output and standard error, and start threads. It can open nothing for
// writing and reach no network, no other program and no other process. There is no way back. Root keeps no capability
// but the one to read what belongs to others.
//
// Call it while there is one thread. Returns one line on what this kernel has not, or an empty text. kNotFound,
// kFailedPrecondition: `directory` is not there, or no directory, and nothing has been given up; any other error: the
// process is as confined as it got, and must not go on.
absl::StatusOr<std::string> EnterSandbox(const std::string& directory);

// That line. `knows_architecture`: whether there is a filter for this architecture, whatever the kernel has.
std::string DescribeLacking(bool has_landlock, bool has_filter, bool knows_architecture);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_SANDBOX_H_
