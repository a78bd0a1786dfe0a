#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/entry_selection.h"
#include "tools/checkpoint_inspect/tensors/step_source.h"
#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"
#include "tools/checkpoint_inspect/tensors/tensor_survey.h"
#include "tools/checkpoint_inspect/tensors/tensor_tree.h"

namespace tidemark::inspect {
namespace {

struct TensorsOptions {
  StepSelector selector = StepSelector::Latest();
  std::string glob;  // empty: all
  bool tree = false;
  bool statistics = false;
  EntryOrder order = EntryOrder::kSaved;
};

// One that was asked for. Not owned.
struct ListedEntry {
  const StoredEntry* stored;
  const TensorStatistics* statistics;  // null where it has no numbers, or nobody wants them
};

// Whole numbers as such, whatever their size.
std::string ExtremeText(long double value, bool is_integer) {
  return is_integer ? fmt::format("{:.0f}", value) : MetricText(static_cast<double>(value));
}

Json ExtremeToJson(long double value, bool is_integer) {
  if (!is_integer) return NumberToJson(static_cast<double>(value));
  return value < 0 ? Json(static_cast<int64_t>(value)) : Json(static_cast<uint64_t>(value));
}

void AddStatisticsColumns(std::vector<Table::Column>* columns) {
  // Readers look here for NaN and infinities, so these stay; the range is shown if there is room.
  constexpr std::pair<const char*, int> kTitles[] = {{"MIN", 9},  {"MAX", 10},  {"MEAN", 8}, {"STD", 7},
                                                     {"NORM", 5}, {"ZEROS", 6}, {"NAN", 0},  {"INF", 0}};
  for (const auto& [title, drop] : kTitles) {
    columns->push_back({title, Table::Align::kRight, Table::Narrow::kWhole, drop});
  }
}

void AddStatisticsCells(const TensorStatistics* statistics, bool is_integer, std::vector<Table::Cell>* cells) {
  const bool has_finite = statistics != nullptr && statistics->finite() > 0;
  const auto figure = [&](auto text) { cells->push_back({has_finite ? text() : "-"}); };
  figure([&] { return ExtremeText(statistics->min, is_integer); });
  figure([&] { return ExtremeText(statistics->max, is_integer); });
  figure([&] { return MetricText(static_cast<double>(statistics->mean)); });
  figure([&] { return MetricText(statistics->StandardDeviation()); });
  figure([&] { return MetricText(statistics->Norm()); });
  const auto count = [&](uint64_t TensorStatistics::*field, Colour colour) {
    const uint64_t value = statistics != nullptr ? statistics->*field : 0;
    cells->push_back({statistics != nullptr ? fmt::format("{}", value) : "-", value > 0 ? colour : Colour::kNone});
  };
  count(&TensorStatistics::zeros, Colour::kNone);
  count(&TensorStatistics::nan, Colour::kBad);
  count(&TensorStatistics::inf, Colour::kBad);
}

Json StatisticsToJson(const TensorStatistics* statistics, bool is_integer) {
  if (statistics == nullptr) return nullptr;
  const bool has_finite = statistics->finite() > 0;
  const auto number = [&](double value) { return has_finite ? NumberToJson(value) : Json(nullptr); };
  return {{"numbers", statistics->numbers},
          {"min", has_finite ? ExtremeToJson(statistics->min, is_integer) : Json(nullptr)},
          {"max", has_finite ? ExtremeToJson(statistics->max, is_integer) : Json(nullptr)},
          {"mean", number(static_cast<double>(statistics->mean))},
          {"standard_deviation", number(statistics->StandardDeviation())},
          {"norm", number(statistics->Norm())},
          {"zeros", statistics->zeros},
          {"nan", statistics->nan},
          {"inf", statistics->inf}};
}

void PrintListAsTable(Console& console, const std::vector<ListedEntry>& listed, bool with_statistics) {
  using enum Table::Align;
  const bool has_ties = std::any_of(listed.begin(), listed.end(),
                                    [](const ListedEntry& entry) { return !entry.stored->tied_to.empty(); });
  using enum Table::Narrow;
  std::vector<Table::Column> columns = {{"NAME"},
                                        {"TYPE", kLeft, kWhole, 3},
                                        {"SHAPE", kLeft, kWhole, 2},
                                        {"BYTES", kRight, kWhole, 4},
                                        {"RANK", kRight, kWhole, 1}};
  if (with_statistics) AddStatisticsColumns(&columns);
  if (has_ties) columns.push_back({"TIED TO", kLeft, kWhole, 1});
  Table table(std::move(columns));
  for (const auto& [stored, statistics] : listed) {
    std::vector<Table::Cell> cells = {{Escape(stored->spec.name)},
                                      {TypeText(stored->spec)},
                                      {ShapeText(stored->spec)},
                                      {HumanBytes(stored->bytes)},
                                      {fmt::format("{}", stored->rank)}};
    if (with_statistics) AddStatisticsCells(statistics, IsInteger(stored->spec.dtype), &cells);
    if (has_ties) cells.push_back({Escape(stored->tied_to)});
    table.AddRow(cells);
  }
  table.Print(console);
}

void PrintListAsJson(Console& console, const Json& document, const std::vector<ListedEntry>& listed,
                     bool with_statistics) {
  PrintWithArray(console, document, "entries", [&](const std::function<void(const Json&)>& add) {
    for (const auto& [stored, statistics] : listed) {
      Json entry = ToJson(*stored);
      if (with_statistics) entry["statistics"] = StatisticsToJson(statistics, IsInteger(stored->spec.dtype));
      add(entry);
    }
  });
}

// Of entries that are tied the first one counts for all. Boxes of one tensor are told apart by their bytes.
std::vector<TreeNode> TreeOf(const std::vector<ListedEntry>& listed, EntryOrder order) {
  std::vector<TreeLeaf> leaves;
  leaves.reserve(listed.size());
  // By the owner's name, rank and digest.
  absl::flat_hash_set<std::tuple<std::string_view, uint32_t, std::string_view>> counted;
  for (const auto& [stored, statistics] : listed) {
    const std::string& owner = stored->tied_to.empty() ? stored->spec.name : stored->tied_to;
    const bool counts = counted.emplace(owner, stored->rank, stored->digest).second || stored->tied_to.empty();
    leaves.push_back(
        {.name = stored->spec.name, .bytes = counts ? stored->bytes : 0, .statistics = counts ? statistics : nullptr});
  }
  counted = {};
  return MakeTree(leaves, order);
}

const StoredEntry* LeafOf(const TreeNode& node, const std::vector<ListedEntry>& listed) {
  return node.leaf ? listed[*node.leaf].stored : nullptr;
}

bool IsIntegerNode(const StoredEntry* leaf) { return leaf != nullptr && IsInteger(leaf->spec.dtype); }

void PrintTreeAsTable(Console& console, const std::vector<ListedEntry>& listed, const TensorsOptions& options) {
  using enum Table::Align;
  using enum Table::Narrow;
  std::vector<Table::Column> columns = {{"NAME"},
                                        {"TYPE", kLeft, kWhole, 3},
                                        {"SHAPE", kLeft, kWhole, 2},
                                        {"ENTRIES", kRight, kWhole, 1},
                                        {"BYTES", kRight, kWhole, 4}};
  if (options.statistics) AddStatisticsColumns(&columns);
  Table table(std::move(columns));
  for (const TreeNode& node : TreeOf(listed, options.order)) {
    const StoredEntry* leaf = LeafOf(node, listed);
    const std::string label = node.depth == 0 ? "(all)" : Escape(node.label);
    std::vector<Table::Cell> cells = {{fmt::format("{:{}}{}", "", 2 * node.depth, label)},
                                      {leaf == nullptr ? "" : TypeText(leaf->spec)},
                                      {leaf == nullptr ? "" : ShapeText(leaf->spec)},
                                      {fmt::format("{}", node.entries)},
                                      {HumanBytes(node.bytes)}};
    if (options.statistics) AddStatisticsCells(node.statistics.get(), IsIntegerNode(leaf), &cells);
    table.AddRow(cells);
    if (leaf != nullptr && !leaf->tied_to.empty()) {
      table.AddNote(fmt::format("{:{}}tied to {}", "", 2 * node.depth, Escape(leaf->tied_to)));
    }
  }
  table.Print(console);
}

void PrintTreeAsJson(Console& console, const Json& document, const std::vector<ListedEntry>& listed,
                     const TensorsOptions& options) {
  PrintWithArray(console, document, "tree", [&](const std::function<void(const Json&)>& add) {
    for (const TreeNode& node : TreeOf(listed, options.order)) {
      const StoredEntry* leaf = LeafOf(node, listed);
      Json json = {{"path", node.path},
                   {"depth", node.depth},
                   {"entries", node.entries},
                   {"bytes", node.bytes},
                   {"entry", leaf == nullptr ? Json(nullptr) : ToJson(*leaf)}};
      if (options.statistics) json["statistics"] = StatisticsToJson(node.statistics.get(), IsIntegerNode(leaf));
      add(json);
    }
  });
}

void Sort(EntryOrder order, std::vector<ListedEntry>* listed) {
  if (order == EntryOrder::kName) {
    std::stable_sort(listed->begin(), listed->end(), [](const ListedEntry& a, const ListedEntry& b) {
      return a.stored->spec.name < b.stored->spec.name;
    });
  } else if (order == EntryOrder::kSize) {
    std::stable_sort(listed->begin(), listed->end(),
                     [](const ListedEntry& a, const ListedEntry& b) { return a.stored->bytes > b.stored->bytes; });
  }
}

ExitCode ListTensors(const Invocation& invocation, const TensorsOptions& options) {
  Console& console = invocation.console;
  StepSource step;
  if (const ExitCode code = OpenStepSource(invocation, options.selector, &step); code != ExitCode::kOk) return code;
  const TensorSource& source = *step.tensors;
  const absl::StatusOr<std::vector<size_t>> selected = SelectEntries(source.entries(), options.glob, source.name());
  if (!selected.ok()) {
    console.Fail(selected.status());
    return ExitCode::kFailure;
  }
  absl::StatusOr<SurveyedEntries> surveyed = SurveyedEntries{};
  if (options.statistics) {
    CatchInterrupts();
    surveyed = Survey(source, *selected, console);
    if (!surveyed.ok()) {
      console.Fail(surveyed.status());
      return StepExitCode(surveyed.status());
    }
  }
  std::vector<ListedEntry> listed;
  listed.reserve(selected->size());
  for (size_t i = 0; i < selected->size(); ++i) {
    listed.push_back({&source.entries()[(*selected)[i]], options.statistics ? surveyed->Of(i) : nullptr});
  }
  Sort(options.order, &listed);
  if (!invocation.json) {
    if (options.tree) {
      PrintTreeAsTable(console, listed, options);
    } else {
      PrintListAsTable(console, listed, options.statistics);
    }
    return StoreExitCode(invocation.reader);
  }
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["step"] = step.info.step;
  document["attempt"] = step.info.attempt;
  if (options.tree) {
    PrintTreeAsJson(console, document, listed, options);
  } else {
    PrintListAsJson(console, document, listed, options.statistics);
  }
  return StoreExitCode(invocation.reader);
}

}  // namespace

void AddTensors(CommandLine& line) {
  const auto options = std::make_shared<TensorsOptions>();
  CLI::App* tensors = line.Add({.group = CommandGroup::kLook,
                                .name = "tensors",
                                .description = "List the tensors of a step: dtype, shape, size, statistics"},
                               [options](const Invocation& invocation) { return ListTensors(invocation, *options); });
  AddSelector(tensors, "STEP", options->selector, fmt::format("{}", kSelectorHelp))->required();
  tensors->add_option("GLOB", options->glob, fmt::format("Only entries that match, {}", kGlobHelp))
      ->type_name("")
      ->check(CheckGlob);
  tensors->add_flag("--stats", options->statistics,
                    "Read the tensors: min, max, mean, standard deviation, norm, zeros, NaN, Inf");
  tensors->add_flag("--tree", options->tree, "Print a tree: names are split at '.', with sums");
  tensors
      ->add_option_function<std::string>(
          "--sort",
          [options](const std::string& order) {
            options->order = order == "name" ? EntryOrder::kName : EntryOrder::kSize;
          },
          "Sort by name, or by size, the largest first; by default in the order of the save")
      ->check(CLI::IsMember({"name", "size"}).description(""))
      ->type_name("name|size");
  tensors->footer(R"(
Example:
  checkpoint-inspect --store run/ckpt tensors latest --sort size
  checkpoint-inspect --store run/ckpt tensors latest --tree
  checkpoint-inspect --store run/ckpt tensors 1000 'model.*.weight' --stats)");
}

}  // namespace tidemark::inspect
