#include "tools/checkpoint_inspect/output/plot.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "gmock/gmock.h"
#include "tests/non_finite.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;

// Without colours.
std::string Draw(const std::vector<PlotPoint>& points, PlotOptions options = {}) {
  Console console(stdout, stderr);
  if (options.title.empty()) options.title = "loss";
  options.columns = 40;
  options.rows = 5;
  return FormatPlot(console, points, options);
}

TEST(Plot, JoinsPointsBetweenLabelledAxes) {
  EXPECT_EQ(Draw({{0, 0}, {1, 1}, {2, 2}, {3, -2}}), R"(loss
  2 ┤                ⣀⣀⡠⠤⠤⠔⠒⠤⡀
    │    ⢀⣀⣀⡠⠤⠤⠔⠒⠒⠉⠉⠉        ⠈⠑⢄⡀
    │⠒⠊⠉⠉⠁                      ⠈⠒⢄⡀
    │                              ⠈⠢⢄
 -2 ┤                                 ⠉⠂
    └┬──────────┬──────────────────────┬
step 0          1                      3
)");
}

TEST(Plot, MarksTheBestStepDeletedOnesAndGaps) {
  EXPECT_EQ(Draw({{0, 4, true}, {10, 3, true}, {20, kNan}, {30, kInfinity, true}, {40, 1}, {50, 2}}, {.best = 40}),
            R"(loss
  4 ┤⠒⠤⢄⡀
    │   ⠈⠉⠒⠢⠄
    │
    │                             ⢀⣀⠤⠒⠊⠁
  1 ┤                           ⠒⠉⠁
    └┬────────────────┬────────────────┬
step 0               25               50
     x      x      !     !      *
  * best: 1 at step 40
  ! NaN or infinite: 2
  x deleted steps: 3
)");
}

TEST(Plot, DrawsLogarithmsWithoutWhatHasNone) {
  EXPECT_EQ(Draw({{7, -1}, {9, 0}, {11, 10}, {12, 1000}}, {.log = true}), R"(loss
1000 ┤                                ⡠⠂
     │                              ⢀⠔⠁
     │                             ⡠⠃
     │                           ⢠⠊
  10 ┤                          ⠐⠁
     └┬────────────┬───────────────────┬
 step 7            9                  12
      !            !
  ! not above 0, and has no logarithm: 2
)");
}

TEST(Plot, PutsASingleValueInTheMiddle) {
  EXPECT_EQ(Draw({{7, 3}}, {.best = 7}), R"(loss
4.5 ┤
    │
    │⠂
    │
1.5 ┤
    └┬──────────────────────────────────
step 7
     *
  * best: 3 at step 7
)");
}

TEST(Plot, SaysThatThereIsNothingToDraw) {
  EXPECT_EQ(Draw({}), "loss\n  nothing to draw\n");
  EXPECT_EQ(Draw({{7, kNan}, {9, -kInfinity, true}}),
            "loss\n  nothing to draw\n  ! NaN or infinite: 2\n  x deleted steps: 1\n");
}

TEST(Plot, DrawsTheLargestNumbersThereAre) {
  EXPECT_EQ(Draw({{0, -1.7e308}, {std::numeric_limits<int64_t>::max(), 1.7e308}}), R"(loss
 1.7e+308 ┤                        ⣀⡠⠤⠔⠂
          │                 ⣀⡠⠤⠔⠒⠉⠉
          │          ⣀⡠⠤⠔⠒⠉⠉
          │   ⣀⡠⠤⠔⠒⠉⠉
-1.7e+308 ┤⠒⠉⠉
          └┬───────────────────────────┬
      step 0         9223372036854775807
)");
  for (const double value : {1.7e308, -1.7e308, 5e-324, 1e-300, 0.0}) {
    EXPECT_THAT(Draw({{1, value}}), testing::Not(testing::AnyOf(HasSubstr("nan"), HasSubstr("inf")))) << value;
  }
}

TEST(Plot, HasARowForEachAndLabelsInThePlotsOwnWidth) {
  std::vector<PlotPoint> points;
  for (int i = 0; i <= 1000; ++i) points.push_back({i, std::sin(i / 100.0)});
  Console console(stdout, stderr);
  const std::string text = FormatPlot(console, points, {.title = "sine", .columns = 100, .rows = 21});
  size_t rows = 0;
  for (size_t at = 0; (at = text.find("┤", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, 6u);
  rows = 0;
  for (size_t at = 0; (at = text.find("│", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, 15u);
}

}  // namespace
}  // namespace tidemark::inspect
