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

std::string ListAsJson(const Invocation& invocation) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  Json& steps = document["steps"] = Json::array();
  for (const StepInfo& info : invocation.reader.steps()) steps.push_back(ToJson(info));
  return Dump(document);
}

std::string ListAsTable(const Invocation& invocation) {
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
    table.AddRow({{fmt::format("{}", info.step)},
                  {AgeOf(info, invocation.now)},
                  {std::string(StepStateName(info.state)), StateColour(info.state)},
                  {Shorten(MetricsText(info.metrics), kMetricsColumnsMax)},
                  {HumanBytes(info.logical_bytes)},
                  {HumanBytes(info.stored_bytes)},
                  {Ratio(info.logical_bytes, info.stored_bytes)},
                  {ReusedShare(info.reused_bytes, info.stored_bytes)}});
    if (!info.reason.empty()) table.AddNote(Escape(info.reason));
  }
  return table.Format(invocation.console);
}

}  // namespace

ExitCode ListSteps(const Invocation& invocation) {
  invocation.console.PrintData(invocation.json ? ListAsJson(invocation) : ListAsTable(invocation));
  if (invocation.reader.steps().empty()) {
    invocation.console.Note(fmt::format("there are no steps in {}", invocation.directory));
  }
  return StoreExitCode(invocation.reader);
}

}  // namespace tidemark::inspect
