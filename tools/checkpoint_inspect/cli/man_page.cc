#include "tools/checkpoint_inspect/cli/man_page.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"

namespace tidemark::inspect {
namespace {

// The code point that begins at text[at], which it moves behind it. Precondition: valid UTF-8, as all of our texts are.
uint32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  uint32_t point = first & (0x3fU >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    point = point << 6 | (static_cast<unsigned char>(text[at++]) & 0x3fU);
  return point;
}

std::string Bold(std::string_view text) { return "\\fB" + RoffText(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + RoffText(text) + "\\fR"; }

std::string NamesText(const OptionOutline& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + Bold(name);
  if (!option.takes_value()) return text;
  if (option.value_optional) return text + "[=" + Italic(option.value_name) + "]";
  return text + " " + Italic(option.value_name);
}

std::string ArgumentText(const OptionOutline& argument) {
  const std::string name = Italic(argument.value_name) + (argument.repeated ? "..." : "");
  return argument.required ? name : "[" + name + "]";
}

std::string OptionsText(const std::vector<OptionOutline>& options) {
  std::string text;
  for (const OptionOutline& option : options) {
    text += ".TP\n" + (option.positional() ? ArgumentText(option) : NamesText(option)) + "\n";
    std::string description = option.description;
    if (!option.choices.empty()) {
      description += description.empty() ? "One of:" : ", one of:";
      for (const std::string& choice : option.choices) description += " " + choice;
    }
    if (!option.default_value.empty()) description += fmt::format(" (by default {})", option.default_value);
    // A paragraph may not be empty.
    text += (description.empty() ? "\\&" : RoffText(description)) + "\n";
  }
  return text;
}

// Paragraphs are filled; what is indented, and the heading before it, keeps its lines.
std::string FooterText(const std::string& footer) {
  std::string text;
  bool literal = false;
  bool begins = true;
  for (const absl::string_view line : absl::StrSplit(footer, '\n')) {
    const bool indented = !line.empty() && line.front() == ' ';
    if (indented && !literal) text += ".PP\n.RS 4\n.nf\n";
    if (!indented && literal) text += ".fi\n.RE\n";
    literal = indented;
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (!indented && !words.empty() && begins) text += ".PP\n";
    begins = words.empty();
    if (!words.empty()) text += RoffText({words.data(), words.size()}) + "\n";
  }
  return text + (literal ? ".fi\n.RE\n" : "");
}

std::string SynopsisText(const std::string& program, const CommandOutline& command) {
  std::string text = Bold(program + " " + command.name);
  if (!command.options.empty()) text += " [" + Italic("options") + "]";
  if (!command.commands.empty()) text += " " + Italic("command");
  for (const OptionOutline& argument : command.arguments) text += " " + ArgumentText(argument);
  return text;
}

std::string CommandText(const std::string& program, const CommandOutline& command) {
  std::string text =
      fmt::format(".SS {}\n{}\n.PP\n{}.\n", SynopsisText(program, command), "\\&", RoffText(command.description));
  text += OptionsText(command.arguments) + OptionsText(command.options);
  if (!command.footer.empty()) text += FooterText(command.footer);
  for (const CommandOutline& inner : command.commands) text += CommandText(program, inner);
  return text;
}

}  // namespace

std::string RoffText(std::string_view text) {
  std::string roff;
  for (size_t at = 0; at < text.size();) {
    const bool line_begins = at == 0 || text[at - 1] == '\n';
    const uint32_t point = NextCodePoint(text, at);
    if (line_begins && (point == '.' || point == '\'')) roff += "\\&";
    switch (point) {
      case '\\':
        roff += "\\(rs";
        break;
      case '-':
        roff += "\\-";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      case '`':
        roff += "\\(ga";
        break;
      case '^':
        roff += "\\(ha";
        break;
      case '~':
        roff += "\\(ti";
        break;
      default:
        roff += point < 0x80 ? std::string(1, static_cast<char>(point)) : fmt::format("\\[u{:04X}]", point);
    }
  }
  return roff;
}

std::string ManPage(const CLI::App& app, std::string_view version) {
  const CommandOutline program = Outline(app);
  const std::string name = app.get_name();
  std::string upper = name;
  absl::AsciiStrToUpper(&upper);
  std::string text =
      fmt::format(".TH {} 1 \"\" \"Tidemark {}\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
                  upper, version, RoffText(name), RoffText(program.description));
  text += Bold(name) + " [" + Italic("options") + "] " + Italic("command") + " ...\n";
  text += ".SH DESCRIPTION\n" + FooterText(program.footer);
  text += ".SH OPTIONS\nThey may stand before or after the command.\n" + OptionsText(program.options);
  std::string group;
  for (const CommandOutline& command : program.commands) {
    if (command.group != group) {
      group = command.group;
      text += ".SH COMMANDS: " + RoffText(absl::AsciiStrToUpper(group)) + "\n";
    }
    text += CommandText(name, command);
  }
  text +=
      ".SH ENVIRONMENT\n.TP\nTIDEMARK_STORE\nThe store, where the option does not name one.\n"
      ".TP\nNO_COLOR\nNo colour on a terminal if it is set and not empty.\n";
  return text;
}

}  // namespace tidemark::inspect
