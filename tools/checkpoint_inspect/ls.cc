#include <algorithm>
#include <memory>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

// Of a row of ls; show and JSON have all metrics.
constexpr size_t kMetricsColumnsMax = 48;

// Of retention's and evaluators' doing; there may be many more of them than of the others.
bool IsBygone(const StepInfo& info) { return info.state == StepState::kDeleted || info.state == StepState::kUnsaved; }

size_t Count(const StoreReader& reader, StepState state) {
  return static_cast<size_t>(std::count_if(reader.steps().begin(), reader.steps().end(),
                                           [state](const StepInfo& info) { return info.state == state; }));
}

std::string ListAsJson(const Invocation& invocation, bool all) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  Json& steps = document["steps"] = Json::array();
  for (const StepInfo& info : invocation.reader.steps()) {
    if (all || !IsBygone(info)) steps.push_back(ToJson(info));
  }
  document["left_out"] = {{"deleted", all ? 0 : Count(invocation.reader, StepState::kDeleted)},
                          {"unsaved", all ? 0 : Count(invocation.reader, StepState::kUnsaved)}};
  return Dump(document);
}

std::string ListAsTable(const Invocation& invocation, bool all) {
  using enum Table::Align;
  Table table({{"STEP", kRight},
               {"AGE", kRight},
               {"STATE"},
               {"METRICS"},
               {"LOGICAL", kRight},
               {"STORED", kRight},
               {"RATIO", kRight},
               {"REUSED", kRight}});
  for (const StepInfo& info : invocation.reader.steps()) {
    if (!all && IsBygone(info)) continue;
    table.AddRow({{fmt::format("{}", info.step)},
                  {AgeOf(info, invocation.now)},
                  {std::string(StepStateName(info.state)), StateColour(info.state)},
                  {Shorten(MetricsText(info.metrics), kMetricsColumnsMax)},
                  {HumanBytes(info.logical_bytes)},
                  {HumanBytes(info.stored_bytes)},
                  {Ratio(info.logical_bytes, info.stored_bytes)},
                  {ReusedShare(info.reused_bytes, info.stored_bytes)}});
    if (!info.reason.empty()) table.AddNote(Escape(info.reason));
    if (const std::string unhealthy = info.unhealthy(); !unhealthy.empty()) {
      table.AddNote("unhealthy: " + Escape(unhealthy));
    }
    if (info.pinned) table.AddNote(info.pin_note.empty() ? "pinned" : "pinned: " + Escape(info.pin_note));
    if (!info.kept.empty()) table.AddNote("kept: " + Escape(info.kept));
  }
  return table.Format(invocation.console);
}

}  // namespace

ExitCode ListSteps(const Invocation& invocation, bool all) {
  invocation.console.PrintData(invocation.json ? ListAsJson(invocation, all) : ListAsTable(invocation, all));
  if (invocation.reader.steps().empty()) {
    invocation.console.Note(fmt::format("there are no steps in {}", invocation.directory));
  }
  const size_t deleted = all ? 0 : Count(invocation.reader, StepState::kDeleted);
  const size_t unsaved = all ? 0 : Count(invocation.reader, StepState::kUnsaved);
  if (deleted + unsaved > 0 && !invocation.json) {
    invocation.console.Note(
        fmt::format("left out: {} deleted, {} evaluated and never saved; --all lists them", deleted, unsaved));
  }
  return StoreExitCode(invocation.reader);
}

void AddLs(CommandLine& line) {
  const auto all = std::make_shared<bool>(false);
  CLI::App* ls = line.AddReader(CommandGroup::kLook, "ls", "List the steps: age, state, metrics and sizes",
                                [all](const Invocation& invocation) { return ListSteps(invocation, *all); });
  ls->add_flag("--all", *all, "Also those that were deleted, or evaluated and never saved");
  ls->footer(R"(
Example:
  checkpoint-inspect --store run/ckpt ls
  TIDEMARK_STORE=run/ckpt checkpoint-inspect --json ls)");
}

}  // namespace tidemark::inspect
