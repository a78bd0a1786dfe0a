// Shell completion, made from the command line itself. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMPLETIONS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMPLETIONS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace tidemark::inspect {

// A script for the shell that completes commands, options, the words that an option takes, directories and files. For
// steps, metrics and entries of the store it runs the hidden command `names`. It completes the program that has the
// app's name.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMPLETIONS_H_
