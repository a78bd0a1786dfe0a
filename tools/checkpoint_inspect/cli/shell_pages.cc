#include <memory>
#include <string>

#include "tools/checkpoint_inspect/cli/completions.h"
#include "tools/checkpoint_inspect/cli/man_page.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::inspect {

void AddShellPages(CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completions = line.Add(
      {.group = CommandGroup::kShell, .name = "completions", .description = "Print the completion script for a shell"},
      [&line, shell](const Session& session) {
        session.console.PrintData(*shell == "bash"  ? BashCompletion(line.app())
                                  : *shell == "zsh" ? ZshCompletion(line.app())
                                                    : FishCompletion(line.app()));
        return ExitCode::kOk;
      });
  completions->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completions->footer(R"(
Example:
  source <(checkpoint-inspect completions bash))");

  line.Add({.group = CommandGroup::kShell, .name = "man-page", .description = "Print the manual page"},
           [&line](const Session& session) {
             session.console.PrintData(ManPage(line.app(), TIDEMARK_VERSION));
             return ExitCode::kOk;
           })
      ->footer(R"(
Example:
  checkpoint-inspect man-page | man --local-file -)");
}

}  // namespace tidemark::inspect
