// What a command line takes, as data: for shell completion and the manual page, which are made from it and hence never
// say anything else than --help does.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_OUTLINE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_OUTLINE_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace tidemark::inspect {

enum class ValueKind {
  kOther,
  kChoice,     // one of a few words: CLI::IsMember and the like, or a type name like "raw|npz"
  kDirectory,  // its type name, or the name of a positional one, has DIR in it
  kFile,       // or FILE, PATH or OUT
  kStep,       // a selector, see AddSelector
  kMetric,     // its type name, or the name of a positional one, has METRIC in it
  kEntry,      // or GLOB
};

// An option, a flag, or a positional argument. Immutable.
struct OptionOutline {
  std::vector<std::string> names;  // with their dashes, the short ones first; empty: it is positional
  std::string value_name;          // "DIR"; of a positional one its own name; empty: a flag
  bool value_optional = false;     // as in --read-data[=10%]
  ValueKind kind = ValueKind::kOther;
  std::vector<std::string> choices;  // of a kChoice
  bool required = false;
  bool repeated = false;
  std::string description;
  std::string default_value;  // empty: none, or it is not shown

  bool positional() const { return names.empty(); }
  bool takes_value() const { return !value_name.empty(); }
};

// Immutable.
struct CommandOutline {
  std::string name;         // of a command within a command both: "manifest dump"; empty: the program's own
  std::string group;        // the heading in --help
  std::string description;  // one line
  std::vector<OptionOutline> options;
  std::vector<OptionOutline> arguments;  // positional, in their order
  std::string footer;
  std::vector<CommandOutline> commands;
};

// Hidden commands and options are left out. Aliases of commands are not looked at.
CommandOutline Outline(const CLI::App& app);

// The command and those in it, itself first.
std::vector<const CommandOutline*> Flatten(const CommandOutline& command);

// Marks what takes a selector, for ValueKind::kStep.
void MarkAsStep(CLI::Option* option);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_OUTLINE_H_
