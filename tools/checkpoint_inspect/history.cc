#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

// A row for each evaluation, and where there is none, one for the metrics that were saved with the step.
bool HasRows(const StepInfo& info) { return !info.evaluations.empty() || !info.metrics.empty(); }

Json StepToJson(const StepInfo& info) {
  return {{"step", info.step},
          {"state", StepStateName(info.state)},
          {"attempt", info.attempt},
          {"created", KnowsCreated(info) ? Json(Rfc3339(info.created)) : Json(nullptr)}};
}

// Of a step that was not evaluated: the fields that every row has, in their order.
Json SavedMetricsToJson(const StepInfo& info) {
  Json row = StepToJson(info);
  row.update(ToJson(Evaluation{.metrics = info.metrics}));
  for (const char* of_evaluators : {"evaluator", "outcome", "worker", "reported", "seconds"}) {
    row[of_evaluators] = nullptr;
  }
  return row;
}

void PrintRowsAsJson(const Invocation& invocation) {
  const Json document = NewDocument(invocation.reader, invocation.directory);
  PrintWithArray(invocation.console, document, "history", [&](const std::function<void(const Json&)>& add) {
    for (const StepInfo& info : invocation.reader.steps()) {
      if (!HasRows(info)) continue;
      if (info.evaluations.empty()) add(SavedMetricsToJson(info));
      for (const Evaluation& evaluation : info.evaluations) {
        Json row = StepToJson(info);
        row.update(ToJson(evaluation));
        add(row);
      }
    }
  });
}

// By the names that they have among the step's metrics, and in selectors.
std::string MetricsOf(const Evaluation& evaluation) {
  std::map<std::string, double> named;
  for (const auto& [name, value] : evaluation.metrics) named[evaluation.evaluator + "/" + name] = value;
  return MetricsText(named);
}

std::string RowsAsTable(const Invocation& invocation) {
  using enum Table::Align;
  Table table({{"STEP", kRight},
               {"AGE", kRight},
               {"STATE"},
               {"EVALUATOR"},
               {"METRICS", kLeft, /*may_cut=*/true},
               {"OUTCOME"},
               {"SECONDS", kRight},
               {"WORKER"}});
  for (const StepInfo& info : invocation.reader.steps()) {
    if (!HasRows(info)) continue;
    const Table::Cell step = {fmt::format("{}", info.step)};
    const Table::Cell age = {AgeOf(info, invocation.now)};
    const Table::Cell state = {std::string(StepStateName(info.state)), StateColour(info.state)};
    if (info.evaluations.empty()) {
      table.AddRow({step, age, state, {"-"}, {MetricsText(info.metrics)}, {"-"}, {"-"}, {"-"}});
    }
    for (const Evaluation& evaluation : info.evaluations) {
      table.AddRow({step,
                    age,
                    state,
                    {Escape(evaluation.evaluator)},
                    {MetricsOf(evaluation)},
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
    for (const StepInfo& info : invocation.reader.steps()) {
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
  std::vector<Table::Column> columns = {{"STEP", kRight}, {"AGE", kRight}, {"STATE"}};
  for (const std::string& metric : metrics) columns.push_back({Escape(metric), kRight});
  Table table(std::move(columns));
  for (const StepInfo& info : invocation.reader.steps()) {
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
  constexpr MetricPlace kPlace = {.before = "history ", .no_end = "takes an end only with --plot"};
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
  if (std::none_of(reader.steps().begin(), reader.steps().end(), HasRows)) {
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
       .description = "List or plot the metrics of each step, deleted ones included, and what evaluators said"},
      [options, plot](const Invocation& invocation) {
        return *plot ? PlotHistory(invocation, *options) : ShowHistory(invocation, options->metrics);
      });
  AddTexts(history, "METRIC", options->metrics,
           "Show these metrics instead, step by step; with --plot METRIC:highest marks its highest value");
  CLI::Option* plots = history->add_flag("--plot", *plot, "Draw the metrics, or all that there are, against the steps");
  history->add_flag("--log", options->log, "Draw them on a logarithmic scale")->needs(plots);
  history->footer(R"(
Examples:
  checkpoint-inspect --store run/ckpt history validation/loss
  checkpoint-inspect --store run/ckpt history --plot validation/loss validation/accuracy:highest)");
}

}  // namespace tidemark::inspect
