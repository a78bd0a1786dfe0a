#include <functional>
#include <memory>
#include <vector>

#include "fmt/compile.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Of retention's and evaluators' doing; there may be many more of them than of the others.
bool IsBygone(const StepInfo& info) { return info.state == StepState::kDeleted || info.state == StepState::kUnsaved; }

struct Listing {
  std::vector<const StepInfo*> steps;
  size_t deleted = 0;  // how many are not among them
  size_t unsaved = 0;
  size_t earlier = 0;
};

Listing Choose(const StoreReader& reader, const ListOptions& options) {
  Listing listing;
  for (const StepInfo& info : reader.Steps()) {
    if (options.all || !IsBygone(info)) {
      listing.steps.push_back(&info);
    } else {
      ++(info.state == StepState::kDeleted ? listing.deleted : listing.unsaved);
    }
  }
  if (options.last && listing.steps.size() > static_cast<uint64_t>(*options.last)) {
    listing.earlier = listing.steps.size() - static_cast<size_t>(*options.last);
    listing.steps.erase(listing.steps.begin(), listing.steps.begin() + static_cast<ptrdiff_t>(listing.earlier));
  }
  Arrange(options.order, listing.steps);
  return listing;
}

void PrintAsJson(const Invocation& invocation, const Listing& listing) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["left_out"] = {{"deleted", listing.deleted}, {"unsaved", listing.unsaved}, {"earlier", listing.earlier}};
  size_t unread = 0;
  PrintWithArray(invocation.console, document, "steps", [&](const std::function<void(const Json&)>& add) {
    for (const StepInfo* info : listing.steps) {
      const Json step = ToJson(*info);
      if (step.at("user_metadata").is_null()) ++unread;
      add(step);
    }
  });
  if (unread > 0) {
    invocation.console.Note(
        fmt::format("the user metadata of {} step{} is null, because it is not a JSON object of at most {}", unread,
                    unread == 1 ? "" : "s", MetadataLimits()));
  }
}

// Nothing was held up for a step that was only evaluated.
std::string BlockedText(const StepInfo& info) {
  if (info.state == StepState::kUnsaved) return "-";
  return fmt::format(FMT_COMPILE("{:.1f} ms"), absl::ToDoubleMilliseconds(info.blocked));
}

std::string StateText(const StepInfo& info) {
  return std::string(StepStateName(info.state)) + (info.pinned ? ", pinned" : "");
}

std::string ListAsTable(const Invocation& invocation, const Listing& listing, const StepOrder& order) {
  using enum Table::Align;
  using enum Table::Narrow;
  Table table({{"STEP", kRight},
               {"AGE", kRight, kWhole, 6},
               {"STATE"},
               {"METRICS", kLeft, kCut},
               {"LOGICAL", kRight, kWhole, 3},
               {"STORED", kRight, kWhole, 5},
               {"RATIO", kRight, kWhole, 1},
               {"REUSED", kRight, kWhole, 2},
               {"BLOCKED", kRight, kWhole, 4}});
  for (const StepInfo* listed : listing.steps) {
    const StepInfo& info = *listed;
    table.AddRow({{std::to_string(info.step)},
                  {AgeOf(info, invocation.now)},
                  {StateText(info), StateColour(info.state)},
                  {MetricsText(info.metrics, order.metric)},
                  {HumanBytes(info.logical_bytes)},
                  {HumanBytes(info.stored_bytes)},
                  {Ratio(info.logical_bytes, info.stored_bytes)},
                  {ReusedShare(info.reused_bytes, info.stored_bytes)},
                  {BlockedText(info)}});
    if (!info.reason.empty()) table.AddNote(Escape(info.reason));
    if (const std::string unhealthy = info.unhealthy(); !unhealthy.empty()) {
      table.AddNote("unhealthy: " + Escape(unhealthy));
    }
    if (!info.pin_note.empty() || !info.tags.empty()) table.AddNote(Escape(PinText(info)));
    if (const std::string kept = KeptText(info); !kept.empty()) table.AddNote("kept: " + Escape(kept));
  }
  return table.Format(invocation.console);
}

// "8 deleted steps and 1 step that was evaluated and not saved are not shown; --all shows them"
std::string LeftOutText(const Listing& listing) {
  const auto count = [](size_t steps, std::string_view one, std::string_view many) {
    return steps == 0 ? std::string() : fmt::format("{} {}", steps, steps == 1 ? one : many);
  };
  const std::string deleted = count(listing.deleted, "deleted step", "deleted steps");
  const std::string unsaved =
      count(listing.unsaved, "step that was evaluated and not saved", "steps that were evaluated and not saved");
  const bool both = !deleted.empty() && !unsaved.empty();
  const bool one = listing.deleted + listing.unsaved == 1;
  return fmt::format("{}{}{} {} not shown; --all shows {}", deleted, both ? " and " : "", unsaved, one ? "is" : "are",
                     one ? "it" : "them");
}

}  // namespace

ExitCode ListSteps(const Invocation& invocation, const ListOptions& options) {
  Console& console = invocation.console;
  if (options.order.key == StepOrder::Key::kMetric) {
    constexpr MetricPlace kPlace = {.before = "--sort metric:",
                                    .no_end = "not valid: the highest value is always last"};
    if (const absl::Status known = CheckMetric(invocation.reader, options.order.metric, kPlace); !known.ok()) {
      console.Fail(known);
      return ExitCode::kFailure;
    }
  }
  const Listing listing = Choose(invocation.reader, options);
  if (invocation.json) {
    PrintAsJson(invocation, listing);
  } else {
    console.PrintData(ListAsTable(invocation, listing, options.order));
  }
  if (invocation.reader.Steps().empty()) console.Note(fmt::format("there are no steps in {}", invocation.directory));
  if (listing.deleted + listing.unsaved > 0 && !invocation.json) {
    console.Note(LeftOutText(listing));
  }
  return StoreExitCode(invocation.reader);
}

void AddLs(CommandLine& line) {
  const auto options = std::make_shared<ListOptions>();
  const auto follow = std::make_shared<bool>(false);
  CLI::App* ls = line.Add({.group = CommandGroup::kLook,
                           .name = "ls",
                           .description = "List the steps: age, state, metrics, sizes, and why each is kept"},
                          [options, follow](const Invocation& invocation) {
                            return *follow ? FollowSteps(invocation) : ListSteps(invocation, *options);
                          });
  CLI::Option* all =
      ls->add_flag("--all", options->all, "Also list deleted steps, and steps that were evaluated and never saved");
  CLI::Option* sort = ls->add_option_function<std::string>(
                            "--sort",
                            [options](const std::string& text) {
                              absl::StatusOr<StepOrder> order = ParseStepOrder(text);
                              if (!order.ok()) throw CLI::ValidationError(std::string(order.status().message()));
                              options->order = *std::move(order);
                            },
                            fmt::format("Sort by {}, the largest last; by default step", kStepOrderHelp))
                          ->type_name("KEY");
  CLI::Option* last = ls->add_option_function<int64_t>(
                            "--last", [options](const int64_t& count) { options->last = count; },
                            "Only the N steps with the highest numbers, also with --sort")
                          ->check(CheckPositive)
                          ->type_name("N");
  ls->add_flag(
        "--follow", *follow,
        "Print a line of JSON for each step that is committed from now on, until Ctrl-C; not with the options above")
      ->excludes(all, sort, last);
  ls->footer(R"(
  LOGICAL   bytes of the tensors and values, as they are in memory
  STORED    bytes of the step's files
  RATIO     STORED divided by LOGICAL
  REUSED    the share of the step's bytes that lies in files of earlier steps
  BLOCKED   how long the training waited for the save
On a narrow terminal some columns and metrics are left out; a pipe gets all. 'show STEP' has all metrics.

--last counts before --sort: --sort metric:loss --last 20 takes the 20 steps with the highest numbers, and sorts
these. For the best step of all: 'show best:METRIC'.

Examples:
  checkpoint-inspect --store run/ckpt ls
  checkpoint-inspect --store run/ckpt ls --sort metric:validation/loss --last 20
  checkpoint-inspect --store run/ckpt ls --follow | jq .metrics
  TIDEMARK_STORE=run/ckpt checkpoint-inspect --json ls)");
}

}  // namespace tidemark::inspect
