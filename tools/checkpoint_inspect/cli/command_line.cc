#include "tools/checkpoint_inspect/cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/link_free_path.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"
#include "tools/checkpoint_inspect/cli/sandbox.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/tensors/entry_selection.h"

namespace tidemark::inspect {
namespace {

constexpr const char* kFooter = R"(
A store is the directory into which a training run saves its steps. A METRIC is a number that was saved with a step,
or reported for it as EVALUATOR/NAME; 'ls' shows them. A SIZE is a number of bytes, as 5GB or 512MiB: kB, MB, GB and
TB are powers of 1000, KiB, MiB, GiB and TiB of 1024.

STEP is one of:
  1000                 that step; also step:1000
  latest               the highest committed step
  latest-healthy       the highest committed step that no evaluator called unhealthy
  best:METRIC          the committed, healthy step whose METRIC is the best; NaN and infinite values do not count
  best:METRIC:highest  the same with the highest value, or with :lowest the lowest. Without either: what the trainer
                       recorded, else what the name tells (loss, accuracy), else an error
  tag:NAME             the committed step that has this tag, else the damaged, lost or deleted one

Examples:
  cd run/ckpt                                          enter the store, or give --store run/ckpt each time
  checkpoint-inspect ls                                which steps are there?
  checkpoint-inspect show best:METRIC                  which step is best?
  checkpoint-inspect history METRIC                    how did it get there?
  checkpoint-inspect history METRIC --plot             the same, drawn
  checkpoint-inspect diff 1000 latest                  what changed between two steps?
  checkpoint-inspect verify                            is this store sound?
  checkpoint-inspect stats                             why is the disk filling, and when is it full?
  checkpoint-inspect report -o page.html               all of this on one page, to look at or to send
  checkpoint-inspect pin 1000 --note 'for the paper'   keep a step from being deleted
  checkpoint-inspect prune --keep-latest 3 --keep-best METRIC    which steps could be deleted? --apply does it
  checkpoint-inspect export best:METRIC -o best.safetensors    get the best step out, for other tools
  checkpoint-inspect --store downloaded --untrusted verify     check a store from a stranger
  checkpoint-inspect doctor /data/run                  can a store be there?

'checkpoint-inspect COMMAND --help' has more on each. Commands that only read may run beside a live trainer.

Exit status:
  0 ok, 1 failure, 2 usage, 3 damaged but a valid step remains, 10 no store, 11 the store is in use,
  12 nothing restorable, 13 integrity failure, 14 written by another version, 130 interrupted;
  of diff: 0 the same, 1 different, 2 trouble)";

// A store may hold any number of attempts that cannot be read.
constexpr size_t kUnreadNamedMax = 10;

// More than a command line has room for.
constexpr int kTextsMax = 1 << 20;

// Names of these options in other tools.
struct OtherName {
  std::string_view given;
  std::string_view meant;
};
constexpr OtherName kOtherNames[] = {{"check", "verify"},        {"cleanup", "prune"},    {"completion", "completions"},
                                     {"delete", "prune"},        {"df", "stats"},         {"du", "stats"},
                                     {"forget", "prune"},        {"fsck", "verify"},      {"gc", "prune"},
                                     {"help", "--help"},         {"info", "show"},        {"list", "ls"},
                                     {"log", "history"},         {"man", "man-page"},     {"manifest", "journal"},
                                     {"plot", "history --plot"}, {"remove", "prune"},     {"rm", "prune"},
                                     {"version", "--version"},   {"watch", "ls --follow"}};

void NameUnread(Console& console, const std::vector<std::string>& unread) {
  for (size_t i = 0; i < std::min(unread.size(), kUnreadNamedMax); ++i) {
    console.Warn("not listed, because it could not be read: " + unread[i]);
  }
  if (unread.size() > kUnreadNamedMax) {
    console.Warn(fmt::format("{} more could not be read", unread.size() - kUnreadNamedMax));
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
    case CommandGroup::kShell:
      return "Set up the shell";
    case CommandGroup::kHidden:
      break;
  }
  return "";
}

StepSelector ParseOrThrow(const std::string& text) {
  absl::StatusOr<StepSelector> selector = StepSelector::Parse(text);
  if (!selector.ok()) throw CLI::ValidationError(std::string(selector.status().message()));
  return *std::move(selector);
}

// Which options exclude each other their descriptions say in words.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
};

bool IsListed(const CLI::App* command) { return !command->get_group().empty(); }

bool IsOption(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

void AddOptionNames(const CLI::App& app, bool of_commands, std::vector<std::string>& names) {
  const auto is_listed = [](const CLI::Option* option) { return !option->get_group().empty(); };
  for (const CLI::Option* option : app.get_options(is_listed)) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (!of_commands) return;
  for (const CLI::App* command : app.get_subcommands(IsListed)) AddOptionNames(*command, true, names);
}

// `within`: the program, or the command that was given. `word`: as it was given, with its value perhaps.
std::string WrongOption(const CLI::App& app, const CLI::App& within, const std::string& word) {
  const std::string given = word.substr(0, word.find('='));
  const std::string text = fmt::format("unknown option '{}'", given);
  if (!given.starts_with("--")) return text;
  std::vector<std::string> names;
  AddOptionNames(within, true, names);
  if (&within != &app) AddOptionNames(app, false, names);
  return fmt::format("{}; nearest: {}", text, fmt::join(NearestNames(given, names), ", "));
}

// CLI11 says that a command is missing where one is given that it does not know. `within`: the program, or a command
// that has commands of its own.
std::string WrongCommand(const CLI::App& within, const std::vector<std::string>& rest) {
  if (rest.empty()) return "no command is given";
  std::vector<std::string> commands;
  for (const CLI::App* command : within.get_subcommands(IsListed)) commands.push_back(command->get_name());
  const auto meant = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                  [&](const OtherName& other) { return other.given == rest.front(); });
  const bool is_program = within.get_parent() == nullptr;
  if (is_program && meant != std::end(kOtherNames)) {
    return fmt::format("unknown command '{}'; did you mean '{}'?", rest.front(), meant->meant);
  }
  return fmt::format("unknown command '{}'; nearest: {}", rest.front(),
                     fmt::join(NearestNames(rest.front(), commands), ", "));
}

std::string WrongUsage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* within = &app;
  std::string command = "checkpoint-inspect ";
  while (!within->get_subcommands().empty()) {
    within = within->get_subcommands().front();
    command += within->get_name() + " ";
  }
  const bool lacks_command =
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !within->get_subcommands(IsListed).empty();
  const std::vector<std::string> rest = app.remaining();
  const auto option = std::find_if(rest.begin(), rest.end(), IsOption);
  std::string what = error.what();
  // Before all else, for the value of a misspelt option is taken for a command or an argument.
  if (option != rest.end() && (!lacks_command || option == rest.begin())) {
    what = WrongOption(app, *within, *option);
  } else if (lacks_command) {
    what = WrongCommand(*within, rest);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && what.find(": ") != std::string::npos) {
    // "The following argument was not expected: 180"
    what = fmt::format("'{}' is one argument too many", what.substr(what.rfind(": ") + 2));
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.find("At Most 1") != what.npos) {
    what = fmt::format("{} may be given once", what.substr(0, what.find(':')));
  }
  return fmt::format("{}; see '{}--help'", what, command);
}

}  // namespace

CommandLine::CommandLine()
    : app_("Lists, shows, compares, verifies and exports the checkpoints of a Tidemark store.", "checkpoint-inspect") {
  app_.add_option("--store", store_, "The store's directory; by default $TIDEMARK_STORE, else the current directory")
      ->type_name("DIR");
  app_.add_flag("--json", json_, "Print JSON, see docs/checkpoint-inspect.md");
  app_.add_flag("--untrusted", untrusted_,
                "The store may be malicious: read it in a sandbox, and open no database of it");
  app_.set_version_flag("--version", "checkpoint-inspect " TIDEMARK_VERSION);
  app_.formatter(std::make_shared<HelpFormatter>());
  app_.footer(kFooter);
  app_.require_subcommand(1);
  app_.fallthrough();
}

CLI::App* CommandLine::Add(const CommandTraits& traits, std::function<ExitCode(const Invocation&)> run) {
  return Add(traits, [run = std::move(run)](const Session& session) { return WithStore(session, run); });
}

CLI::App* CommandLine::Add(const CommandTraits& traits, std::function<ExitCode(const Session&)> run) {
  const std::string why_trusted =
      traits.writes ? fmt::format("{} writes files; --untrusted allows no command that does", traits.name)
                    : traits.why_trusted;
  CLI::App* command = app_.add_subcommand(traits.name, traits.description)->group(GroupName(traits.group));
  command->final_callback([this, why_trusted, trouble = traits.trouble, run = std::move(run)] {
    trouble_ = trouble;
    chosen_ = [why_trusted, run](const Session& session) {
      if (!session.untrusted || !session.confined || why_trusted.empty()) return run(session);
      session.console.Fail(why_trusted);
      return ExitCode::kUsage;
    };
  });
  return command;
}

ExitCode CommandLine::Run(Console& console, int argc, const char* const* argv) {
  return ParseAndRun(console, argc, argv, /*confined=*/true);
}

ExitCode CommandLine::RunUnconfined(Console& console, int argc, const char* const* argv) {
  return ParseAndRun(console, argc, argv, /*confined=*/false);
}

// CLI11 throws where the command line is wrong, and for --help and --version.
ExitCode CommandLine::ParseAndRun(Console& console, int argc, const char* const* argv, bool confined) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream text;
      app_.exit(error, text, text);
      console.PrintData(text.str());
      return ExitCode::kOk;
    }
    console.Fail(WrongUsage(app_, error));
    return ExitCode::kUsage;
  }
  if (app_.count("--store") == 0) {
    const char* named = std::getenv("TIDEMARK_STORE");
    store_ = named == nullptr || *named == '\0' ? "." : named;
  } else if (store_.empty()) {
    console.Fail("--store names no directory");
    return ExitCode::kUsage;
  }
  return chosen_({console, store_, json_, untrusted_, absl::Now(), confined});
}

CLI::Option* AddSelector(CLI::App* command, const std::string& name, StepSelector& target,
                         const std::string& description) {
  CLI::Option* option = command->add_option_function<std::string>(
      name, [&target](const std::string& text) { target = ParseOrThrow(text); }, description);
  MarkAsStep(option);
  return option->type_name("");
}

CLI::Option* AddSelector(CLI::App* command, const std::string& name, std::optional<StepSelector>& target,
                         const std::string& description) {
  CLI::Option* option = command->add_option_function<std::string>(
      name, [&target](const std::string& text) { target = ParseOrThrow(text); }, description);
  MarkAsStep(option);
  return option->type_name("");
}

// CLI11 takes a text in brackets apart where extra arguments are allowed, as its own lists allow them. Without that an
// option takes one value each time that it is given, and positional arguments as many as there must be. That there are
// fewer is an error only where the policy is another one.
CLI::Option* AddTexts(CLI::App* command, const std::string& name, SetTexts set, const std::string& description) {
  const CLI::callback_t take = [set = std::move(set)](const CLI::results_t& texts) {
    set(texts);
    return true;
  };
  CLI::Option* option = command->add_option(name, take, description);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->expected(option->nonpositional() ? 1 : kTextsMax, /*value_max=*/-1);
  return option->type_name("TEXT");
}

CLI::Option* AddTexts(CLI::App* command, const std::string& name, std::vector<std::string>& target,
                      const std::string& description) {
  return AddTexts(
      command, name, [&target](const std::vector<std::string>& texts) { target = texts; }, description);
}

std::string CheckPositive(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = end == text.data() + text.size() && error != std::errc::invalid_argument;
  if (is_number && error == std::errc() && number >= 1) return "";
  const bool is_too_large = error == std::errc::result_out_of_range && !text.starts_with('-');
  if (is_number && is_too_large) return fmt::format("{} is out of range", text);
  return is_number ? fmt::format("must be at least 1, not {}", text)
                   : fmt::format("must be a whole number of at least 1, not '{}'", text);
}

ExitCode WithStore(const Session& session, const std::function<ExitCode(const Invocation&)>& run) {
  Console& console = session.console;
  // Here, for what follows can look for no link outside of the store any more.
  const std::string link_free = storage::FollowLinks(session.directory);
  const std::string& directory = session.untrusted ? link_free : session.directory;
  if (session.untrusted) {
    const absl::StatusOr<std::string> lacking = session.confined ? EnterSandbox(directory) : std::string();
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
  if (const absl::Status& problem = (*reader)->journal_problem(); !problem.ok()) {
    console.Warn(fmt::format("the journal cannot be read, so the steps are read from the shards: {}",
                             std::string(problem.message())));
  }
  NameUnread(console, (*reader)->unread());
  return run({console, **reader, session.directory, session.json, session.now, link_free, session.untrusted});
}

}  // namespace tidemark::inspect
