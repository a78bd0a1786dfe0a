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

constexpr const char* kZshHead = R"zsh(#compdef NAME
# zsh completion for NAME, made by `NAME completions zsh`.

# Completes to the names in the store of the kind that is the last argument.
FUNCTION_names() {
  local store=${(Q)opt_args[--store]:-$store}
  local -a names
  names=(${(f)"$($program ${store:+--store} ${store:+${~store}} ${opt_args[--untrusted]+--untrusted} \
    names $argv[-1] 2>/dev/null)"})
  compadd "${@[1,-2]}" -a names
}
)zsh";

constexpr const char* kTail = R"zsh(
# Loaded by compinit it completes at once; sourced it says what it is for.
if [[ $funcstack[1] == FUNCTION ]]; then
  FUNCTION "$@"
else
  compdef FUNCTION NAME
fi
)zsh";

// Within '...', in the part of a specification that ends with `]` or `:`.
std::string QuoteSpec(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string Action(const OptionOutline& option) {
  switch (option.kind) {
    case ValueKind::kDirectory:
      return "_directories";
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kStep:
      return "FUNCTION_names steps";
    case ValueKind::kMetric:
      return "FUNCTION_names metrics";
    case ValueKind::kEntry:
      return "FUNCTION_names entries";
    case ValueKind::kChoice:
      return "(" + absl::StrJoin(option.choices, " ") + ")";
    case ValueKind::kOther:
      break;
  }
  return " ";
}

std::string FunctionOf(const CommandOutline& command) {
  if (command.name.empty()) return "FUNCTION";
  return "FUNCTION__" + absl::StrReplaceAll(command.name, {{" ", "__"}, {"-", "_"}});
}

std::string OptionSpecs(const CommandOutline& command) {
  std::string specs;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      specs += fmt::format(" \\\n    '{}{}", option.repeated ? "*" : "", name);
      if (option.takes_value()) specs += name.starts_with("--") ? "=" : "+";
      if (option.value_optional) specs += "-";
      specs += fmt::format("[{}]", QuoteSpec(option.description));
      if (option.takes_value()) {
        specs +=
            fmt::format("{}{}:{}", option.value_optional ? "::" : ":", QuoteSpec(option.value_name), Action(option));
      }
      specs += "'";
    }
  }
  return specs;
}

std::string ArgumentSpecs(const CommandOutline& command) {
  std::string specs;
  for (const OptionOutline& argument : command.arguments) {
    const char* place = argument.repeated ? "*:" : argument.required ? ":" : "::";
    specs += fmt::format(" \\\n    '{}{}:{}'", place, QuoteSpec(argument.value_name), Action(argument));
  }
  return specs;
}

// What is in it decides on the words that follow.
std::string DispatchText(const CommandOutline& command) {
  std::string names;
  std::string cases;
  for (const CommandOutline& inner : command.commands) {
    const std::string word = inner.name.substr(inner.name.rfind(' ') + 1);
    names += fmt::format("        '{}:{}'\n", word, QuoteSpec(inner.description));
    cases += fmt::format("        {}) {} ;;\n", word, FunctionOf(inner));
  }
  return fmt::format(
      "  store=${{(Q)opt_args[--store]:-$store}}\n  case $state in\n    command)\n      commands=(\n{}      )\n"
      "      _describe -t commands command commands\n      ;;\n    rest)\n      case $words[1] in\n{}      esac\n"
      "      ;;\n  esac\n",
      names, cases);
}

std::string FunctionText(const CommandOutline& program, const CommandOutline& command) {
  const bool is_program = command.name.empty();
  std::string text = fmt::format("\n{}() {{\n", FunctionOf(command));
  if (is_program) text += "  local program=$words[1] store=''\n";
  text += "  local context state state_descr line\n  local -a commands\n  typeset -A opt_args\n  _arguments -C";
  // What stands behind the name of a command within this one is left to that.
  if (!command.commands.empty()) text += " -A '-*'";
  text += OptionSpecs(command);
  // The options of the program hold for every command; --help and the like are each command's own.
  if (!is_program) {
    CommandOutline others = program;
    std::erase_if(others.options, [&](const OptionOutline& option) {
      return std::any_of(command.options.begin(), command.options.end(),
                         [&](const OptionOutline& own) { return own.names == option.names; });
    });
    text += OptionSpecs(others);
  }
  text += command.commands.empty() ? ArgumentSpecs(command) + "\n" : " \\\n    '1: :->command' \\\n    '*:: :->rest'\n";
  if (!command.commands.empty()) text += DispatchText(command);
  return text + "}\n";
}

}  // namespace

std::string ZshCompletion(const CLI::App& app) {
  const CommandOutline program = Outline(app);
  std::string text = kZshHead;
  for (const CommandOutline* command : Flatten(program)) text += FunctionText(program, *command);
  text += kTail;
  const std::string function = "_" + app.get_name();
  return absl::StrReplaceAll(text, {{"FUNCTION", function}, {"NAME", app.get_name()}});
}

}  // namespace tidemark::inspect
