#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"
#include "tools/checkpoint_inspect/cli/completions.h"

namespace tidemark::inspect {
namespace {

// Bash breaks words at '=' and ':' too, so `--store=DIR` arrives as three of them. Names come out of the store, which
// may be malicious: they are quoted, and are given to nothing that expands them, as `compgen -W` does.
constexpr const char* kScript = R"bash(# bash completion for NAME, made by `NAME completions bash`.

# Prints the names of one kind in the store, one a line.
FUNCTION_names() {
  local directory=${store/#\~\//$HOME/}
  "${COMP_WORDS[0]}" ${directory:+--store "$directory"} $untrusted names "$1" 2>/dev/null
}

# Completes $current to one of some words, or to a name of the kind that stands behind a colon.
FUNCTION_complete() {
  local name
  case $1 in
    :directory)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    :file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    :steps | :metrics | :entries)
      while IFS= read -r name; do
        printf -v name %q "$name"
        [[ $name != "$current"* ]] || COMPREPLY+=("$name")
      done < <(FUNCTION_names "${1#:}")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current") ;;
  esac
}

# Completes $current, which stands behind $words.
FUNCTION_complete_word() {
  local command='' store='' untrusted='' pending='' arguments=0 word
  for word in "${words[@]}"; do
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

FUNCTION() {
  local current before='' words=() index word
  COMPREPLY=()
  # Joins what bash has broken at ':'. It replaces only the last piece, so a reply goes without those before it.
  for ((index = 1; index <= COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    if ((${#words[@]} > 0)) && [[ $word == : || ${COMP_WORDS[index - 1]} == : ]]; then
      before=${words[-1]}
      [[ $word != : ]] || before+=:
      words[-1]+=$word
    else
      before=''
      words+=("$word")
    fi
  done
  current=${words[-1]}
  unset 'words[-1]'
  [[ $current != '=' ]] || current=''
  FUNCTION_complete_word
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
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
      return ":steps";
    case ValueKind::kMetric:
      return ":metrics";
    case ValueKind::kEntry:
      return ":entries";
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
