#include <algorithm>
#include <functional>
#include <memory>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/checks/phase_summary.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/step_source.h"

namespace tidemark::inspect {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;
using Phases = std::vector<SavePhase>;

std::string Heading(const Console& console, std::string_view text) {
  return fmt::format("\n{}\n", console.Paint(text, Colour::kHeading));
}

// One "name  value" a line, values aligned and escaped.
std::string FormatFields(const Console& console, const Fields& fields) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, DisplayWidth(Escape(name)));
  std::string text;
  for (const auto& [name, value] : fields) {
    const std::string escaped = Escape(name);
    text += console.Fold(fmt::format("  {}{:{}}  {}", escaped, "", width - DisplayWidth(escaped), Escape(value)),
                         width + 4);
  }
  return text;
}

std::string BothBytes(uint64_t bytes) {
  return bytes < 1024 ? HumanBytes(bytes) : fmt::format("{} ({} bytes)", HumanBytes(bytes), bytes);
}

std::string FormatEvaluations(const Console& console, const std::vector<Evaluation>& evaluations) {
  using enum Table::Align;
  using enum Table::Narrow;
  Table table({{"EVALUATOR"},
               {"OUTCOME"},
               {"SECONDS", kRight, kWhole, 2},
               {"REPORTED", kLeft, kWhole, 3},
               {"WORKER", kLeft, kWhole, 1}});
  for (const Evaluation& evaluation : evaluations) {
    table.AddRow({{Escape(evaluation.evaluator)},
                  {std::string(OutcomeName(evaluation.outcome)), OutcomeColour(evaluation.outcome)},
                  {fmt::format("{:.2f}", absl::ToDoubleSeconds(evaluation.took))},
                  {Rfc3339(evaluation.reported)},
                  {Escape(evaluation.worker)}});
    if (!evaluation.reason.empty()) table.AddNote(Escape(evaluation.reason));
    if (!evaluation.unhealthy.empty()) table.AddNote("unhealthy: " + Escape(evaluation.unhealthy));
  }
  return table.Format(console, "  ");
}

// What the save of the step came to.
void AddSaveFields(const StepInfo& info, Fields& fields) {
  fields.emplace_back("world size", fmt::format("{}", info.world_size));
  fields.emplace_back("blocked", HumanDuration(info.blocked) + " (how long the training waited)");
  fields.emplace_back(
      "entries",
      fmt::format("{}{}", info.entry_count, HasFiles(info) ? fmt::format("; 'tensors {}' lists them", info.step) : ""));
  fields.emplace_back("logical", BothBytes(info.logical_bytes));
  fields.emplace_back("stored", fmt::format("{}, ratio {}", BothBytes(info.stored_bytes),
                                            Ratio(info.logical_bytes, info.stored_bytes)));
  fields.emplace_back("reused", fmt::format("{}, {} of the step", BothBytes(info.reused_bytes),
                                            ReusedShare(info.reused_bytes, info.stored_bytes)));
}

std::string FormatInfo(const Invocation& invocation, const StepInfo& info) {
  const Console& console = invocation.console;
  std::string text = fmt::format("{} {}\n", console.Paint(fmt::format("step {}", info.step), Colour::kHeading),
                                 console.Paint(StepStateName(info.state), StateColour(info.state)));
  Fields fields;
  if (!info.reason.empty()) fields.emplace_back("reason", info.reason);
  if (const std::string unhealthy = info.unhealthy(); !unhealthy.empty()) fields.emplace_back("unhealthy", unhealthy);
  if (info.pinned) fields.emplace_back("pinned", info.pin_note.empty() ? "yes" : info.pin_note);
  if (!info.tags.empty()) fields.emplace_back("tags", fmt::format("{}", fmt::join(info.tags, ", ")));
  if (!info.kept.empty()) fields.emplace_back("kept", info.kept);
  fields.emplace_back("attempt", info.attempt.empty() ? "-" : info.attempt);
  fields.emplace_back("sequence", fmt::format("{}", info.sequence));
  if (KnowsCreated(info)) {
    fields.emplace_back("created", fmt::format("{} (age {})", Rfc3339(info.created), AgeOf(info, invocation.now)));
  }
  if (info.state != StepState::kUnsaved) AddSaveFields(info, fields);
  text += FormatFields(console, fields);
  if (!info.metrics.empty()) {
    Fields metrics;
    for (const auto& [name, value] : info.metrics) metrics.emplace_back(name, MetricText(value));
    text += Heading(console, "metrics") + FormatFields(console, metrics);
  }
  if (!info.evaluations.empty()) text += Heading(console, "evaluations") + FormatEvaluations(console, info.evaluations);
  if (const Json metadata = MetadataToJson(info.user_metadata); metadata.is_null()) {
    text += Heading(console, "user metadata") + "  " + Escape(info.user_metadata) + "\n";
  } else if (!metadata.empty()) {
    text += Heading(console, "user metadata");
    // Characters beyond ASCII stay readable here; what could harm a terminal is escaped line by line.
    const std::string dump = metadata.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
    for (size_t begin = 0; begin < dump.size();) {
      const size_t end = dump.find('\n', begin);
      text += "  " + Escape(std::string_view(dump).substr(begin, end - begin)) + "\n";
      begin = end + 1;
    }
  }
  return text;
}

std::string FormatShards(const Console& console, const std::vector<ShardInfo>& shards) {
  using enum Table::Align;
  Table table({{"RANK", kRight}, {"BYTES", kRight}, {"CHUNKS", kRight}, {"PATH"}});
  for (const ShardInfo& shard : shards) {
    table.AddRow({{fmt::format("{}", shard.rank)},
                  {HumanBytes(shard.file_bytes)},
                  {fmt::format("{}", shard.chunk_count)},
                  {Escape(shard.path)}});
  }
  return table.Format(console, "  ");
}

std::string FormatReferences(const Console& console, const std::vector<ReferencedShard>& references) {
  using enum Table::Align;
  Table table({{"STEP", kRight}, {"BYTES", kRight}, {"CHUNKS", kRight}, {"PATH"}});
  for (const ReferencedShard& shard : references) {
    table.AddRow({{fmt::format("{}", shard.step)},
                  {HumanBytes(shard.stored_bytes)},
                  {fmt::format("{}", shard.chunk_count)},
                  {Escape(shard.path)}});
  }
  return table.Format(console, "  ");
}

// Who held up a save of several ranks, the slowest first; empty if rank 0 waited for none.
std::string RanksWaitedFor(const Phases& phases) {
  std::vector<const SavePhase*> votes;
  for (const SavePhase& phase : phases) {
    if (phase.name == "vote") votes.push_back(&phase);
  }
  if (votes.empty()) return "";
  std::stable_sort(votes.begin(), votes.end(),
                   [](const SavePhase* a, const SavePhase* b) { return a->duration > b->duration; });
  std::string text;
  for (const SavePhase* vote : votes) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", Escape(vote->lane), HumanDuration(vote->duration));
  }
  return fmt::format("  rank 0 waited for {}\n", text);
}

std::string FormatPhases(const Console& console, const Phases& phases) {
  using enum Table::Align;
  using enum Table::Narrow;
  Table table({{"PHASE"},
               {"THREADS", kRight, kWhole, 1},
               {"BEGIN", kRight, kWhole, 5},
               {"TIME", kRight},
               {"BUSY", kRight, kWhole, 3},
               {"SHARE", kRight, kWhole, 6},
               {"BYTES", kRight, kWhole, 4},
               {"RATE", kRight, kWhole, 2},
               {"TRAINER"}});
  const absl::Duration whole = WholeSave(phases);
  for (const PhaseSummary& phase : SummarisePhases(phases)) {
    const bool handles = phase.bytes > 0;
    table.AddRow({{Escape(phase.name)},
                  {fmt::format("{}", phase.lanes)},
                  {HumanDuration(phase.begin)},
                  {HumanDuration(phase.extent())},
                  {HumanDuration(phase.busy)},
                  {ShareText(phase.ShareOf(whole), 1)},
                  {handles ? HumanBytes(phase.bytes) : "-"},
                  {handles ? HumanBytes(static_cast<uint64_t>(phase.Rate())) + "/s" : "-"},
                  {phase.holds_trainer ? "waits" : ""}});
  }
  return table.Format(console, "  ") +
         fmt::format("  SHARE is of the {} that the whole save took\n", HumanDuration(whole)) + RanksWaitedFor(phases);
}

std::string ShowAsText(const Invocation& invocation, const StepInfo& info, const absl::StatusOr<Phases>& phases,
                       const StepContents* contents) {
  const Console& console = invocation.console;
  std::string text = FormatInfo(invocation, info);
  if (phases.ok() && !phases->empty()) text += Heading(console, "phases") + FormatPhases(console, *phases);
  if (contents == nullptr) return text;
  text += Heading(console, "saved with") +
          FormatFields(console, {contents->properties.begin(), contents->properties.end()});
  text += Heading(console, "shards") + FormatShards(console, contents->shards);
  if (contents->references.empty()) return text;
  return text + Heading(console, "files of earlier steps") + FormatReferences(console, contents->references);
}

void PrintAsJson(const Invocation& invocation, const StepInfo& info, const absl::StatusOr<Phases>& phases,
                 const StepContents* contents) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["step"] = ToJson(info);
  document["phases"] = nullptr;
  if (phases.ok()) {
    Json& array = document["phases"] = Json::array();
    for (const SavePhase& phase : *phases) array.push_back(ToJson(phase));
  }
  if (contents == nullptr) {
    for (const char* key : {"properties", "shards", "references", "entries"}) document[key] = nullptr;
    invocation.console.PrintData(Dump(document));
    return;
  }
  document["properties"] = contents->properties;
  Json& shards = document["shards"] = Json::array();
  for (const ShardInfo& shard : contents->shards) shards.push_back(ToJson(shard));
  Json& references = document["references"] = Json::array();
  for (const ReferencedShard& shard : contents->references) references.push_back(ToJson(shard));
  PrintWithArray(invocation.console, document, "entries", [&](const std::function<void(const Json&)>& add) {
    for (const StoredEntry& entry : contents->entries) add(ToJson(entry));
  });
}

}  // namespace

ExitCode ShowStep(const Invocation& invocation, const StepSelector& selector) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<StepContents> contents;
  const absl::StatusOr<StepInfo> info = ReadStep(invocation, selector, [&](const StepInfo& found) {
    contents = reader.Contents(found.step);
    return contents.status();
  });
  if (!info.ok()) {
    invocation.console.Fail(info.status());
    return SelectorExitCode(reader, info.status());
  }
  if (MetadataToJson(info->user_metadata).is_null()) {
    invocation.console.Note(fmt::format("the user metadata is {}, because it is not a JSON object of at most {}",
                                        invocation.json ? "null" : "shown as it is", MetadataLimits()));
  }
  const StepContents* read = contents.ok() ? &*contents : nullptr;
  const absl::StatusOr<Phases> phases = reader.Phases(info->step);
  if (invocation.json) {
    PrintAsJson(invocation, *info, phases, read);
  } else {
    invocation.console.PrintData(ShowAsText(invocation, *info, phases, read));
  }
  if (!phases.ok()) invocation.console.Warn(std::string(phases.status().message()));
  if (HasFiles(*info) && !contents.ok()) {
    invocation.console.Fail(contents.status());
    return StepExitCode(contents.status());
  }
  return StoreExitCode(reader);
}

void AddShow(CommandLine& line) {
  const auto selector = std::make_shared<StepSelector>(StepSelector::Latest());
  CLI::App* show =
      line.Add({.group = CommandGroup::kLook,
                .name = "show",
                .description = "Show one step: its record, metrics, the cost of its save, its settings and its shards"},
               [selector](const Invocation& invocation) { return ShowStep(invocation, *selector); });
  AddSelector(show, "STEP", *selector, fmt::format("{}", kSelectorHelp))->required();
  show->footer(R"(
A phase is one kind of work in a save, or one kind of waiting. TIME runs from its first start to its last end. BUSY adds
up the time of all its threads, without pauses. SHARE is the part of the whole save in which a thread was busy with it.
TRAINER says 'waits' if the training stood still during the phase. The other phases ran beside the training.

Files of earlier steps hold chunks of this step that had not changed. They stay as long as this step does, even if their
own step is deleted. BYTES is the size of this step's chunks in each file.

Example:
  checkpoint-inspect --store run/ckpt show latest
  checkpoint-inspect --store run/ckpt show best:validation/loss)");
}

}  // namespace tidemark::inspect
