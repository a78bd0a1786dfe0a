#include "tools/checkpoint_inspect/output/chart_svg.h"

#include <limits>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

LineChart SmallChart() {
  return {.title = "loss by step",
          .description = "3 values",
          .x_label = "step",
          .y_label = "loss",
          .points = {{.x = 0, .y = 2, .marks = {Mark::kSaved}, .hover = "step 0\nloss = 2"},
                     {.x = 10, .y = 1, .marks = {Mark::kSaved, Mark::kBest}, .hover = "step 10\nloss = 1"}}};
}

// What a browser was seen to draw well. Whoever changes the drawing looks at it in one again.
TEST(LineChartSvg, DrawsAxesLineMarksAndHovers) {
  EXPECT_EQ(
      LineChartSvg(SmallChart()),
      R"svg(<svg class="chart lines" role="img" viewBox="0 0 540 270" width="540" height="270"><title>loss by step</title><desc>3 values</desc>
<line x1="74" y1="224" x2="522" y2="224" class="grid"/>
<text x="66" y="228" class="tick" text-anchor="end">1.0</text>
<line x1="74" y1="182" x2="522" y2="182" class="grid"/>
<text x="66" y="186" class="tick" text-anchor="end">1.2</text>
<line x1="74" y1="140" x2="522" y2="140" class="grid"/>
<text x="66" y="144" class="tick" text-anchor="end">1.4</text>
<line x1="74" y1="98" x2="522" y2="98" class="grid"/>
<text x="66" y="102" class="tick" text-anchor="end">1.6</text>
<line x1="74" y1="56" x2="522" y2="56" class="grid"/>
<text x="66" y="60" class="tick" text-anchor="end">1.8</text>
<line x1="74" y1="14" x2="522" y2="14" class="grid"/>
<text x="66" y="18" class="tick" text-anchor="end">2.0</text>
<line x1="74" y1="224" x2="522" y2="224" class="axis"/>
<line x1="74" y1="224" x2="74" y2="228" class="axis"/>
<text x="74" y="242" class="tick" text-anchor="middle">0</text>
<line x1="163.6" y1="224" x2="163.6" y2="228" class="axis"/>
<text x="163.6" y="242" class="tick" text-anchor="middle">2</text>
<line x1="253.2" y1="224" x2="253.2" y2="228" class="axis"/>
<text x="253.2" y="242" class="tick" text-anchor="middle">4</text>
<line x1="342.8" y1="224" x2="342.8" y2="228" class="axis"/>
<text x="342.8" y="242" class="tick" text-anchor="middle">6</text>
<line x1="432.4" y1="224" x2="432.4" y2="228" class="axis"/>
<text x="432.4" y="242" class="tick" text-anchor="middle">8</text>
<line x1="522" y1="224" x2="522" y2="228" class="axis"/>
<text x="522" y="242" class="tick" text-anchor="middle">10</text>
<text x="298" y="262" class="label" text-anchor="middle">step</text>
<text x="14" y="119" class="label" text-anchor="middle" transform="rotate(-90 14 119)">loss</text>
<path class="line" d="M74 14L522 224"/>
<circle class="saved" cx="74" cy="14" r="2.5"/>
<circle class="saved" cx="522" cy="224" r="2.5"/>
<path class="best" d="M522 216.5L523.9 221.5L529.1 221.7L525 225L526.4 230.1L522 227.2L517.6 230.1L519 225L514.9 221.7L520.1 221.5Z"/>
<rect x="66" y="6" width="232" height="226" class="hover"><title>step 0
loss = 2</title></rect>
<rect x="298" y="6" width="232" height="226" class="hover"><title>step 10
loss = 1</title></rect>
</svg>
)svg");
}

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
  EXPECT_EQ(Occurrences(path, "M"), 2);
  EXPECT_EQ(Occurrences(path, "L"), 1);
  EXPECT_EQ(Occurrences(svg, "class=\"notfinite\""), 2);
  EXPECT_EQ(Occurrences(svg, "class=\"saved\""), 3);
  EXPECT_EQ(Occurrences(svg, "class=\"unhealthy\""), 1);
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
  EXPECT_EQ(Occurrences(svg, "class=\"saved\""), 0);
  EXPECT_EQ(Occurrences(svg, "class=\"best\""), 1);
  EXPECT_EQ(Occurrences(svg, "class=\"hover\""), 402);
}

TEST(LineChartSvg, MakesTextHarmless) {
  LineChart chart = SmallChart();
  chart.title = chart.description = chart.y_label = chart.points[0].hover = "</title><script>\x1b[31m\"'&]]>";
  const std::string svg = LineChartSvg(chart);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
  EXPECT_THAT(svg, Not(HasSubstr("]]>")));
  EXPECT_EQ(Occurrences(svg, "&lt;/title&gt;&lt;script&gt;\\x1b[31m&quot;&#39;&amp;]]&gt;"), 4);
}

TEST(StackedBarsSvg, StacksSeriesAndDrawsALineOverThem) {
  const StackedBars chart{.title = "Bytes",
                          .description = "two",
                          .x_label = "step",
                          .y_label = "bytes",
                          .unit = AxisUnit::kBytes,
                          .series = {"new", "reused"},
                          .colours = {0, 1},
                          .line = "logical",
                          .bars = {{.x = 1, .values = {1024, 0}, .line = 2048, .hover = "step 1"},
                                   {.x = 2, .values = {512, 512}, .line = 2048, .hover = "step 2"}}};
  EXPECT_EQ(
      StackedBarsSvg(chart),
      R"svg(<svg class="chart bars" role="img" viewBox="0 0 540 270" width="540" height="270"><title>Bytes</title><desc>two</desc>
<line x1="74" y1="224" x2="522" y2="224" class="grid"/>
<text x="66" y="228" class="tick" text-anchor="end">0 KiB</text>
<line x1="74" y1="171.5" x2="522" y2="171.5" class="grid"/>
<text x="66" y="175.5" class="tick" text-anchor="end">0.5 KiB</text>
<line x1="74" y1="119" x2="522" y2="119" class="grid"/>
<text x="66" y="123" class="tick" text-anchor="end">1 KiB</text>
<line x1="74" y1="66.5" x2="522" y2="66.5" class="grid"/>
<text x="66" y="70.5" class="tick" text-anchor="end">1.5 KiB</text>
<line x1="74" y1="14" x2="522" y2="14" class="grid"/>
<text x="66" y="18" class="tick" text-anchor="end">2 KiB</text>
<line x1="74" y1="224" x2="522" y2="224" class="axis"/>
<text x="298" y="262" class="label" text-anchor="middle">step</text>
<text x="14" y="119" class="label" text-anchor="middle" transform="rotate(-90 14 119)">bytes</text>
<text x="186" y="242" class="tick" text-anchor="middle">1</text>
<text x="410" y="242" class="tick" text-anchor="middle">2</text>
<rect x="96.4" y="119" width="179.2" height="105" class="s0"/>
<rect x="320.4" y="171.5" width="179.2" height="52.5" class="s0"/>
<rect x="320.4" y="119" width="179.2" height="52.5" class="s1"/>
<path class="over" d="M186 14L410 14"/>
<rect x="74" y="6" width="224" height="226" class="hover"><title>step 1</title></rect>
<rect x="298" y="6" width="224" height="226" class="hover"><title>step 2</title></rect>
</svg>
)svg");
}

TEST(StackedBarsSvg, DrawsTheLineOfASingleBar) {
  StackedBars chart{.title = {},
                    .description = {},
                    .x_label = {},
                    .y_label = {},
                    .series = {"a"},
                    .colours = {0},
                    .line = "b",
                    .bars = {}};
  EXPECT_THAT(StackedBarsSvg(chart), Not(HasSubstr("class=\"over\"")));
  chart.bars = {{.x = 1, .values = {0}, .line = 0, .hover = {}}};
  EXPECT_THAT(StackedBarsSvg(chart), HasSubstr("class=\"over\""));
}

TEST(StackedBarsSvg, HasTicksAtRoundNumbers) {
  StackedBars chart{.title = {},
                    .description = {},
                    .x_label = {},
                    .y_label = {},
                    .series = {"a"},
                    .colours = {0},
                    .line = {},
                    .bars = {}};
  for (int i = 0; i < 100; ++i) chart.bars.push_back({.x = 4900.0 + 5000 * i, .values = {1}, .hover = {}});
  const std::string svg = StackedBarsSvg(chart);
  EXPECT_THAT(svg, AllOf(HasSubstr(">100k<"), HasSubstr(">400k<"), Not(HasSubstr("900<"))));
  // A tenth of a bar's pitch behind bar 19, which is of 99,900 and whose middle is at 74 + 19.5 * 4.48.
  EXPECT_THAT(svg, HasSubstr("<text x=\"161.4\" y=\"242\" class=\"tick\" text-anchor=\"middle\">100k</text>"));
}

TEST(LineChartSvg, ShowsTheRangeThatItIsTold) {
  LineChart chart = SmallChart();
  chart.x_range = {0, 20};
  EXPECT_THAT(LineChartSvg(chart),
              AllOf(HasSubstr(">20</text>"), HasSubstr("<path class=\"line\" d=\"M74 14L298 224\"/>")));
}

}  // namespace
}  // namespace tidemark::inspect
