#include <limits>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The widest line, in code points.
size_t Width(const std::string& text) {
  size_t widest = 0;
  size_t width = 0;
  for (const char c : text) {
    if (c == '\n') {
      widest = std::max(widest, width);
      width = 0;
    } else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return widest;
}

class HistoryPlotTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {100, 200, 300, 400}) {
      store_.Save({step}, {.metrics = {{"loss", 400.0 / static_cast<double>(step)}, {"rate", 0.5}}}, 16);
    }
    store_.Save({500}, {.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}}}, 16);
    store_.Delete(200, "not among the latest 3");
  }

  Finished Plot(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "history", "--plot"});
    return RunInspect(arguments, options);
  }

  TestStore store_;
};

TEST_F(HistoryPlotTest, DrawsTheMetricsThatAreNamed) {
  const Finished plot = Plot({"loss"});
  EXPECT_EQ(plot.exit_code, 0);
  EXPECT_EQ(plot.err, "");
  EXPECT_THAT(plot.out, AllOf(testing::StartsWith("loss\n"), HasSubstr("4 ┤"), HasSubstr("1 ┤"), HasSubstr("└┬"),
                              HasSubstr("* best: 1 at step 400   ! NaN or infinite: 1   x deleted steps: 1\n"),
                              Not(HasSubstr("rate"))));
  EXPECT_EQ(Width(plot.out), 80u);
}

TEST_F(HistoryPlotTest, DrawsAllMetricsWhereNoneIsNamed) {
  EXPECT_THAT(Plot({}).out, AllOf(testing::StartsWith("loss\n"), HasSubstr("\n\nrate\n")));
}

TEST_F(HistoryPlotTest, MarksTheHighestOrDrawsLogarithmsWhereItIsTold) {
  EXPECT_THAT(Plot({"loss:highest"}).out, AllOf(testing::StartsWith("loss\n"), HasSubstr("* best: 4 at step 100 ")));
  // Each as it is told.
  EXPECT_THAT(Plot({"loss:highest", "loss"}).out,
              AllOf(HasSubstr("* best: 4 at step 100 "), HasSubstr("* best: 1 at step 400 ")));
  // Half of the way is the geometric mean.
  EXPECT_THAT(Plot({"loss", "--log"}).out, HasSubstr("\n1.587 ┤"));
}

TEST_F(HistoryPlotTest, MarksNoBestWhereNothingTellsWhichEndItIs) {
  const Finished plot = Plot({"rate"});
  EXPECT_THAT(plot.out, Not(HasSubstr("* best")));
  EXPECT_EQ(plot.err,
            "checkpoint-inspect: no best value of rate is marked; rate:lowest or rate:highest says which is "
            "better\n");
  store_.RecordBestModes({{"rate", BestMode::kHighest}});
  EXPECT_THAT(Plot({"rate"}).out, HasSubstr("* best: 0.5 at step 400"));
}

TEST_F(HistoryPlotTest, IsAsWideAsTheTerminal) {
  EXPECT_EQ(Width(Plot({"loss"}, {.environment = {{"COLUMNS", "60"}}}).out), 60u);
  EXPECT_EQ(Width(Plot({"loss"}, {.environment = {{"COLUMNS", "x"}}}).out), 80u);
  EXPECT_EQ(Width(Plot({"loss"}, {.environment = {{"COLUMNS", "1"}}}).out), 40u);
}

TEST_F(HistoryPlotTest, ColoursTheMarksOnATerminal) {
  const std::string out = Plot({"loss"}, {.terminal = true}).out;
  EXPECT_THAT(out,
              AllOf(HasSubstr("\x1b[1mloss\x1b[0m"), HasSubstr("\x1b[32m*\x1b[0m"), HasSubstr("\x1b[31m!\x1b[0m")));
}

TEST_F(HistoryPlotTest, RefusesWhatItCannotDraw) {
  EXPECT_EQ(Plot({"loss", "--json"}).exit_code, 2);
  const Finished unknown = Plot({"accuracy:highest"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.out, "");
  EXPECT_EQ(unknown.err, "checkpoint-inspect: error: no step has a metric 'accuracy'; there are: loss, rate\n");
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "history", "loss", "--log"}).exit_code, 2);
}

TEST(HistoryPlot, DrawsAFewWhereThereAreManyMetricsAndNoneWhereThereAreNone) {
  TestStore store;
  store.Save({1}, {}, 16);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "history", "--plot"}).err,
            "checkpoint-inspect: no step has a metric in " + store.directory() + "\n");
  SaveOptions options;
  for (int i = 0; i < 11; ++i) options.metrics["metric_" + std::to_string(i)] = i;
  store.Save({2}, options, 16);
  const Finished plot = RunInspect({"--store", store.directory(), "history", "--plot"});
  EXPECT_EQ(plot.exit_code, 0);
  EXPECT_EQ(plot.err, "checkpoint-inspect: 3 more metrics are not plotted; name them to plot them\n");
}

}  // namespace
}  // namespace tidemark::inspect
