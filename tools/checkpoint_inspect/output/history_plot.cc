#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/cli/metric_choice.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/plot.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Where none is named: as many as one looks through.
constexpr size_t kPlotsMax = 8;

std::vector<MetricChoice> AllMetrics(const StoreReader& reader) {
  std::set<std::string> names;
  for (const StepInfo& info : reader.Steps()) {
    for (const auto& [name, value] : info.metrics) names.insert(name);
  }
  std::vector<MetricChoice> choices;
  for (const std::string& name : names) choices.push_back({.name = name, .mode = std::nullopt});
  return choices;
}

std::string PlotOf(const Invocation& invocation, const MetricChoice& metric, bool log) {
  std::vector<PlotPoint> points;
  for (const StepInfo& info : invocation.reader.Steps()) {
    const auto found = info.metrics.find(metric.name);
    if (found == info.metrics.end()) continue;
    points.push_back({.step = info.step, .value = found->second, .deleted = info.state == StepState::kDeleted});
  }
  PlotOptions plot{.title = Escape(metric.name), .columns = invocation.console.columns(), .log = log};
  // The best of the steps that still exist. There is no mark if the mode of the metric is not known.
  const std::optional<BestMode> mode = metric.mode ? metric.mode : invocation.reader.BestModeOf(metric.name);
  if (mode) {
    if (const auto best = invocation.reader.BestStep(metric.name, *mode); best.ok()) plot.best = best->step;
  }
  return FormatPlot(invocation.console, points, plot);
}

}  // namespace

ExitCode PlotHistory(const Invocation& invocation, const HistoryPlotOptions& options) {
  Console& console = invocation.console;
  const StoreReader& reader = invocation.reader;
  if (invocation.json) {
    console.Fail("--json and --plot cannot be combined");
    return ExitCode::kUsage;
  }
  std::vector<MetricChoice> metrics;
  for (const std::string& text : options.metrics) {
    metrics.push_back(ParseMetricChoice(text));
    const absl::Status known = CheckMetric(reader, metrics.back().name, {.before = "history --plot "});
    if (!known.ok()) {
      console.Fail(known);
      return ExitCode::kFailure;
    }
  }
  if (options.metrics.empty()) metrics = AllMetrics(reader);
  size_t left_out = 0;
  if (options.metrics.empty() && metrics.size() > kPlotsMax) {
    left_out = metrics.size() - kPlotsMax;
    metrics.resize(kPlotsMax);
  }
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (i > 0) console.PrintData("\n");
    console.PrintData(PlotOf(invocation, metrics[i], options.log));
  }
  for (const MetricChoice& metric : metrics) {
    if (options.metrics.empty() || metric.mode || reader.BestModeOf(metric.name)) continue;
    console.Note(fmt::format("no best value of {0} is marked; {0}:lowest or {0}:highest says which is better",
                             Escape(metric.name)));
  }
  if (metrics.empty()) console.Note(fmt::format("no step has a metric in {}", invocation.directory));
  if (left_out > 0) console.Note(fmt::format("{} more metrics are not plotted; name them to plot them", left_out));
  return StoreExitCode(reader);
}

}  // namespace tidemark::inspect
