#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// A row for the metrics that were saved with the step, if there are any, and one for each evaluation.
bool HasRows(const StepInfo& info) { return !info.evaluations.empty() || !info.metrics.empty(); }

// Under the names that they have among the step's metrics and in selectors.
std::map<std::string, double> MetricsOf(const Evaluation& evaluation) {
  std::map<std::string, double> named;
  for (const auto& [name, value] : evaluation.metrics) named[evaluation.evaluator + "/" + name] = value;
  return named;
}

// Metrics that were not reported by an evaluator.
Metrics SavedMetrics(const StepInfo& info) {
  Metrics saved = info.metrics;
  for (const Evaluation& evaluation : info.evaluations) {
    for (const auto& [name, value] : MetricsOf(evaluation)) saved.erase(name);
  }
  return saved;
}

Json StepToJson(const StepInfo& info) {
  return {{"step", info.step},
          {"state", StepStateName(info.state)},
          {"attempt", info.attempt},
          {"created", KnowsCreated(info) ? Json(Rfc3339(info.created)) : Json(nullptr)}};
}

// The fields that every row has, in their order.
Json SavedMetricsToJson(const StepInfo& info, Metrics saved) {
  Json row = StepToJson(info);
  row.update(ToJson(Evaluation{.metrics = std::move(saved)}));
  for (const char* of_evaluators : {"evaluator", "outcome", "worker", "reported", "seconds"}) {
    row[of_evaluators] = nullptr;
  }
  return row;
}

void PrintRowsAsJson(const Invocation& invocation) {
  const Json document = NewDocument(invocation.reader, invocation.directory);
  PrintWithArray(invocation.console, document, "history", [&](const std::function<void(const Json&)>& add) {
    for (const StepInfo& info : invocation.reader.Steps()) {
      if (!HasRows(info)) continue;
      if (Metrics saved = SavedMetrics(info); !saved.empty()) add(SavedMetricsToJson(info, std::move(saved)));
      for (const Evaluation& evaluation : info.evaluations) {
        Json row = StepToJson(info);
        row.update(ToJson(evaluation));
        add(row);
      }
    }
  });
}

std::string RowsAsTable(const Invocation& invocation) {
  using enum Table::Align;
  using enum Table::Narrow;
  Table table({{"STEP", kRight},
               {"AGE", kRight, kWhole, 4},
               {"STATE", kLeft, kWhole, 5},
               {"EVALUATOR", kLeft, kWhole, 3},
               {"METRICS", kLeft, kWrap},
               {"OUTCOME"},
               {"SECONDS", kRight, kWhole, 2},
               {"WORKER", kLeft, kWhole, 1}});
  for (const StepInfo& info : invocation.reader.Steps()) {
    if (!HasRows(info)) continue;
    const Table::Cell step = {fmt::format("{}", info.step)};
    const Table::Cell age = {AgeOf(info, invocation.now)};
    const Table::Cell state = {std::string(StepStateName(info.state)), StateColour(info.state)};
    if (const Metrics saved = SavedMetrics(info); !saved.empty()) {
      table.AddRow({step, age, state, {"-"}, {MetricsText(saved)}, {"-"}, {"-"}, {"-"}});
    }
    for (const Evaluation& evaluation : info.evaluations) {
      table.AddRow({step,
                    age,
                    state,
                    {Escape(evaluation.evaluator)},
                    {MetricsText(MetricsOf(evaluation))},
                    {std::string(OutcomeName(evaluation.outcome)), OutcomeColour(evaluation.outcome)},
                    {fmt::format("{:.2f}", absl::ToDoubleSeconds(evaluation.took))},
                    {Escape(evaluation.worker)}});
      if (!evaluation.reason.empty()) table.AddNote(Escape(evaluation.reason));
      if (!evaluation.unhealthy.empty()) table.AddNote("unhealthy: " + Escape(evaluation.unhealthy));
    }
  }
  return table.Format(invocation.console);
}

bool HasAny(const StepInfo& info, const std::vector<std::string>& metrics) {
  return std::any_of(metrics.begin(), metrics.end(),
                     [&](const std::string& metric) { return info.metrics.contains(metric); });
}

void PrintMetricsAsJson(const Invocation& invocation, const std::vector<std::string>& metrics) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["metrics"] = metrics;
  PrintWithArray(invocation.console, document, "steps", [&](const std::function<void(const Json&)>& add) {
    for (const StepInfo& info : invocation.reader.Steps()) {
      if (!HasAny(info, metrics)) continue;
      Json step = StepToJson(info);
      Json& values = step["values"] = Json::object();
      for (const std::string& metric : metrics) {
        const auto found = info.metrics.find(metric);
        values[metric] = found == info.metrics.end() ? Json(nullptr) : NumberToJson(found->second);
      }
      add(step);
    }
  });
}

std::string MetricsAsTable(const Invocation& invocation, const std::vector<std::string>& metrics) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {
      {"STEP", kRight}, {"AGE", kRight, Table::Narrow::kWhole, 1}, {"STATE", kLeft, Table::Narrow::kWhole, 2}};
  for (const std::string& metric : metrics) columns.push_back({Escape(metric), kRight});
  Table table(std::move(columns));
  for (const StepInfo& info : invocation.reader.Steps()) {
    if (!HasAny(info, metrics)) continue;
    std::vector<Table::Cell> cells = {{fmt::format("{}", info.step)},
                                      {AgeOf(info, invocation.now)},
                                      {std::string(StepStateName(info.state)), StateColour(info.state)}};
    for (const std::string& metric : metrics) {
      const auto found = info.metrics.find(metric);
      cells.push_back({found == info.metrics.end() ? "-" : MetricText(found->second)});
    }
    table.AddRow(cells);
  }
  return table.Format(invocation.console);
}

}  // namespace

ExitCode ShowHistory(const Invocation& invocation, const std::vector<std::string>& metrics) {
  Console& console = invocation.console;
  const StoreReader& reader = invocation.reader;
  constexpr MetricPlace kPlace = {.before = "history ",
                                  .no_end = "only valid with --plot, as METRIC:highest or METRIC:lowest"};
  for (const std::string& metric : metrics) {
    if (const absl::Status known = CheckMetric(reader, metric, kPlace); !known.ok()) {
      console.Fail(known);
      return ExitCode::kFailure;
    }
  }
  if (!metrics.empty()) {
    if (invocation.json) {
      PrintMetricsAsJson(invocation, metrics);
    } else {
      console.PrintData(MetricsAsTable(invocation, metrics));
    }
    return StoreExitCode(reader);
  }
  if (invocation.json) {
    PrintRowsAsJson(invocation);
  } else {
    console.PrintData(RowsAsTable(invocation));
  }
  if (std::none_of(reader.Steps().begin(), reader.Steps().end(), HasRows)) {
    console.Note(fmt::format("no step has a metric or was evaluated in {}", invocation.directory));
  }
  return StoreExitCode(reader);
}

void AddHistory(CommandLine& line) {
  const auto options = std::make_shared<HistoryPlotOptions>();
  const auto plot = std::make_shared<bool>(false);
  CLI::App* history = line.Add(
      {.group = CommandGroup::kLook,
       .name = "history",
       .description = "List or plot the metrics of each step, deleted steps included, and the results of evaluators"},
      [options, plot](const Invocation& invocation) {
        return *plot ? PlotHistory(invocation, *options) : ShowHistory(invocation, options->metrics);
      });
  AddTexts(history, "METRIC", options->metrics,
           "Only these metrics, a column each; with --plot, METRIC:highest marks the highest value as the best");
  CLI::Option* plots = history->add_flag("--plot", *plot, "Draw the metrics against the steps");
  history->add_flag("--log", options->log, "Use a logarithmic scale")->needs(plots);
  history->footer(R"(
Examples:
  checkpoint-inspect --store run/ckpt history validation/loss
  checkpoint-inspect --store run/ckpt history --plot validation/loss validation/accuracy:highest)");
}

}  // namespace tidemark::inspect
