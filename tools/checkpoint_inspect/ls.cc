#include <functional>
#include <memory>
#include <vector>

#include "fmt/compile.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/text.h"

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
  for (const StepInfo& info : reader.steps()) {
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
        fmt::format("the user metadata of {} step{} is null, since it is no JSON object of at most {}", unread,
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
  Table table({{"STEP", kRight},
               {"AGE", kRight},
               {"STATE"},
               {"METRICS", kLeft, /*may_cut=*/true},
               {"LOGICAL", kRight},
               {"STORED", kRight},
               {"RATIO", kRight},
               {"REUSED", kRight},
               {"BLOCKED", kRight}});
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

}  // namespace

ExitCode ListSteps(const Invocation& invocation, const ListOptions& options) {
  Console& console = invocation.console;
  if (options.order.key == StepOrder::Key::kMetric) {
    constexpr MetricPlace kPlace = {.before = "--sort metric:", .no_end = "takes no end, for the highest comes last"};
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
  if (invocation.reader.steps().empty()) console.Note(fmt::format("there are no steps in {}", invocation.directory));
  if (listing.deleted + listing.unsaved > 0 && !invocation.json) {
    console.Note(fmt::format("left out: {} deleted, {} evaluated and never saved; --all lists them", listing.deleted,
                             listing.unsaved));
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
  CLI::Option* all = ls->add_flag("--all", options->all, "Also those that were deleted, or evaluated and never saved");
  CLI::Option* sort = ls->add_option_function<std::string>(
                            "--sort",
                            [options](const std::string& text) {
                              absl::StatusOr<StepOrder> order = ParseStepOrder(text);
                              if (!order.ok()) throw CLI::ValidationError(std::string(order.status().message()));
                              options->order = *std::move(order);
                            },
                            fmt::format("What to sort by, the largest last: {}; by default step", kStepOrderHelp))
                          ->type_name("KEY");
  CLI::Option* last = ls->add_option_function<int64_t>(
                            "--last", [options](const int64_t& count) { options->last = count; },
                            "Only so many, those with the highest step numbers, whatever --sort says")
                          ->check(CheckPositive)
                          ->type_name("N");
  ls->add_flag(
        "--follow", *follow,
        "Print a line of JSON for each step that is committed from now on, until Ctrl-C; without the options above")
      ->excludes(all, sort, last);
  ls->footer(R"(
  LOGICAL   bytes of the tensors and values, as they are in memory
  STORED    bytes of the step's files
  RATIO     STORED divided by LOGICAL
  REUSED    the share of its bytes that a step has in the files of earlier steps
  BLOCKED   how long the training waited for the save
METRICS are cut on a terminal that is too narrow for them, and nowhere else; 'show STEP' has all.

--last counts before --sort: --sort metric:loss --last 20 takes the 20 steps with the highest numbers, and puts these
in order. For the best step of all: 'show best:METRIC'.

Examples:
  checkpoint-inspect --store run/ckpt ls
  checkpoint-inspect --store run/ckpt ls --sort metric:validation/loss --last 20
  checkpoint-inspect --store run/ckpt ls --follow | jq .metrics
  TIDEMARK_STORE=run/ckpt checkpoint-inspect --json ls)");
}

}  // namespace tidemark::inspect
