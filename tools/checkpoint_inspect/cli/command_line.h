// CommandLine: what the commands put themselves on, and what runs the one that was chosen.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_LINE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_LINE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/cli/exit_code.h"
#include "tools/checkpoint_inspect/cli/selector.h"

namespace tidemark::inspect {

// What every command gets. Not owned.
struct Session {
  Console& console;
  const std::string& directory;  // the store, as the user named it
  bool json;
  bool untrusted;
  absl::Time now;        // ages count from here
  bool confined = true;  // `untrusted` means the sandbox, too; see CommandLine::RunUnconfined
};

// What a command gets that reads a store. Not owned.
struct Invocation {
  Console& console;
  StoreReader& reader;
  const std::string& directory;  // as the user named it
  bool json;
  absl::Time now;                // ages count from here
  const std::string& link_free;  // the same directory, by a path that files in it are opened by
  bool untrusted = false;
};

// The group under which --help lists a command.
enum class CommandGroup { kLook, kCheck, kExchange, kKeep, kPlace, kShell, kHidden };

struct CommandTraits {
  CommandGroup group = CommandGroup::kLook;
  std::string name;
  std::string description;
  // It writes files, or asks for a change of the store (see request.h). With --untrusted it is refused, for the sandbox
  // lets nobody open a file for writing.
  bool writes = false;
  std::string why_trusted;                // why else it is refused with --untrusted; empty: it is not
  ExitCode trouble = ExitCode::kFailure;  // see CommandLine::trouble
};

// Thread-compatible. Owns what the commands' options are bound to.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds a command that reads the store: it is opened, as a stranger's within the sandbox if --untrusted was given, and
  // what could not be read of it has been told, before `run` is called.
  CLI::App* Add(const CommandTraits& traits, std::function<ExitCode(const Invocation&)> run);

  // Adds a command that opens for itself what it needs, if anything, and sees itself to what --untrusted asks for.
  CLI::App* Add(const CommandTraits& traits, std::function<ExitCode(const Session&)> run);

  // Parses and runs. Errors have been printed.
  ExitCode Run(Console& console, int argc, const char* const* argv);

  // The same, but --untrusted enters no sandbox, hence takes no right to write files: a process that does is held by it
  // for good. For who runs many commands in one process, over stores that are made to do harm.
  ExitCode RunUnconfined(Console& console, int argc, const char* const* argv);

  const CLI::App& app() const { return app_; }

  // What the command ends with where whoever runs it cannot go on: its output cannot be written.
  ExitCode trouble() const { return trouble_; }

 private:
  ExitCode ParseAndRun(Console& console, int argc, const char* const* argv, bool confined);

  CLI::App app_;
  std::string store_;
  bool json_ = false;
  bool untrusted_ = false;
  ExitCode trouble_ = ExitCode::kFailure;
  std::function<ExitCode(const Session&)> chosen_;
};

// An argument that names a step, which shells complete; what is none is a usage error. `target` must live as long as
// the command.
CLI::Option* AddSelector(CLI::App* command, const std::string& name, StepSelector& target,
                         const std::string& description);
CLI::Option* AddSelector(CLI::App* command, const std::string& name, std::optional<StepSelector>& target,
                         const std::string& description);

// Arguments of which there may be any number, or an option that may be given several times and has one value each time.
// Every text is taken as it is: of CLI11's own lists one in brackets, `[a,b]`, would be two. `set` gets all of them,
// and is not called where there are none. `target` must live as long as the command.
using SetTexts = std::function<void(const std::vector<std::string>& texts)>;
CLI::Option* AddTexts(CLI::App* command, const std::string& name, SetTexts set, const std::string& description);
CLI::Option* AddTexts(CLI::App* command, const std::string& name, std::vector<std::string>& target,
                      const std::string& description);

// For CLI::Option::check: why the text is no whole number of at least 1; empty where it is one.
std::string CheckPositive(const std::string& text);

// Opens the store as a reading command does, tells what could not be read of it, and calls `run`.
ExitCode WithStore(const Session& session, const std::function<ExitCode(const Invocation&)>& run);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_COMMAND_LINE_H_
