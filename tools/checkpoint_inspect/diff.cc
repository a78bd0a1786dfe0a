#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/entry_selection.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/progress_line.h"
#include "tools/checkpoint_inspect/step_source.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/tensor_comparison.h"
#include "tools/checkpoint_inspect/tensor_operand.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

// Of the line that shows the progress.
constexpr size_t kNameColumnsMax = 40;

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
      if (const ExitCode code = OpenStepSource(invocation, operand->selector, &step); code != ExitCode::kOk)
        return code;
      side->tensors = std::move(step.tensors);
      side->json = SideToJson(side->tensors->name(), NewDocument(invocation.reader, invocation.directory)["store"],
                              step.info.step, step.info.attempt);
    }
    return ExitCode::kOk;
  });
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
        session.console.Fail(fmt::format("{}: this build reads no safetensors files", operand.path));
        return false;
    }
  }
  return here.empty() || OpenSteps(session, here) == ExitCode::kOk;
}

bool HasFigures(const EntryComparison& entry) { return entry.difference == Difference::kChanged && entry.change; }

// What is no matter of numbers first, then numbers that are NaN or infinite on one side, then by relative change.
void SortByChange(std::vector<EntryComparison>* entries) {
  const auto rank = [](const EntryComparison& entry) {
    if (!HasFigures(entry))
      return entry.difference == Difference::kChanged ? 3 : static_cast<int>(entry.difference) - 1;
    return entry.change->not_finite > 0 ? 4 : 5;
  };
  std::stable_sort(entries->begin(), entries->end(), [&](const EntryComparison& a, const EntryComparison& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return HasFigures(a) && a.change->Relative() > b.change->Relative();
  });
}

// Of an element of the held box, row-major, its place in the whole tensor.
std::vector<int64_t> IndexOf(const EntrySpec& spec, uint64_t element) {
  const std::vector<int64_t>& extents = spec.held_shape();
  std::vector<int64_t> index(extents.size());
  for (size_t d = extents.size(); d-- > 0;) {
    index[d] = static_cast<int64_t>(element % static_cast<uint64_t>(extents[d]));
    element /= static_cast<uint64_t>(extents[d]);
    if (!spec.whole()) index[d] += spec.box_offset[d];
  }
  return index;
}

struct Mark {
  const char* text;
  Colour colour;
};

Mark MarkOf(Difference difference) {
  switch (difference) {
    case Difference::kRemoved:
      return {"-", Colour::kBad};
    case Difference::kAdded:
      return {"+", Colour::kGood};
    case Difference::kHeldDifferently:
      return {"?", Colour::kWarning};
    case Difference::kSame:
    case Difference::kChanged:
      break;
  }
  return {"~", Colour::kWarning};
}

std::string Both(const std::string& a, const std::string& b) { return a == b ? a : a + " -> " + b; }

std::string HoldersText(std::span<const StoredEntry> entries, const std::vector<size_t>& held) {
  std::vector<std::string> parts;
  for (const size_t i : held) parts.push_back(fmt::format("rank {} {}", entries[i].rank, ShapeText(entries[i].spec)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void AddFigures(const EntryComparison& entry, const EntrySpec& spec, std::vector<Table::Cell>* cells) {
  if (!HasFigures(entry)) {
    cells->resize(cells->size() + 4);
    return;
  }
  const TensorChange& change = *entry.change;
  const std::optional<double> cosine = change.Cosine();
  cells->push_back({MetricText(change.Relative())});
  // Nearly 1 between steps of one run: how nearly is what counts.
  cells->push_back({cosine ? fmt::format("{:.8f}", *cosine) : "-"});
  cells->push_back({MetricText(static_cast<double>(change.largest))});
  const bool has_place = change.largest > 0;
  cells->push_back({has_place ? fmt::format("[{}]", fmt::join(IndexOf(spec, change.largest_element), ", ")) : "-"});
}

std::string FormatEntries(const Console& console, const Sides& sides, const std::vector<EntryComparison>& entries,
                          bool structure_only) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{""}, {"NAME"}, {"TYPE"}, {"SHAPE"}};
  if (!structure_only) {
    for (const char* title : {"CHANGE", "COSINE", "LARGEST"}) columns.push_back({title, kRight});
    columns.push_back({"AT"});
  }
  Table table(std::move(columns));
  for (const EntryComparison& entry : entries) {
    const StoredEntry* a = entry.a.empty() ? nullptr : &sides.a.entries()[entry.a[0]];
    const StoredEntry* b = entry.b.empty() ? nullptr : &sides.b.entries()[entry.b[0]];
    const EntrySpec& old_spec = (a != nullptr ? a : b)->spec;
    const EntrySpec& new_spec = (b != nullptr ? b : a)->spec;
    const bool held_differently = entry.difference == Difference::kHeldDifferently;
    const Mark mark = MarkOf(entry.difference);
    std::vector<Table::Cell> cells = {
        {mark.text, mark.colour},
        {Escape(entry.name), mark.colour},
        {Both(TypeText(old_spec), TypeText(new_spec))},
        {held_differently ? "held differently" : Both(ShapeText(old_spec), ShapeText(new_spec))}};
    if (!structure_only) AddFigures(entry, new_spec, &cells);
    table.AddRow(std::move(cells));
    if (held_differently) {
      table.AddNote("A: " + HoldersText(sides.a.entries(), entry.a));
      table.AddNote("B: " + HoldersText(sides.b.entries(), entry.b));
    }
    if (HasFigures(entry) && entry.change->not_finite > 0) {
      table.AddNote(console.Paint(fmt::format("{} of {} numbers are NaN or infinite in A or B alone",
                                              entry.change->not_finite, entry.change->numbers),
                                  Colour::kBad));
    }
  }
  return table.Format(console);
}

size_t Count(const std::vector<EntryComparison>& entries, Difference difference) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [difference](const EntryComparison& entry) {
    return entry.difference == difference;
  }));
}

constexpr Difference kInSummary[] = {Difference::kChanged, Difference::kAdded, Difference::kRemoved,
                                     Difference::kHeldDifferently, Difference::kSame};

std::string Summary(const std::vector<EntryComparison>& entries, bool structure_only) {
  std::vector<std::string> parts;
  for (const Difference difference : kInSummary) {
    const size_t count = Count(entries, difference);
    if (count == 0 && difference == Difference::kHeldDifferently) continue;
    parts.push_back(fmt::format("{} {}", count, DifferenceName(difference)));
  }
  return fmt::format("{}{}\n", fmt::join(parts, ", "), structure_only ? "; no tensor was read" : "");
}

Json HeldToJson(std::span<const StoredEntry> entries, const std::vector<size_t>& held) {
  Json array = Json::array();
  for (const size_t i : held) array.push_back(ToJson(entries[i]));
  return array;
}

Json ChangeToJson(const EntryComparison& entry, const Sides& sides) {
  if (!HasFigures(entry)) return nullptr;
  const TensorChange& change = *entry.change;
  const std::optional<double> cosine = change.Cosine();
  const EntrySpec& spec = sides.b.entries()[entry.b[0]].spec;
  return {{"relative", NumberToJson(change.Relative())},
          {"norm", NumberToJson(change.Norm())},
          {"cosine", cosine ? NumberToJson(*cosine) : Json(nullptr)},
          {"largest", NumberToJson(static_cast<double>(change.largest))},
          {"largest_at", change.largest > 0 ? Json(IndexOf(spec, change.largest_element)) : Json(nullptr)},
          {"numbers", change.numbers},
          {"not_finite", change.not_finite}};
}

Json EntryToJson(const EntryComparison& entry, const Sides& sides) {
  Json differs_in = Json::array();
  if (entry.kind_differs) differs_in.push_back("kind");
  if (entry.dtype_differs) differs_in.push_back("dtype");
  if (entry.shape_differs) differs_in.push_back("shape");
  if (entry.bytes_differ) differs_in.push_back("bytes");
  return {{"name", entry.name},
          {"difference", DifferenceName(entry.difference)},
          {"differs_in", std::move(differs_in)},
          {"change", ChangeToJson(entry, sides)},
          {"a", HeldToJson(sides.a.entries(), entry.a)},
          {"b", HeldToJson(sides.b.entries(), entry.b)}};
}

std::string DiffAsJson(const Sides& sides, const DiffOptions& options, const std::vector<EntryComparison>& different,
                       const std::vector<EntryComparison>& all) {
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["a"] = sides.a.json;
  document["b"] = sides.b.json;
  document["structure_only"] = options.structure_only;
  Json& counts = document["counts"] = Json::object();
  for (const Difference difference : kInSummary) {
    std::string name(DifferenceName(difference));
    std::replace(name.begin(), name.end(), ' ', '_');
    counts[name] = Count(all, difference);
  }
  Json& entries = document["entries"] = Json::array();
  for (const EntryComparison& entry : different) entries.push_back(EntryToJson(entry, sides));
  return Dump(document);
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
                        [&](const std::string& name, uint64_t done, uint64_t total) {
                          if (line == nullptr) line = std::make_unique<ProgressLine>(console, total);
                          line->Update(Shorten(Escape(name), kNameColumnsMax), done);
                        });
}

ExitCode Diff(const Session& session, const DiffOptions& options) {
  Console& console = session.console;
  for (const TensorOperand& operand : options.operands) {
    if (!session.untrusted || operand.kind == TensorOperand::Kind::kStep) continue;
    console.Fail(fmt::format("--untrusted reads the store alone, and {} is not in it", operand.path));
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
    if (const absl::Status read = ReadTensors(console, sides, &entries); !read.ok()) {
      console.Fail(read);
      return ExitCode::kTrouble;
    }
  }
  std::vector<EntryComparison> different;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(different),
               [](const EntryComparison& entry) { return entry.difference != Difference::kSame; });
  if (options.by_name) {
    std::stable_sort(different.begin(), different.end(),
                     [](const EntryComparison& a, const EntryComparison& b) { return a.name < b.name; });
  } else {
    SortByChange(&different);
  }
  if (session.json) {
    console.PrintData(DiffAsJson(sides, options, different, entries));
  } else {
    console.PrintData(fmt::format("A: {}\nB: {}\n", Escape(sides.a.tensors->name()), Escape(sides.b.tensors->name())));
    if (!different.empty()) console.PrintData(FormatEntries(console, sides, different, options.structure_only));
    console.PrintData(Summary(entries, options.structure_only));
  }
  return different.empty() ? ExitCode::kOk : ExitCode::kDifferent;
}

void AddOperand(CLI::App* command, const std::string& name, const std::shared_ptr<DiffOptions>& options, size_t which) {
  command
      ->add_option_function<std::string>(
          name,
          [options, which](const std::string& text) {
            absl::StatusOr<TensorOperand> operand = ParseTensorOperand(text);
            if (!operand.ok()) throw CLI::ValidationError(std::string(operand.status().message()));
            options->operands[which] = *std::move(operand);
          },
          fmt::format("{}", kOperandHelp))
      ->type_name("")
      ->required();
}

}  // namespace

void AddDiff(CommandLine& line) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* diff = line.AddComparer(
      CommandGroup::kCheck, "diff", "Say what changed between two steps, stores or safetensors files",
      [options](const Session& session) { return Diff(session, *options); }, ExitCode::kTrouble);
  AddOperand(diff, "A", options, 0);
  AddOperand(diff, "B", options, 1);
  diff->add_option("GLOB", options->glob, fmt::format("Only entries whose names match; {}", kGlobHelp))->type_name("");
  diff->add_flag("--structure-only", options->structure_only, "Compare names, dtypes and shapes, and read no tensor");
  diff->add_option_function<std::string>(
          "--sort", [options](const std::string& order) { options->by_name = order == "name"; },
          "By change, the largest first, which is the default, or by name")
      ->check(CLI::IsMember({"change", "name"}))
      ->type_name("change|name");
  diff->footer(fmt::format(R"(
A step is {}.

Example:
  checkpoint-inspect --store run/ckpt diff 1000 latest
  checkpoint-inspect --store run/ckpt diff best:validation/loss latest 'model.*'
  checkpoint-inspect diff run/ckpt@latest other/ckpt@latest --structure-only
  checkpoint-inspect --store run/ckpt diff latest model.safetensors

Exit status: 0 the same, 1 different, 2 trouble)",
                           kSelectorHelp));
}

}  // namespace tidemark::inspect
