// The hidden command `names`: what the completion scripts offer out of a store.

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/step_source.h"

namespace tidemark::inspect {
namespace {

// Names are printed one a line, and a shell shows them. A name with characters that Escape replaces is left out.
void PrintNames(Console& console, std::string_view prefix, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    if (!name.empty() && Escape(name) == name) console.PrintData(fmt::format("{}{}\n", prefix, name));
  }
}

std::set<std::string> MetricNames(const StoreReader& reader) {
  std::set<std::string> metrics;
  for (const StepInfo& info : reader.Steps()) {
    for (const auto& [name, value] : info.metrics) metrics.insert(name);
  }
  return metrics;
}

// A metric that has no mode, with both of them, as best: then requires.
std::set<std::string> BestMetrics(const StoreReader& reader) {
  std::set<std::string> metrics;
  for (const std::string& name : MetricNames(reader)) {
    if (StepSelector::Best(name).WithMode(reader.recorded_best_modes()).ok()) {
      metrics.insert(name);
    } else {
      metrics.insert({name + ":lowest", name + ":highest"});
    }
  }
  return metrics;
}

void PrintStepNames(const Invocation& invocation) {
  std::set<std::string> tags;
  for (const StepInfo& info : invocation.reader.Steps()) {
    if (IsOnDisk(info)) invocation.console.PrintData(fmt::format("{}\n", info.step));
    tags.insert(info.tags.begin(), info.tags.end());
  }
  PrintNames(invocation.console, "best:", BestMetrics(invocation.reader));
  PrintNames(invocation.console, "tag:", tags);
}

// The entries of the latest step, and a pattern for each part before the first dot. Nearly all steps of a store have
// the same entries.
ExitCode PrintEntryNames(const Invocation& invocation) {
  StepSource source;
  const ExitCode code = OpenStepSource(invocation, StepSelector::Latest(), &source);
  if (code != ExitCode::kOk) return code;
  std::set<std::string> names;
  for (const StoredEntry& entry : source.tensors->entries()) {
    const std::string& name = entry.spec.name;
    names.insert(name);
    if (const size_t dot = name.find('.'); dot != std::string::npos) names.insert(name.substr(0, dot) + ".*");
  }
  PrintNames(invocation.console, "", names);
  return ExitCode::kOk;
}

}  // namespace

void AddShellNames(CommandLine& line) {
  const auto kind = std::make_shared<std::string>();
  CLI::App* names = line.Add({.group = CommandGroup::kHidden,
                              .name = "names",
                              .description = "Print names in the store, for the completion scripts"},
                             [kind](const Session& session) {
                               // These hold of every store, also where none is there yet.
                               if (*kind == "steps") session.console.PrintData("latest\nlatest-healthy\n");
                               return WithStore(session, [&kind](const Invocation& invocation) {
                                 if (*kind == "entries") return PrintEntryNames(invocation);
                                 if (*kind == "steps") PrintStepNames(invocation);
                                 if (*kind == "metrics") {
                                   PrintNames(invocation.console, "", MetricNames(invocation.reader));
                                 }
                                 return ExitCode::kOk;
                               });
                             });
  names->add_option("KIND", *kind, "steps, metrics or entries")
      ->required()
      ->check(CLI::IsMember({"steps", "metrics", "entries"}));
}

}  // namespace tidemark::inspect
