#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/command_outline.h"
#include "tools/checkpoint_inspect/completions.h"

namespace tidemark::inspect {
namespace {

// Bash breaks words at '=' and ':' too, so `--store=DIR` arrives as three of them.
constexpr const char* kScript = R"bash(# bash completion for NAME, made by `NAME completions bash`.

# The fields of a step stand at this indentation, and no other's.
FUNCTION_steps() {
  local directory=${store/#\~\//$HOME/}
  "${COMP_WORDS[0]}" ${directory:+--store "$directory"} $untrusted --json ls 2>/dev/null |
    sed -n 's/^      "step": \([0-9]*\),$/\1/p'
}

# What can come where $current stands: one of some words, or of what a word with a colon before it names.
FUNCTION_complete() {
  case $1 in
    :directory)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    :file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    :step) mapfile -t COMPREPLY < <(compgen -W "latest latest-healthy $(FUNCTION_steps)" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current") ;;
  esac
}

FUNCTION() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' store='' untrusted='' pending='' arguments=0 index word
  COMPREPLY=()
  [[ $current != '=' ]] || current=''
  for ((index = 1; index < COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    [[ $word != '=' ]] || continue
    if [[ -n $pending ]]; then
      [[ $pending != --store ]] || store=$word
      pending=''
      continue
    fi
    [[ $word != --untrusted ]] || untrusted=$word
    case "$command $word" in
VALUES      *' -'*) ;;
COMMANDS      *) ((arguments += 1)) ;;
    esac
  done
  if [[ -n $pending ]]; then
    case "$command $pending" in
PENDING    esac
    return
  fi
  if [[ $current == -* ]]; then
    case "$command" in
OPTIONS    esac
    return
  fi
  case "$command $arguments" in
ARGUMENTS  esac
}

complete -F FUNCTION NAME
)bash";

std::string KindText(const OptionOutline& option) {
  switch (option.kind) {
    case ValueKind::kDirectory:
      return ":directory";
    case ValueKind::kFile:
      return ":file";
    case ValueKind::kStep:
      return ":step";
    case ValueKind::kChoice:
      return absl::StrJoin(option.choices, " ");
    case ValueKind::kOther:
      break;
  }
  return "";
}

std::string CompleteLine(const std::string& kind) { return fmt::format("FUNCTION_complete '{}'", kind); }

// The options of the program hold for every command.
std::string Pattern(const CommandOutline& command, const std::string& word) {
  return command.name.empty() ? fmt::format("*' {}'", word) : fmt::format("'{} {}'", command.name, word);
}

struct Parts {
  std::string values;     // what is followed by a value
  std::string commands;   // what begins a command
  std::string pending;    // what a value can be
  std::string options;    // the options of each command
  std::string arguments;  // what stands at each place
};

std::vector<std::string> NamesOf(const CommandOutline& command) {
  std::vector<std::string> names;
  for (const OptionOutline& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

void AddOptions(const CommandOutline& command, Parts& parts) {
  for (const OptionOutline& option : command.options) {
    if (!option.takes_value()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back(Pattern(command, name));
    const std::string pattern = absl::StrJoin(patterns, " | ");
    // An optional value follows only behind '=', where the word before it is no option to wait for.
    if (!option.value_optional) parts.values += fmt::format("      {}) pending=$word ;;\n", pattern);
    if (option.kind != ValueKind::kOther) {
      parts.pending += fmt::format("      {}) {} ;;\n", pattern, CompleteLine(KindText(option)));
    }
  }
}

void AddArguments(const CommandOutline& command, Parts& parts) {
  for (size_t i = 0; i < command.arguments.size(); ++i) {
    const OptionOutline& argument = command.arguments[i];
    if (argument.kind == ValueKind::kOther) continue;
    const std::string place = argument.repeated ? "'*" : fmt::format("{}'", i);
    parts.arguments += fmt::format("    '{} {}) {} ;;\n", command.name, place, CompleteLine(KindText(argument)));
  }
}

Parts PartsOf(const CommandOutline& program) {
  Parts parts;
  for (const CommandOutline* command : Flatten(program)) {
    if (!command->name.empty()) {
      const size_t space = command->name.rfind(' ');
      const std::string pattern = space == std::string::npos ? " " + command->name : command->name;
      parts.commands += fmt::format("      '{}') command='{}' ;;\n", pattern, command->name);
    }
    AddOptions(*command, parts);
    std::vector<std::string> names = NamesOf(*command);
    if (!command->name.empty()) {
      for (const std::string& name : NamesOf(program)) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    parts.options += fmt::format("      '{}') {} ;;\n", command->name, CompleteLine(absl::StrJoin(names, " ")));
    AddArguments(*command, parts);
    if (command->commands.empty()) continue;
    std::vector<std::string> inner;
    for (const CommandOutline& each : command->commands) inner.push_back(each.name.substr(each.name.rfind(' ') + 1));
    parts.arguments += fmt::format("    '{} 0') {} ;;\n", command->name, CompleteLine(absl::StrJoin(inner, " ")));
  }
  return parts;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  const Parts parts = PartsOf(Outline(app));
  const std::string text = absl::StrReplaceAll(kScript, {{"VALUES", parts.values},
                                                         {"COMMANDS", parts.commands},
                                                         {"PENDING", parts.pending},
                                                         {"OPTIONS", parts.options},
                                                         {"ARGUMENTS", parts.arguments}});
  const std::string function = "_" + absl::StrReplaceAll(app.get_name(), {{"-", "_"}});
  return absl::StrReplaceAll(text, {{"FUNCTION", function}, {"NAME", app.get_name()}});
}

}  // namespace tidemark::inspect
