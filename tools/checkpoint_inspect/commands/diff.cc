#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/command_outline.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/exchange/safetensors.h"
#include "tools/checkpoint_inspect/output/comparison_output.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/entry_selection.h"
#include "tools/checkpoint_inspect/tensors/step_source.h"
#include "tools/checkpoint_inspect/tensors/tensor_comparison.h"
#include "tools/checkpoint_inspect/tensors/tensor_operand.h"

namespace tidemark::inspect {
namespace {

struct DiffOptions {
  std::array<TensorOperand, 2> operands;
  std::string glob;  // empty: all
  bool structure_only = false;
  bool by_name = false;
};

// A or B.
struct Side {
  std::unique_ptr<TensorSource> tensors;
  Json json;  // says what it is

  std::span<const StoredEntry> entries() const { return tensors->entries(); }
};

struct Sides {
  Side a;
  Side b;
};

Json SideToJson(const std::string& name, Json store, Json step, Json attempt) {
  return {{"name", name}, {"store", std::move(store)}, {"step", std::move(step)}, {"attempt", std::move(attempt)}};
}

// Opens those of the sides that are steps of this store.
ExitCode OpenSteps(const Session& session, std::span<const std::pair<const TensorOperand*, Side*>> wanted) {
  return WithStore(session, [&](const Invocation& invocation) {
    for (const auto& [operand, side] : wanted) {
      StepSource step;
      const DamageAdvice advice = {.elsewhere = operand->kind == TensorOperand::Kind::kStepElsewhere};
      const ExitCode code = OpenStepSource(invocation, operand->selector, &step, advice);
      if (code != ExitCode::kOk) return code;
      side->tensors = std::move(step.tensors);
      side->json = SideToJson(side->tensors->name(), NewDocument(invocation.reader, invocation.directory)["store"],
                              step.info.step, step.info.attempt);
    }
    return ExitCode::kOk;
  });
}

bool OpenFile(Console& console, const std::string& path, Side* side) {
  absl::StatusOr<std::unique_ptr<TensorSource>> file = OpenSafetensors(path);
  if (!file.ok()) {
    console.Fail(file.status());
    return false;
  }
  side->tensors = *std::move(file);
  side->json = SideToJson(side->tensors->name(), nullptr, nullptr, nullptr);
  return true;
}

// False: it could not be opened, and has been told.
bool OpenSides(const Session& session, const DiffOptions& options, Sides* sides) {
  std::vector<std::pair<const TensorOperand*, Side*>> here;
  const std::array<Side*, 2> opened = {&sides->a, &sides->b};
  for (size_t i = 0; i < opened.size(); ++i) {
    const TensorOperand& operand = options.operands[i];
    const std::pair<const TensorOperand*, Side*> wanted(&operand, opened[i]);
    switch (operand.kind) {
      case TensorOperand::Kind::kStep:
        here.push_back(wanted);
        break;
      case TensorOperand::Kind::kStepElsewhere: {
        const Session elsewhere = {session.console, operand.path, session.json, session.untrusted, session.now};
        if (OpenSteps(elsewhere, {&wanted, 1}) != ExitCode::kOk) return false;
        break;
      }
      case TensorOperand::Kind::kSafetensors:
        if (!OpenFile(session.console, operand.path, opened[i])) return false;
        break;
    }
  }
  return here.empty() || OpenSteps(session, here) == ExitCode::kOk;
}

std::vector<std::string> NamesIn(const Sides& sides) {
  std::vector<std::string> names;
  for (const Side* side : {&sides.a, &sides.b}) {
    for (const StoredEntry& entry : side->entries()) names.push_back(entry.spec.name);
  }
  return names;
}

absl::Status ReadTensors(Console& console, const Sides& sides, std::vector<EntryComparison>* entries) {
  std::unique_ptr<ProgressLine> line;
  return CompareTensors(*sides.a.tensors, *sides.b.tensors, *entries,
                        [&](std::string_view name, uint64_t done, uint64_t total) {
                          if (line == nullptr) line = std::make_unique<ProgressLine>(console, total);
                          line->Update(Shorten(Escape(name), ProgressLine::kNameColumnsMax), done);
                        });
}

ExitCode Diff(const Session& session, const DiffOptions& options) {
  Console& console = session.console;
  for (const TensorOperand& operand : options.operands) {
    if (!session.untrusted || operand.kind == TensorOperand::Kind::kStep) continue;
    console.Fail(fmt::format("--untrusted reads only the store, and {} is outside of it", operand.path));
    return ExitCode::kTrouble;
  }
  Sides sides;
  if (!OpenSides(session, options, &sides)) return ExitCode::kTrouble;
  std::vector<EntryComparison> entries = MatchEntries(sides.a.entries(), sides.b.entries(), options.glob);
  if (entries.empty() && !options.glob.empty()) {
    const std::string where = fmt::format("{} or {}", sides.a.tensors->name(), sides.b.tensors->name());
    console.Fail(NothingMatches(options.glob, NamesIn(sides), where));
    return ExitCode::kTrouble;
  }
  if (!options.structure_only) {
    CatchInterrupts();
    if (const absl::Status read = ReadTensors(console, sides, &entries); !read.ok()) {
      console.Fail(read);
      return absl::IsCancelled(read) ? ExitCode::kInterrupted : ExitCode::kTrouble;
    }
  }
  if (options.by_name) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const EntryComparison& a, const EntryComparison& b) { return a.name < b.name; });
  } else {
    SortByChange(&entries);
  }
  const bool is_same = std::all_of(entries.begin(), entries.end(),
                                   [](const EntryComparison& entry) { return entry.difference == Difference::kSame; });
  const ComparedEntries compared = {sides.a.entries(), sides.b.entries()};
  if (session.json) {
    Json document;
    document["schema_version"] = kSchemaVersion;
    document["a"] = sides.a.json;
    document["b"] = sides.b.json;
    document["structure_only"] = options.structure_only;
    document["counts"] = CountsToJson(entries);
    PrintWithArray(console, document, "entries", [&](const std::function<void(const Json&)>& add) {
      for (const EntryComparison& entry : entries) {
        if (entry.difference != Difference::kSame) add(ToJson(compared, entry));
      }
    });
  } else {
    console.PrintData(fmt::format("A: {}\nB: {}\n", Escape(sides.a.tensors->name()), Escape(sides.b.tensors->name())));
    if (!is_same) ComparisonTable(console, compared, entries, options.structure_only).Print(console);
    console.PrintData(FormatCounts(entries, options.structure_only));
  }
  return is_same ? ExitCode::kOk : ExitCode::kDifferent;
}

void AddOperand(CLI::App* command, const std::string& name, const std::shared_ptr<DiffOptions>& options, size_t which) {
  CLI::Option* operand = command->add_option_function<std::string>(
      name,
      [options, which](const std::string& text) {
        absl::StatusOr<TensorOperand> parsed = ParseTensorOperand(text);
        if (!parsed.ok()) throw CLI::ValidationError(std::string(parsed.status().message()));
        options->operands[which] = *std::move(parsed);
      },
      fmt::format("{}", kOperandHelp));
  operand->type_name("")->required();
  MarkAsStep(operand);
}

}  // namespace

void AddDiff(CommandLine& line) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* diff = line.Add({.group = CommandGroup::kCheck,
                             .name = "diff",
                             .description = "Compare two steps, stores or safetensors files, and list what changed",
                             .trouble = ExitCode::kTrouble},
                            [options](const Session& session) { return Diff(session, *options); });
  AddOperand(diff, "A", options, 0);
  AddOperand(diff, "B", options, 1);
  diff->add_option("GLOB", options->glob, fmt::format("Only entries that match, {}", kGlobHelp))
      ->type_name("")
      ->check(CheckGlob);
  diff->add_flag("--structure-only", options->structure_only,
                 "Compare only names, dtypes and shapes, and read no tensor");
  diff->add_option_function<std::string>(
          "--sort", [options](const std::string& order) { options->by_name = order == "name"; },
          "Sort by change, the largest first (the default), or by name")
      ->check(CLI::IsMember({"change", "name"}).description(""))
      ->type_name("change|name");
  diff->footer(fmt::format(R"(
A step is {}.

For numeric tensors of the same shape:
  CHANGE    the norm of B - A, divided by the norm of A: 0.01 is a change of 1 %
  COSINE    the cosine of the angle between A and B: 1 if they point the same way
  LARGEST   the largest absolute change of one number
  AT        the index of the first element with that change
A line begins with ~ (changed), - (only in A), + (only in B) or ? (split differently among the ranks).

Example:
  checkpoint-inspect --store run/ckpt diff 1000 latest
  checkpoint-inspect --store run/ckpt diff best:validation/loss latest 'model.*'
  checkpoint-inspect diff run/ckpt@latest other/ckpt@latest --structure-only
  checkpoint-inspect --store run/ckpt diff latest model.safetensors

Exit status: 0 the same, 1 different, 2 trouble)",
                           kSelectorHelp));
}

}  // namespace tidemark::inspect
