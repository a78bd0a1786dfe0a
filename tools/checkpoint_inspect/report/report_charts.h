// The charts of a report: what steps and surveys say, as figures of a page. Pure functions that return HTML.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_CHARTS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_CHARTS_H_

#include <span>
#include <string>
#include <vector>

#include "tidemark/step_info.h"
#include "tools/checkpoint_inspect/output/chart_svg.h"
#include "tools/checkpoint_inspect/report/report_data.h"
#include "tools/checkpoint_inspect/report/report_survey.h"

namespace tidemark::inspect {

// What MetricFigure's marks mean, for those of them that are on a step.
std::string MarksLegend(std::span<const StepInfo> steps);

// The metric against the steps that have it. With a switch to a logarithmic scale where that tells more; `number` makes
// its id unique in the page.
std::string MetricFigure(std::span<const StepInfo> steps, const ReportMetric& metric, size_t number);

// At most `points_max` (>= 4) points: the first and the last, and of each run of neighbours the lowest and the highest.
// In addition, all points that are not finite, or that have another mark than saved or deleted. Ascending.
std::vector<ChartPoint> ThinOut(std::vector<ChartPoint> points, size_t points_max);

// Of the steps that were saved; nothing where there are none.
std::string BytesFigure(std::span<const StepInfo> steps);
std::string BlockedFigure(std::span<const StepInfo> steps, std::span<const BlockedPart> parts);

std::string ChangesFigure(const ReportSurvey& survey);
std::string HistogramFigures(const ReportSurvey& survey);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_CHARTS_H_
