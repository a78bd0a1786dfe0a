#include "tools/checkpoint_inspect/output/histogram_svg.h"

#include <limits>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(HistogramSvg, DrawsBinsWithWhatIsInThem) {
  EXPECT_EQ(
      HistogramSvg(
          {.title = "Histogram of w", .description = "4 numbers", .bins = {.edges = {-1, 0, 1}, .counts = {3, 1}}}),
      R"svg(<svg class="chart histogram" role="img" viewBox="0 0 270 150" width="270" height="150"><title>Histogram of w</title><desc>4 numbers</desc>
<line x1="58" y1="110" x2="256" y2="110" class="grid"/>
<text x="52" y="114" class="tick" text-anchor="end">0</text>
<line x1="58" y1="76.7" x2="256" y2="76.7" class="grid"/>
<text x="52" y="80.7" class="tick" text-anchor="end">1</text>
<line x1="58" y1="43.3" x2="256" y2="43.3" class="grid"/>
<text x="52" y="47.3" class="tick" text-anchor="end">2</text>
<line x1="58" y1="10" x2="256" y2="10" class="grid"/>
<text x="52" y="14" class="tick" text-anchor="end">3</text>
<rect x="58" y="10" width="40" height="100" class="s0"/>
<rect x="58" y="10" width="99" height="100" class="hover"><title>-1 to 0: 3</title></rect>
<rect x="157" y="76.7" width="40" height="33.3" class="s0"/>
<rect x="157" y="10" width="99" height="100" class="hover"><title>0 to 1: 1</title></rect>
<line x1="58" y1="110" x2="256" y2="110" class="axis"/>
<line x1="58" y1="110" x2="58" y2="114" class="axis"/>
<text x="58" y="127" class="tick" text-anchor="middle">-1</text>
<line x1="157" y1="110" x2="157" y2="114" class="axis"/>
<text x="157" y="127" class="tick" text-anchor="middle">0</text>
<line x1="256" y1="110" x2="256" y2="114" class="axis"/>
<text x="256" y="127" class="tick" text-anchor="middle">1</text>
<text x="157" y="144" class="label" text-anchor="middle">value</text>
<text x="11" y="60" class="label" text-anchor="middle" transform="rotate(-90 11 60)">numbers</text>
</svg>
)svg");
}

TEST(HistogramSvg, LabelsTheEndsAndZeroOfALogarithmicOne) {
  const HistogramChart mirrored{
      .title = {}, .description = {}, .bins = {.edges = {-8, -1, 1, 8}, .counts = {1, 2, 3}}, .log = true};
  const std::string svg = HistogramSvg(mirrored);
  EXPECT_THAT(svg, HasSubstr(">-8<"));
  EXPECT_THAT(svg, HasSubstr(">0<"));
  EXPECT_THAT(svg, HasSubstr(">8<"));
  EXPECT_THAT(svg, HasSubstr("symmetric log"));
}

TEST(HistogramSvg, DrawsOneBarInTheMiddleWhereThereIsOneNumber) {
  for (const bool log : {false, true}) {
    const std::string svg =
        HistogramSvg({.title = {}, .description = {}, .bins = {.edges = {0, 0}, .counts = {7}}, .log = log});
    EXPECT_THAT(svg, HasSubstr("<rect x=\"137\" y=\"40\" width=\"40\" height=\"70\" class=\"s0\"/>"));
    EXPECT_THAT(svg, HasSubstr("<title>0: 7</title>"));
    EXPECT_THAT(svg, HasSubstr("<text x=\"157\" y=\"127\" class=\"tick\" text-anchor=\"middle\">0</text>"));
    // The only one below the axis.
    EXPECT_EQ(Occurrences(svg, "y=\"127\""), 1);
  }
  const std::string svg =
      HistogramSvg({.title = {}, .description = {}, .bins = {.edges = {-0.0625, -0.0625}, .counts = {7}}});
  EXPECT_THAT(svg, HasSubstr(">-0.0625</text>"));
}

TEST(HistogramSvg, LabelsTheEndsWhereTheirDistanceIsNoDouble) {
  const double max = std::numeric_limits<double>::max();
  const std::string svg = HistogramSvg(
      {.title = {}, .description = {}, .bins = {.edges = {-max, -1e307, 1e307, max}, .counts = {1, 2, 3}}});
  EXPECT_THAT(svg, HasSubstr("<text x=\"58\" y=\"127\" class=\"tick\" text-anchor=\"middle\">-1.8e+308</text>"));
  EXPECT_THAT(svg, HasSubstr("<text x=\"157\" y=\"127\" class=\"tick\" text-anchor=\"middle\">0</text>"));
  EXPECT_THAT(svg, HasSubstr("<text x=\"256\" y=\"127\" class=\"tick\" text-anchor=\"middle\">1.8e+308</text>"));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(HistogramSvg, SaysThatNothingWasFinite) {
  const std::string svg = HistogramSvg({.title = "<x>", .description = {}, .bins = {}});
  EXPECT_THAT(svg, HasSubstr("no finite values"));
  EXPECT_THAT(svg, HasSubstr("&lt;x&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<rect")));
}

}  // namespace
}  // namespace tidemark::inspect
