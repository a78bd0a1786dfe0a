#include "tools/checkpoint_inspect/cli/command_outline.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace tidemark::inspect {
namespace {

constexpr const char* kStepMark = "selector";

bool IsMarkedAsStep(const CLI::Option* option) {
  try {
    // CLI11 has no constant way to ask; nothing is changed by it.
    const_cast<CLI::Option*>(option)->get_validator(kStepMark);
    return true;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

std::vector<std::string> WordsOf(const std::string& list, char separator) {
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(list, separator))
    words.emplace_back(word.substr(0, word.find("->")));
  return words;
}

// Those of "TEXT:{a,b}", as CLI::IsMember puts them into a type name, of "TEXT:value in {a->0,b->1} OR {0,1}", and of a
// type name that is itself "a|b".
std::vector<std::string> ChoicesOf(const std::string& type_name) {
  const size_t begin = type_name.find('{');
  const size_t end = type_name.find('}');
  if (begin < end && end != std::string::npos) return WordsOf(type_name.substr(begin + 1, end - begin - 1), ',');
  const bool is_list = type_name.find('|') != std::string::npos &&
                       type_name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-|") == std::string::npos;
  return is_list ? WordsOf(type_name, '|') : std::vector<std::string>();
}

ValueKind KindOf(const CLI::Option* option, const std::string& type_name, bool has_choices) {
  if (has_choices) return ValueKind::kChoice;
  if (IsMarkedAsStep(option)) return ValueKind::kStep;
  const std::string name = option->nonpositional() ? type_name : type_name + " " + option->get_name(true);
  const auto names = [&name](std::string_view word) { return name.find(word) != std::string::npos; };
  if (names("METRIC")) return ValueKind::kMetric;
  if (names("GLOB")) return ValueKind::kEntry;
  if (names("DIR")) return ValueKind::kDirectory;
  return names("FILE") || names("PATH") || names("OUT") ? ValueKind::kFile : ValueKind::kOther;
}

OptionOutline OutlineOf(const CLI::Option* option) {
  OptionOutline outline;
  for (const std::string& name : option->get_snames()) outline.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) outline.names.push_back("--" + name);
  outline.description = option->get_description();
  outline.default_value = option->get_default_str();
  outline.required = option->get_required();
  outline.repeated = option->get_items_expected_max() > 1;
  if (option->get_items_expected_max() == 0) return outline;

  const std::string type_name = option->get_type_name();
  outline.choices = ChoicesOf(type_name);
  outline.kind = KindOf(option, type_name, !outline.choices.empty());
  outline.value_optional = option->get_items_expected_min() == 0;
  // What validators say stands behind a colon.
  outline.value_name = outline.positional() ? option->get_name(true) : type_name.substr(0, type_name.find(':'));
  if (outline.value_name.empty()) outline.value_name = "VALUE";
  return outline;
}

// The first line may be an indented one, of a legend.
std::string WithoutEmptyEnds(const std::string& footer) {
  const size_t begin = footer.find_first_not_of('\n');
  if (begin == std::string::npos) return "";
  return std::string(absl::StripTrailingAsciiWhitespace(footer.substr(begin)));
}

CommandOutline OutlineOf(const CLI::App& app, const std::string& name) {
  CommandOutline outline{.name = name,
                         .group = app.get_group(),
                         .description = app.get_description(),
                         .footer = WithoutEmptyEnds(app.get_footer())};
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    OptionOutline one = OutlineOf(option);
    (one.positional() ? outline.arguments : outline.options).push_back(std::move(one));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    outline.commands.push_back(
        OutlineOf(*command, name.empty() ? command->get_name() : name + " " + command->get_name()));
  }
  return outline;
}

void AddFlattened(const CommandOutline& command, std::vector<const CommandOutline*>& all) {
  all.push_back(&command);
  for (const CommandOutline& inner : command.commands) AddFlattened(inner, all);
}

}  // namespace

CommandOutline Outline(const CLI::App& app) { return OutlineOf(app, ""); }

std::vector<const CommandOutline*> Flatten(const CommandOutline& command) {
  std::vector<const CommandOutline*> all;
  AddFlattened(command, all);
  return all;
}

void MarkAsStep(CLI::Option* option) {
  option->check([](const std::string&) { return std::string(); }, "", kStepMark);
}

}  // namespace tidemark::inspect
