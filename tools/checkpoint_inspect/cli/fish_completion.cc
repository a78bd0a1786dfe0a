#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"
#include "tools/checkpoint_inspect/cli/completions.h"

namespace tidemark::inspect {
namespace {

constexpr const char* kFishHead = R"fish(# fish completion for NAME, made by `NAME completions fish`.

# Whether what has been written so far is the beginning of this command.
function FUNCTION_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l command ''
    set -l waits no
    for word in $words
        if test $waits = yes
            set waits no
            continue
        end
        switch "$command $word"
CASES        end
    end
    test "$command" = "$argv[1]"
end

# Prints the names of one kind in the store, one a line.
function FUNCTION_names
    set -l words (commandline -opc)
    set -l arguments
    set -l previous ''
    for word in $words
        switch $word
            case '--store=*' --untrusted
                set -a arguments $word
        end
        if test "$previous" = --store
            set -a arguments --store $word
        end
        set previous $word
    end
    $words[1] $arguments names $argv[1] 2>/dev/null
end

complete -c NAME -f
)fish";

std::string QuoteWord(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'";
}

std::string ValueText(const OptionOutline& option) {
  switch (option.kind) {
    case ValueKind::kDirectory:
      return " -a '(__fish_complete_directories)'";
    case ValueKind::kFile:
      return " -F";
    case ValueKind::kStep:
      return " -a '(FUNCTION_names steps)'";
    case ValueKind::kMetric:
      return " -a '(FUNCTION_names metrics)'";
    case ValueKind::kEntry:
      return " -a '(FUNCTION_names entries)'";
    case ValueKind::kChoice:
      return " -a " + QuoteWord(absl::StrJoin(option.choices, " "));
    case ValueKind::kOther:
      break;
  }
  return "";
}

std::string CommandCases(const CommandOutline& program) {
  std::string cases;
  for (const CommandOutline* command : Flatten(program)) {
    if (!command->name.empty()) {
      const size_t space = command->name.rfind(' ');
      cases += fmt::format("            case '{}{}'\n                set command '{}'\n",
                           space == std::string::npos ? " " : "", command->name, command->name);
    }
    for (const OptionOutline& option : command->options) {
      if (!option.takes_value() || option.value_optional) continue;
      for (const std::string& name : option.names) {
        cases += fmt::format("            case '{} {}'\n                set waits yes\n",
                             command->name.empty() ? "*" : command->name, name);
      }
    }
  }
  return cases;
}

std::string OptionText(const OptionOutline& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.takes_value() && !option.value_optional) text += option.kind == ValueKind::kFile ? " -r" : " -x";
  return text + (option.takes_value() ? ValueText(option) : "") + " -d " + QuoteWord(option.description);
}

}  // namespace

std::string FishCompletion(const CLI::App& app) {
  const CommandOutline program = Outline(app);
  std::string text = absl::StrReplaceAll(kFishHead, {{"CASES", CommandCases(program)}});
  for (const CommandOutline* command : Flatten(program)) {
    const std::string at = fmt::format("complete -c NAME -n 'FUNCTION_at \"{}\"'", command->name);
    // The options of the program hold for every command.
    const std::string at_options = command->name.empty() ? "complete -c NAME" : at;
    for (const CommandOutline& inner : command->commands) {
      text += fmt::format("{} -a {} -d {}\n", at, inner.name.substr(inner.name.rfind(' ') + 1),
                          QuoteWord(inner.description));
    }
    for (const OptionOutline& option : command->options) text += at_options + OptionText(option) + "\n";
    for (const OptionOutline& argument : command->arguments) {
      if (argument.kind != ValueKind::kOther) text += at + ValueText(argument) + "\n";
    }
  }
  const std::string function = "__" + absl::StrReplaceAll(app.get_name(), {{"-", "_"}});
  return absl::StrReplaceAll(text, {{"FUNCTION", function}, {"NAME", app.get_name()}});
}

}  // namespace tidemark::inspect
