#include "tools/checkpoint_inspect/histogram_svg.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HistogramSvg, DrawsBinsWithWhatIsInThem) {
  EXPECT_EQ(
      HistogramSvg(
          {.title = "Histogram of w", .description = "4 numbers", .bins = {.edges = {-1, 0, 1}, .counts = {3, 1}}}),
      R"(@HISTOGRAM@)");
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

TEST(HistogramSvg, SaysThatNothingWasFinite) {
  const std::string svg = HistogramSvg({.title = "<x>", .description = {}, .bins = {}});
  EXPECT_THAT(svg, HasSubstr("no finite values"));
  EXPECT_THAT(svg, HasSubstr("&lt;x&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<rect")));
}

}  // namespace
}  // namespace tidemark::inspect
