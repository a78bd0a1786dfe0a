#include "tools/checkpoint_inspect/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/link_free_path.h"
#include "tools/checkpoint_inspect/interrupt.h"
#include "tools/checkpoint_inspect/sandbox.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {
namespace {

constexpr const char* kFooter = R"(
Examples:
  checkpoint-inspect --store run/ckpt ls
  checkpoint-inspect --store run/ckpt show latest
  checkpoint-inspect --store run/ckpt history validation/loss
  checkpoint-inspect --store run/ckpt verify
  checkpoint-inspect --store run/ckpt prune --keep-latest 3 --keep-best validation/loss
  checkpoint-inspect --store downloaded --untrusted verify
  TIDEMARK_STORE=run/ckpt checkpoint-inspect --json ls

'checkpoint-inspect COMMAND --help' has more on each. What only reads may run beside a live trainer.

Exit status:
  0 ok, 1 failure, 2 usage, 3 damaged but a valid step remains, 10 no store, 11 the store is in use,
  12 nothing restorable, 13 integrity failure, 14 written by a newer version, 130 interrupted)";

// A store may hold any number of attempts that cannot be read.
constexpr size_t kUnreadNamedMax = 10;

void NameUnread(Console& console, const std::vector<std::string>& unread) {
  for (size_t i = 0; i < std::min(unread.size(), kUnreadNamedMax); ++i) {
    console.Warn("not among the steps, for it could not be read: " + unread[i]);
  }
  if (unread.size() > kUnreadNamedMax) {
    console.Warn(fmt::format("nor could {} more be read", unread.size() - kUnreadNamedMax));
  }
}

const char* GroupName(CommandGroup group) {
  switch (group) {
    case CommandGroup::kLook:
      return "Look";
    case CommandGroup::kCheck:
      return "Compare and check";
    case CommandGroup::kExchange:
      return "Exchange with other tools";
    case CommandGroup::kKeep:
      return "Keep and clean up";
    case CommandGroup::kPlace:
      return "Repair and prepare";
  }
  return "";
}

Selector ParseOrThrow(const std::string& text) {
  absl::StatusOr<Selector> selector = ParseSelector(text);
  if (!selector.ok()) throw CLI::ValidationError(std::string(selector.status().message()));
  return *std::move(selector);
}

}  // namespace

CommandLine::CommandLine()
    : app_("Lists, shows, compares, verifies and exports the checkpoints of a Tidemark store.", "checkpoint-inspect") {
  app_.add_option("--store", store_, "The store; by default $TIDEMARK_STORE, else the current directory")
      ->type_name("DIR");
  app_.add_flag("--json", json_, "Print JSON, see docs/checkpoint-inspect.md");
  app_.add_flag("--untrusted", untrusted_,
                "The store may mean harm: read the shards alone, never the manifest, in a sandbox");
  app_.set_version_flag("--version", "checkpoint-inspect " TIDEMARK_VERSION);
  app_.footer(kFooter);
  app_.require_subcommand(1);
  app_.fallthrough();
}

CLI::App* CommandLine::Add(CommandGroup group, const std::string& name, const std::string& description) {
  return app_.add_subcommand(name, description)->group(GroupName(group));
}

CLI::App* CommandLine::AddReader(CommandGroup group, const std::string& name, const std::string& description,
                                 std::function<ExitCode(const Invocation&)> run) {
  CLI::App* command = Add(group, name, description);
  command->final_callback(
      [this, run = std::move(run)] { chosen_ = [run](const Session& session) { return WithStore(session, run); }; });
  return command;
}

CLI::App* CommandLine::AddWriter(CommandGroup group, const std::string& name, const std::string& description,
                                 std::function<ExitCode(const Session&)> run) {
  CLI::App* command = Add(group, name, description);
  command->final_callback([this, name, run = std::move(run)] {
    chosen_ = [name, run](const Session& session) {
      if (session.untrusted) {
        session.console.Fail(fmt::format("{} writes files, which --untrusted gives up the right to", name));
        return ExitCode::kUsage;
      }
      return run(session);
    };
  });
  return command;
}

CLI::App* CommandLine::AddReaderThatWrites(CommandGroup group, const std::string& name, const std::string& description,
                                           std::function<ExitCode(const Invocation&)> run) {
  return AddWriter(group, name, description,
                   [run = std::move(run)](const Session& session) { return WithStore(session, run); });
}

// CLI11 throws where the command line is wrong, and for --help and --version.
ExitCode CommandLine::Run(Console& console, int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_.exit(error) == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
  if (app_.count("--store") == 0) {
    const char* named = std::getenv("TIDEMARK_STORE");
    store_ = named == nullptr || *named == '\0' ? "." : named;
  } else if (store_.empty()) {
    console.Fail("--store names no directory");
    return ExitCode::kUsage;
  }
  const ExitCode code = chosen_({console, store_, json_, untrusted_, absl::Now()});
  return IsInterrupted() ? ExitCode::kInterrupted : code;
}

CLI::Option* AddSelector(CLI::App* command, const std::string& name, Selector& target, const std::string& description) {
  return command
      ->add_option_function<std::string>(
          name, [&target](const std::string& text) { target = ParseOrThrow(text); }, description)
      ->type_name("");
}

CLI::Option* AddSelector(CLI::App* command, const std::string& name, std::optional<Selector>& target,
                         const std::string& description) {
  return command
      ->add_option_function<std::string>(
          name, [&target](const std::string& text) { target = ParseOrThrow(text); }, description)
      ->type_name("");
}

ExitCode WithStore(const Session& session, const std::function<ExitCode(const Invocation&)>& run) {
  Console& console = session.console;
  // Here, for what follows can look for no link outside of the store any more.
  const std::string directory = session.untrusted ? storage::FollowLinks(session.directory) : session.directory;
  if (session.untrusted) {
    const absl::StatusOr<std::string> lacking = EnterSandbox(directory);
    if (!lacking.ok()) {
      console.Fail(lacking.status());
      return OpenExitCode(lacking.status());
    }
    if (!lacking->empty()) console.Warn(*lacking);
  }
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = OpenStore(directory, session.untrusted);
  if (!reader.ok()) {
    console.Fail(reader.status());
    return OpenExitCode(reader.status());
  }
  if (const absl::Status& problem = (*reader)->manifest_problem(); !problem.ok()) {
    console.Warn(fmt::format("the manifest cannot be read, and the steps are those of the shards: {}",
                             std::string(problem.message())));
  }
  NameUnread(console, (*reader)->unread());
  return run({console, **reader, session.directory, session.json, session.now});
}

}  // namespace tidemark::inspect
