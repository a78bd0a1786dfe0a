#include "tools/checkpoint_inspect/report/report_charts.h"

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

StepInfo Saved(int64_t step, double loss) {
  StepInfo info;
  info.step = step;
  info.metrics["loss"] = loss;
  info.logical_bytes = 2048;
  info.stored_bytes = 1024;
  info.reused_bytes = 512;
  info.blocked = absl::Milliseconds(20);
  return info;
}

TEST(ThinOut, KeepsLowestAndHighestAndWhatIsMarked) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10'000; ++i) {
    points.push_back(
        {.x = static_cast<double>(i), .y = std::abs(i - 5000) * 1.0, .marks = {Mark::kSaved}, .hover = {}});
  }
  points[0].y = points[1].y - 0.5;
  points[9999].y = points[9998].y - 0.5;
  points[777].marks.push_back(Mark::kPinned);
  points[888].y = std::numeric_limits<double>::quiet_NaN();
  points[999].y = 1e6;
  const std::vector<ChartPoint> kept = ThinOut(points, 100);
  EXPECT_LE(kept.size(), 103);
  EXPECT_GE(kept.size(), 99);
  const auto has = [&](double x) {
    return std::any_of(kept.begin(), kept.end(), [x](const ChartPoint& point) { return point.x == x; });
  };
  for (const double x : {0, 777, 888, 999, 5000, 9999}) EXPECT_TRUE(has(x)) << x;
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
  EXPECT_THAT(ThinOut(points, 10'000), SizeIs(10'000));
}

// The first of a run, with which the others cannot be compared.
TEST(ThinOut, KeepsTheHighestBesideWhatIsNotANumber) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000; ++i) {
    points.push_back({.x = static_cast<double>(i), .y = 1, .marks = {Mark::kSaved}, .hover = {}});
  }
  points[400].y = std::numeric_limits<double>::quiet_NaN();
  points[417].y = 900;
  const std::vector<ChartPoint> kept = ThinOut(points, 50);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const ChartPoint& point) { return point.y == 900; }));
}

TEST(MetricFigure, MarksStepsAndTellsWhy) {
  std::vector<StepInfo> steps = {Saved(1, 4), Saved(2, 3), Saved(3, 2.5), Saved(4, 2.4)};
  steps[0].state = StepState::kDeleted;
  steps[0].reason = "not among the latest 3";
  steps[1].pinned = true;
  steps[1].pin_note = "for <me>";
  steps[3].pinned = true;
  steps[3].tags = {"paper", "v1"};
  steps[2].evaluations.push_back({.evaluator = "health", .unhealthy = "spike"});
  const ReportMetric metric{
      .name = "loss", .mode = BestMode::kLowest, .best = 4, .best_value = 2.4, .latest = 4, .latest_value = 2.4};
  const std::string html = MetricFigure(steps, metric, 0);
  EXPECT_EQ(Occurrences(html, "class=\"deleted\""), 1);
  EXPECT_EQ(Occurrences(html, "class=\"pinned\""), 2);
  EXPECT_EQ(Occurrences(html, "class=\"unhealthy\""), 1);
  EXPECT_EQ(Occurrences(html, "class=\"best\""), 1);
  EXPECT_THAT(html, HasSubstr("step 2, committed\nloss = 3\npinned: for &lt;me&gt;"));
  EXPECT_THAT(html, HasSubstr("\ntagged paper, v1"));
  EXPECT_THAT(html, HasSubstr("unhealthy: health: spike"));
  EXPECT_THAT(html, HasSubstr("not among the latest 3"));
  EXPECT_THAT(html, HasSubstr("best (lowest)"));
  EXPECT_THAT(html, Not(HasSubstr("log scale")));
}

TEST(MetricFigure, OffersALogarithmicScaleWhereItTellsMore) {
  const ReportMetric metric{.name = "loss", .mode = {}, .best = {}, .latest = {}};
  const std::vector<StepInfo> wide = {Saved(1, 100), Saved(2, 1)};
  const std::string html = MetricFigure(wide, metric, 7);
  EXPECT_THAT(html, HasSubstr("id=\"log7\""));
  EXPECT_EQ(Occurrences(html, "<svg"), 2);
  const std::vector<StepInfo> negative = {Saved(1, 100), Saved(2, -1)};
  EXPECT_EQ(Occurrences(MetricFigure(negative, metric, 0), "<svg"), 1);
}

// One chart of a page can be held against another.
TEST(MetricFigure, ShowsTheStepsOfThePageThoughFewHaveTheMetric) {
  std::vector<StepInfo> steps = {Saved(0, 4), Saved(10, 3), Saved(20, 2)};
  steps[0].metrics.clear();
  steps[2].metrics.clear();
  const std::string html = MetricFigure(steps, {.name = "loss", .mode = {}, .best = {}, .latest = {}}, 0);
  EXPECT_THAT(html, AllOf(HasSubstr(">0</text>"), HasSubstr(">20</text>")));
}

TEST(MetricFigure, SaysWhereThereIsNothingToShow) {
  const std::vector<StepInfo> steps = {Saved(1, 1)};
  const ReportMetric metric{.name = "<other>", .mode = {}, .best = {}, .latest = {}};
  EXPECT_THAT(MetricFigure(steps, metric, 0), HasSubstr("None of the steps shown has it"));
  EXPECT_THAT(MetricFigure(steps, metric, 0), HasSubstr("&lt;other&gt;"));
}

TEST(MarksLegend, NamesOnlyWhatThereIs) {
  std::vector<StepInfo> steps = {Saved(1, 1)};
  EXPECT_THAT(MarksLegend(steps), Not(HasSubstr("pinned")));
  EXPECT_THAT(MarksLegend(steps), Not(HasSubstr("NaN")));
  steps[0].pinned = true;
  steps[0].metrics["x"] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(MarksLegend(steps), HasSubstr("pinned"));
  EXPECT_THAT(MarksLegend(steps), HasSubstr("NaN or infinite"));
}

TEST(BytesFigure, StacksNewAndReusedBytesOfSavedSteps) {
  std::vector<StepInfo> steps = {Saved(1, 1), Saved(2, 1), Saved(3, 1)};
  steps[1].state = StepState::kUnsaved;
  const std::string html = BytesFigure(steps);
  EXPECT_EQ(Occurrences(html, "class=\"hover\""), 2);
  EXPECT_THAT(html, HasSubstr("step 3\nstored new: 1.0 KiB\nreused from earlier steps: 512 B\nlogical: 2.0 KiB"));
  EXPECT_EQ(BytesFigure(std::span(steps).subspan(1, 1)), "");
}

TEST(BlockedFigure, StacksTheParts) {
  const std::vector<StepInfo> steps = {Saved(1, 1), Saved(2, 1)};
  const std::vector<BlockedPart> parts = {
      {.name = "copy", .colour = 5, .by_step = {{1, absl::Milliseconds(15)}, {2, absl::Milliseconds(20)}}},
      {.name = "room", .colour = 3, .by_step = {{1, absl::Milliseconds(5)}}}};
  const std::string html = BlockedFigure(steps, parts);
  EXPECT_THAT(html, HasSubstr("step 1\ncopy: 15.0 ms\nroom: 5.0 ms"));
  EXPECT_THAT(html, HasSubstr("step 2\ncopy: 20.0 ms\nroom: 0.0 ms"));
  EXPECT_EQ(Occurrences(html, "class=\"s3\""), 2);  // the bar and the legend
}

TEST(BytesFigure, ShowsMeansWhereThereAreManySteps) {
  std::vector<StepInfo> steps;
  for (int64_t step = 0; step < 1000; ++step) steps.push_back(Saved(step, 1));
  const std::string html = BytesFigure(steps);
  EXPECT_LE(Occurrences(html, "class=\"hover\""), 120);
  EXPECT_THAT(html, HasSubstr("Each bar is the mean of 9 steps."));
  EXPECT_THAT(html, HasSubstr("steps 0 to 8, mean of 9"));
}

TEST(HistogramFigures, SaysWhatWasCounted) {
  ReportSurvey survey;
  survey.steps = {1};
  survey.histograms.push_back({.label = "<w>", .tensors = 2, .tensors_read = 1, .histogram = {}});
  for (const double value : {0.0, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    survey.histograms[0].histogram.Add(value);
  }
  const std::string html = HistogramFigures(survey);
  EXPECT_THAT(html, HasSubstr("4 numbers, 0 to 2, 1 zeros, 1 NaN; 1 of 2 tensors read"));
  EXPECT_THAT(html, HasSubstr("<code>&lt;w&gt;</code>"));
}

TEST(HistogramFigures, TellsWhatCouldNotBeReadFromWhatHasNoNumbers) {
  ReportSurvey survey;
  survey.steps = {1};
  survey.histograms.push_back({.label = "w", .tensors = 2, .tensors_read = 0, .histogram = {}});
  const std::string html = HistogramFigures(survey);
  EXPECT_THAT(html, HasSubstr("not read: 2 tensors"));
  EXPECT_THAT(html, Not(HasSubstr("0 numbers")));
}

TEST(HistogramFigures, ShowsNothingButZerosAsOneBarAtZero) {
  ReportSurvey survey;
  survey.steps = {1};
  survey.histograms.push_back({.label = "w", .tensors = 1, .tensors_read = 1, .histogram = {}});
  for (const double zero : {-0.0, 0.0, 0.0}) survey.histograms[0].histogram.Add(zero);
  const std::string html = HistogramFigures(survey);
  EXPECT_THAT(html, HasSubstr("3 numbers, 0 to 0, 3 zeros<"));
  EXPECT_THAT(html, HasSubstr("<title>0: 3</title>"));
  EXPECT_THAT(html, Not(HasSubstr("e-30")));
}

}  // namespace
}  // namespace tidemark::inspect
