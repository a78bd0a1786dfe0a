#include "tools/checkpoint_inspect/chart_svg.h"

#include <limits>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

LineChart SmallChart() {
  return {.title = "loss by step",
          .description = "3 values",
          .x_label = "step",
          .y_label = "loss",
          .points = {{.x = 0, .y = 2, .marks = {Mark::kSaved}, .hover = "step 0\nloss = 2"},
                     {.x = 10, .y = 1, .marks = {Mark::kSaved, Mark::kBest}, .hover = "step 10\nloss = 1"}}};
}

// What a browser was seen to draw well. Whoever changes the drawing looks at it in one again.
TEST(LineChartSvg, DrawsAxesLineMarksAndHovers) { EXPECT_EQ(LineChartSvg(SmallChart()), R"(@LINE@)"); }

TEST(LineChartSvg, BreaksTheLineAtNumbersThatAreNone) {
  LineChart chart = SmallChart();
  const double infinity = std::numeric_limits<double>::infinity();
  chart.points = {{.x = 0, .y = 1, .marks = {Mark::kSaved}, .hover = {}},
                  {.x = 1, .y = 2, .marks = {Mark::kSaved}, .hover = {}},
                  {.x = 2, .y = std::numeric_limits<double>::quiet_NaN(), .marks = {Mark::kSaved}, .hover = {}},
                  {.x = 3, .y = infinity, .marks = {Mark::kSaved, Mark::kUnhealthy}, .hover = {}},
                  {.x = 4, .y = 1, .marks = {Mark::kSaved}, .hover = {}}};
  const std::string svg = LineChartSvg(chart);
  const size_t line = svg.find("class=\"line\" d=\"");
  ASSERT_NE(line, std::string::npos);
  const std::string path = svg.substr(line, svg.find("/>", line) - line);
  EXPECT_EQ(Count(path, "M"), 2);
  EXPECT_EQ(Count(path, "L"), 1);
  EXPECT_EQ(Count(svg, "class=\"notfinite\""), 2);
  EXPECT_EQ(Count(svg, "class=\"saved\""), 3);
  EXPECT_EQ(Count(svg, "class=\"unhealthy\""), 1);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("\"inf")));
}

TEST(LineChartSvg, DrawsNothingButTheFrameOfNoPoints) {
  LineChart chart = SmallChart();
  chart.points.clear();
  EXPECT_THAT(LineChartSvg(chart), Not(HasSubstr("class=\"line\"")));
  chart.points = {{.x = 5, .y = std::numeric_limits<double>::quiet_NaN(), .marks = {}, .hover = {}}};
  chart.log = true;
  EXPECT_THAT(LineChartSvg(chart), HasSubstr("class=\"notfinite\""));
}

TEST(LineChartSvg, LeavesOutCommonMarksWhereTheyWouldRunIntoEachOther) {
  LineChart chart = SmallChart();
  for (int i = 0; i < 400; ++i) chart.points.push_back({.x = 20.0 + i, .y = 1, .marks = {Mark::kSaved}, .hover = {}});
  const std::string svg = LineChartSvg(chart);
  EXPECT_EQ(Count(svg, "class=\"saved\""), 0);
  EXPECT_EQ(Count(svg, "class=\"best\""), 1);
  EXPECT_EQ(Count(svg, "class=\"hover\""), 402);
}

TEST(LineChartSvg, MakesTextHarmless) {
  LineChart chart = SmallChart();
  chart.title = chart.description = chart.y_label = chart.points[0].hover = "</title><script>\x1b[31m\"'&]]>";
  const std::string svg = LineChartSvg(chart);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
  EXPECT_THAT(svg, Not(HasSubstr("]]>")));
  EXPECT_EQ(Count(svg, "&lt;/title&gt;&lt;script&gt;\\x1b[31m&quot;&#39;&amp;]]&gt;"), 4);
}

TEST(StackedBarsSvg, StacksSeriesAndDrawsALineOverThem) {
  const StackedBars chart{.title = "Bytes",
                          .description = "two",
                          .x_label = "step",
                          .y_label = "bytes",
                          .unit = AxisUnit::kBytes,
                          .series = {"new", "reused"},
                          .line = "logical",
                          .bars = {{.label = "1", .values = {1024, 0}, .line = 2048, .hover = "step 1"},
                                   {.label = "2", .values = {512, 512}, .line = 2048, .hover = "step 2"}}};
  EXPECT_EQ(StackedBarsSvg(chart), R"(@BARS@)");
}

TEST(StackedBarsSvg, ThinsOutLabelsAndDrawsTheLineOfASingleBar) {
  StackedBars chart{
      .title = {}, .description = {}, .x_label = {}, .y_label = {}, .series = {"a"}, .line = "b", .bars = {}};
  EXPECT_THAT(StackedBarsSvg(chart), Not(HasSubstr("class=\"over\"")));
  chart.bars = {{.label = "1", .values = {0}, .line = 0, .hover = {}}};
  EXPECT_THAT(StackedBarsSvg(chart), HasSubstr("class=\"over\""));
  chart.bars.assign(100, {.label = "123456", .values = {1}, .line = 1, .hover = {}});
  EXPECT_LE(Count(StackedBarsSvg(chart), ">123456<"), 10);
}

}  // namespace
}  // namespace tidemark::inspect
