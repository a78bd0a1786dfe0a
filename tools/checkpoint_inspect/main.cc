// checkpoint-inspect: looks into a store; only `repair --apply` changes it. docs/checkpoint-inspect.md is its manual.

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/link_free_path.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/console.h"
#include "tools/checkpoint_inspect/repair.h"
#include "tools/checkpoint_inspect/sandbox.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {
namespace {

constexpr const char* kFooter = R"(
Examples:
  checkpoint-inspect --store run/ckpt ls
  checkpoint-inspect --store run/ckpt show latest
  checkpoint-inspect --store run/ckpt history validation/loss
  checkpoint-inspect --store run/ckpt verify 1000
  checkpoint-inspect --store run/ckpt repair
  checkpoint-inspect --store downloaded --untrusted verify
  TIDEMARK_STORE=run/ckpt checkpoint-inspect --json ls

Exit status:
  0 ok, 1 failure, 2 usage, 3 damaged but a valid step remains, 10 no store, 12 nothing restorable,
  13 integrity failure, 14 written by a newer version)";

constexpr const char* kRepairFooter = R"(
Reads every byte of every committed step. Rebuilds a manifest that is missing or damaged, commits complete
attempts that are not recorded, moves damaged steps to quarantine/, and removes what dead processes have left.

Example:
  checkpoint-inspect --store run/ckpt repair
  checkpoint-inspect --store run/ckpt repair --apply)";

// A store may hold any number of attempts that cannot be read.
constexpr size_t kUnreadNamedMax = 10;

struct Arguments {
  std::string store;
  bool json = false;
  bool untrusted = false;
  bool all = false;
  bool apply = false;
  std::string step;
  std::vector<std::string> metrics;
};

void NameUnread(Console& console, const std::vector<std::string>& unread) {
  for (size_t i = 0; i < std::min(unread.size(), kUnreadNamedMax); ++i) {
    console.Warn("not among the steps, for it could not be read: " + unread[i]);
  }
  if (unread.size() > kUnreadNamedMax) {
    console.Warn(fmt::format("nor could {} more be read", unread.size() - kUnreadNamedMax));
  }
}

// Runs the command that was chosen; its usage has been checked.
ExitCode RunCommand(Console& console, const CLI::App& app, const Arguments& arguments, std::optional<int64_t> step) {
  // Here, for what follows can look for no link outside of the store any more.
  const std::string directory = arguments.untrusted ? storage::FollowLinks(arguments.store) : arguments.store;
  if (arguments.untrusted) {
    const absl::StatusOr<std::string> lacking = EnterSandbox(directory);
    if (!lacking.ok()) {
      console.Fail(lacking.status());
      return OpenExitCode(lacking.status());
    }
    if (!lacking->empty()) console.Warn(*lacking);
  }
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = OpenStore(directory, arguments.untrusted);
  if (!reader.ok()) {
    console.Fail(reader.status());
    return OpenExitCode(reader.status());
  }
  if (const absl::Status& problem = (*reader)->manifest_problem(); !problem.ok()) {
    console.Warn(fmt::format("the manifest cannot be read, and the steps are those of the shards: {}",
                             std::string(problem.message())));
  }
  NameUnread(console, (*reader)->unread());
  const Invocation invocation{console, **reader, arguments.store, arguments.json, absl::Now()};
  if (app.got_subcommand("show")) return ShowStep(invocation, step);
  if (app.got_subcommand("verify")) return VerifySteps(invocation, step);
  if (app.got_subcommand("history")) return ShowHistory(invocation, arguments.metrics);
  return ListSteps(invocation, arguments.all);
}

// CLI11 throws where the command line is wrong, and for --help and --version.
ExitCode Run(Console& console, int argc, char** argv) {
  CLI::App app(
      "Lists, shows and verifies the checkpoints of a Tidemark store. Changes nothing, but for repair --apply; may run "
      "beside a live trainer, but for repair.",
      "checkpoint-inspect");
  Arguments arguments;
  app.add_option("--store", arguments.store, "The store; by default $TIDEMARK_STORE, else the current directory")
      ->type_name("DIR");
  app.add_flag("--json", arguments.json, "Print JSON, see docs/checkpoint-inspect.md");
  app.add_flag("--untrusted", arguments.untrusted,
               "The store may mean harm: read the shards alone, never the manifest, in a sandbox");
  app.set_version_flag("--version", "checkpoint-inspect " TIDEMARK_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* ls = app.add_subcommand("ls", "List the steps: age, state, metrics and sizes");
  ls->add_flag("--all", arguments.all, "Also those that were deleted, or evaluated and never saved");
  CLI::App* show = app.add_subcommand("show", "Show one step: its record, shards and entries");
  show->add_option("STEP", arguments.step, "A step, or 'latest'")->required();
  CLI::App* history = app.add_subcommand("history", "List what evaluators said of each step, deleted ones included");
  history->add_option("METRIC", arguments.metrics, "Show these metrics instead, step by step");
  CLI::App* verify = app.add_subcommand("verify", "Read every byte and hold it against its checksum");
  verify->add_option("STEP", arguments.step, "A step; by default every committed one");
  CLI::App* repair = app.add_subcommand("repair", "Say what is out of order in the store, and what would mend it");
  repair->add_flag("--apply", arguments.apply, "Do it. Takes the store's lock meanwhile");
  repair->footer(kRepairFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
  if (app.count("--store") == 0) {
    const char* named = std::getenv("TIDEMARK_STORE");
    arguments.store = named == nullptr || *named == '\0' ? "." : named;
  } else if (arguments.store.empty()) {
    console.Fail("--store names no directory");
    return ExitCode::kUsage;
  }
  const bool wants_latest = show->parsed() && arguments.step == "latest";
  const bool names_step = show->parsed() || verify->count("STEP") > 0;
  std::optional<int64_t> step;
  if (names_step && !wants_latest) {
    step = ParseStep(arguments.step);
    if (!step) {
      console.Fail(fmt::format("'{}' is not a step; a step is a number from 0 on", arguments.step));
      return ExitCode::kUsage;
    }
  }
  if (repair->parsed() && arguments.untrusted) {
    console.Fail("repair writes into the store, which --untrusted gives up the right to");
    return ExitCode::kUsage;
  }
  if (repair->parsed()) return RepairDirectory(console, arguments.store, arguments.apply, arguments.json);
  return RunCommand(console, app, arguments, step);
}

}  // namespace
}  // namespace tidemark::inspect

int main(int argc, char** argv) {
  using tidemark::inspect::ExitCode;
  // Whoever started us may ignore SIGPIPE. A reader that has seen enough ends us without a word.
  std::signal(SIGPIPE, SIG_DFL);
  tidemark::inspect::Console console;
  ExitCode code = ExitCode::kFailure;
  try {
    code = tidemark::inspect::Run(console, argc, argv);
  } catch (const std::exception& error) {
    console.Fail(error.what());
  }
  if (const absl::Status written = console.FlushData(); !written.ok()) {
    console.Fail(written);
    code = ExitCode::kFailure;
  }
  return static_cast<int>(code);
}
