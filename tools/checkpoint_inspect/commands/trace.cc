#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <variant>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/exchange/output_file.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/output_path.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/output/trace_events.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kAll = "all";
constexpr std::string_view kRangeMark = "..";

// Both ends included.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;
};
using Selection = std::variant<StepSelector, StepRange>;

struct TraceOptions {
  std::vector<Selection> selections;
  std::optional<uint32_t> last;
  std::string path;
  bool force = false;
};

Selection ParseSelectionOrThrow(const std::string& text) {
  if (text == kAll) return StepRange{0, std::numeric_limits<int64_t>::max()};
  if (const size_t mark = text.find(kRangeMark);
      mark != std::string::npos && !text.starts_with("best:") && !text.starts_with("tag:")) {
    const auto first = ParseStep(std::string_view(text).substr(0, mark));
    const auto last = ParseStep(std::string_view(text).substr(mark + kRangeMark.size()));
    if (!first || !last || *first > *last) {
      throw CLI::ValidationError(fmt::format("'{}' is not a range of steps; a range is FIRST..LAST", text));
    }
    return StepRange{*first, *last};
  }
  absl::StatusOr<StepSelector> selector = StepSelector::Parse(text);
  if (!selector.ok()) throw CLI::ValidationError(std::string(selector.status().message()));
  return *std::move(selector);
}

// Ascending by step. Of a range those of its steps that there are. kNotFound: a range has none; else errors of Resolve.
absl::StatusOr<std::map<int64_t, StepInfo>> Select(const Invocation& invocation, const TraceOptions& options) {
  const std::vector<StepInfo>& steps = invocation.reader.Steps();
  std::map<int64_t, StepInfo> selected;
  for (const Selection& selection : options.selections) {
    if (const auto* selector = std::get_if<StepSelector>(&selection)) {
      absl::StatusOr<StepInfo> info = Resolve(invocation.reader, invocation.directory, *selector);
      if (!info.ok()) return info.status();
      selected.emplace(info->step, *std::move(info));
      continue;
    }
    const auto& range = std::get<StepRange>(selection);
    bool found = false;
    for (const StepInfo& info : steps) {
      if (info.step < range.first || info.step > range.last) continue;
      selected.emplace(info.step, info);
      found = true;
    }
    if (found) continue;
    if (steps.empty()) return absl::NotFoundError(fmt::format("there are no steps in {}", invocation.directory));
    // No step lies in the range, so those around its first one are those around all of it.
    return absl::NotFoundError(fmt::format("no step from {} to {} is in {}; nearest: {}", range.first, range.last,
                                           invocation.directory, NearestSteps(steps, range.first)));
  }
  return selected;
}

// The highest steps of which phases are known, so many if there are. Adds them.
absl::Status SelectLast(const Invocation& invocation, uint32_t count, std::map<int64_t, StepInfo>& selected) {
  const std::vector<StepInfo>& steps = invocation.reader.Steps();
  for (auto info = steps.rbegin(); info != steps.rend() && count > 0; ++info) {
    const absl::StatusOr<std::vector<SavePhase>> phases = invocation.reader.Phases(info->step);
    if (!phases.ok()) return phases.status();
    if (phases->empty()) continue;
    selected.emplace(info->step, *info);
    --count;
  }
  return absl::OkStatus();
}

struct Trace {
  Json saves = Json::array();
  size_t events = 0;
  std::vector<int64_t> without_phases;
};

// kCancelled: interrupted.
absl::StatusOr<Trace> WriteTrace(const Invocation& invocation, const std::map<int64_t, StepInfo>& selected,
                                 OutputFile& file) {
  std::vector<const StepInfo*> infos;
  for (const auto& [step, info] : selected) infos.push_back(&info);
  std::stable_sort(infos.begin(), infos.end(),
                   [](const StepInfo* a, const StepInfo* b) { return a->created < b->created; });
  Trace trace;
  absl::Time origin;
  for (const StepInfo* info : infos) {
    if (IsInterrupted()) return absl::CancelledError();
    const absl::StatusOr<std::vector<SavePhase>> phases = invocation.reader.Phases(info->step);
    if (!phases.ok()) return phases.status();
    if (phases->empty()) {
      trace.without_phases.push_back(info->step);
      continue;
    }
    const bool first = trace.saves.empty();
    if (first) origin = info->created;
    const TracedEvents traced = TraceOfSave(*info, *phases, static_cast<int>(trace.saves.size()) + 1, origin);
    const absl::Status written = file.Write((first ? TraceBegin(invocation.directory, origin) : ",\n") + traced.text);
    if (!written.ok()) return written;
    trace.events += traced.events;
    trace.saves.push_back({{"step", info->step},
                           {"attempt", info->attempt},
                           {"created", Rfc3339(info->created)},
                           {"events", traced.events}});
  }
  if (absl::Status written = file.Write(TraceEnd()); !written.ok()) return written;
  return trace;
}

void TellWithoutPhases(Console& console, std::vector<int64_t> steps) {
  constexpr size_t kNamedMax = 5;  // JSON has all
  if (steps.empty()) return;
  const size_t count = steps.size();
  steps.resize(std::min(count, kNamedMax));
  console.Note(fmt::format("left out, because no phases of their saves are recorded: {}{}", fmt::join(steps, ", "),
                           count > kNamedMax ? fmt::format(" and {} more", count - kNamedMax) : ""));
}

ExitCode TraceSaves(const Invocation& invocation, const TraceOptions& options) {
  Console& console = invocation.console;
  CatchInterrupts();
  absl::StatusOr<std::map<int64_t, StepInfo>> selected = Select(invocation, options);
  if (!selected.ok()) {
    console.Fail(selected.status());
    return SelectorExitCode(invocation.reader, selected.status());
  }
  const auto fail = [&console](const absl::Status& status) {
    console.Fail(status);
    return ExitCode::kFailure;
  };
  if (options.last) {
    if (absl::Status status = SelectLast(invocation, *options.last, *selected); !status.ok()) return fail(status);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> file = OutputFile::Create(options.path, options.force);
  if (!file.ok()) return fail(file.status());
  const absl::StatusOr<Trace> trace = WriteTrace(invocation, *selected, **file);
  if (IsInterrupted()) {
    console.Fail("interrupted; nothing was written");
    return ExitCode::kInterrupted;
  }
  if (!trace.ok()) return fail(trace.status());
  TellWithoutPhases(console, trace->without_phases);
  if (trace->saves.empty()) {
    return fail(
        absl::NotFoundError(fmt::format("{} was not written: no phases of these steps are recorded", options.path)));
  }
  if (absl::Status status = (*file)->Commit(); !status.ok()) return fail(status);
  if (invocation.json) {
    Json document = NewDocument(invocation.reader, invocation.directory);
    document["path"] = options.path;
    document["events"] = trace->events;
    document["saves"] = trace->saves;
    document["without_phases"] = trace->without_phases;
    console.PrintData(Dump(document));
  } else {
    const size_t saves = trace->saves.size();
    console.Note(fmt::format("{}: {} {}, {} events; https://ui.perfetto.dev opens it", options.path, saves,
                             saves == 1 ? "save" : "saves", trace->events));
  }
  return StoreExitCode(invocation.reader);
}

}  // namespace

void AddTrace(CommandLine& line) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* trace = line.Add({.group = CommandGroup::kLook,
                              .name = "trace",
                              .description = "Write the phases of saves as a trace for Perfetto",
                              .writes = true},
                             [options](const Invocation& invocation) { return TraceSaves(invocation, *options); });
  CLI::Option* steps = AddTexts(
      trace, "STEP",
      [options](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) options->selections.push_back(ParseSelectionOrThrow(text));
      },
      fmt::format("{}; also FIRST..LAST or all; several may be given", kSelectorHelp));
  steps->type_name("");
  MarkAsStep(steps);
  CLI::Option* last = trace->add_option("--last", options->last, "Also the N highest steps with recorded phases")
                          ->type_name("N")
                          ->check(CheckPositive);
  trace->add_option("-o,--output", options->path, "The file to write, in the trace event format (JSON)")
      ->type_name("FILE")
      ->required()
      ->check(CheckOutputPath);
  trace->add_flag("--force", options->force, "Replace an existing file");
  trace->parse_complete_callback([steps, last] {
    if (steps->empty() && last->empty()) throw CLI::RequiredError("STEP or --last");
  });
  trace->footer(R"(
The trace shows each save as a process, and each of its threads as a lane: trainer, staging, persister, codec 1 and so
on. The threads that copy tensors share one lane. Each thing that the persister waits for has a lane of its own, and so
has each rank that rank 0 waits for.

Example:
  checkpoint-inspect --store run/ckpt trace latest -o save.json
  checkpoint-inspect --store run/ckpt trace 1000..2000 --last 3 -o saves.json)");
}

}  // namespace tidemark::inspect
