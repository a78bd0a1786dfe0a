#include "tools/checkpoint_inspect/output/heat_map.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using Kind = HeatCell::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

HeatCell Changed(double value) { return {.kind = Kind::kChanged, .value = value}; }

HeatMap SmallMap() {
  return {.title = "Change",
          .description = "2 rows",
          .x_label = "step",
          .rows = {"a<b", "c"},
          .columns = {"20", "30"},
          .hovers = {"step 10 to 20", "step 20 to 30"},
          .cells = {Changed(0.05), {.kind = Kind::kUnchanged}, {.kind = Kind::kAbsent}, {.kind = Kind::kNotRead}}};
}

TEST(ScaleOf, HasPowersOfTenOrPartsOfThem) {
  EXPECT_THAT(ScaleOf({Changed(0.0005), Changed(20)}).edges,
              ElementsAre(testing::DoubleEq(1e-4), testing::DoubleEq(1e-3), testing::DoubleEq(0.01),
                          testing::DoubleEq(0.1), testing::DoubleEq(1), testing::DoubleEq(10), testing::DoubleEq(100)));
  const HeatScale narrow = ScaleOf({Changed(0.02), Changed(0.03)});
  EXPECT_GE(narrow.edges.size(), 2);
  EXPECT_LE(narrow.edges.front(), 0.02);
  EXPECT_GT(narrow.edges.back(), 0.03);
  EXPECT_LT(narrow.edges.back() / narrow.edges.front(), 10);
  // More powers than there are levels: the lowest share one.
  const HeatScale wide = ScaleOf({Changed(1e-30), Changed(0.5)});
  EXPECT_EQ(wide.edges.size(), kHeatLevels + 1);
  EXPECT_EQ(LevelOf(wide, 1e-30), 0);
  EXPECT_EQ(LevelOf(wide, 0.5), kHeatLevels - 1);
  EXPECT_EQ(ScaleOf({{.kind = Kind::kUnchanged}}).edges.size(), 2);
}

TEST(ScaleOf, HasFiniteEdgesForWhateverADoubleCanBe) {
  const double max = std::numeric_limits<double>::max();
  const double min = std::numeric_limits<double>::denorm_min();
  for (const auto& [low, high] : {std::pair(min, max), {max, max}, {min, min}, {0.5, max}}) {
    const HeatScale scale = ScaleOf({Changed(low), Changed(high)});
    EXPECT_TRUE(std::is_sorted(scale.edges.begin(), scale.edges.end()));
    EXPECT_GE(scale.edges.size(), 2);
    EXPECT_LE(scale.edges.back(), max);
    EXPECT_EQ(LevelOf(scale, high), scale.edges.size() - 2);
    EXPECT_EQ(LevelOf(scale, low), low == high ? scale.edges.size() - 2 : 0);
  }
}

TEST(LevelOf, PutsAnEdgeIntoTheLevelAboveIt) {
  const HeatScale scale{.edges = {0.01, 0.1, 1}};
  EXPECT_EQ(LevelOf(scale, 0.01), 0);
  EXPECT_EQ(LevelOf(scale, 0.0999), 0);
  EXPECT_EQ(LevelOf(scale, 0.1), 1);
  EXPECT_EQ(LevelOf(scale, 1), 1);
  EXPECT_EQ(LevelOf(scale, 50), 1);
  EXPECT_EQ(LevelOf(scale, 1e-9), 0);
}

TEST(HeatMapSvg, DrawsWhatThereIs) {
  EXPECT_EQ(
      HeatMapSvg(SmallMap()),
      R"svg(<svg class="chart heat" role="img" viewBox="0 0 104.9 84.6" width="104.9" height="84.6"><title>Change</title><desc>2 rows</desc>
<text x="24.9" y="17.5" class="row" text-anchor="end">a&lt;b</text>
<rect x="32.9" y="6" width="29" height="14" class="h4"><title>a&lt;b
step 10 to 20: 0.05</title></rect>
<rect x="62.9" y="6" width="29" height="14" class="same"><title>a&lt;b
step 20 to 30: unchanged</title></rect>
<text x="24.9" y="32.5" class="row" text-anchor="end">c</text>
<rect x="62.9" y="21" width="29" height="14" class="unread"><title>c
step 20 to 30: not read</title></rect>
<text x="51.9" y="44" class="tick" text-anchor="end" transform="rotate(-90 51.9 44)">20</text>
<text x="81.9" y="44" class="tick" text-anchor="end" transform="rotate(-90 81.9 44)">30</text>
<text x="62.9" y="78.6" class="label" text-anchor="middle">step</text>
</svg>
)svg");
}

TEST(HeatMapSvg, HasRoomForAnAxisLabelThatIsWiderThanTheMap) {
  HeatMap map = SmallMap();
  map.x_label = "step, compared with the one to its left";
  const std::string svg = HeatMapSvg(map);
  const double width = 32.9 + 6.3 * static_cast<double>(map.x_label.size()) + 12;
  EXPECT_THAT(svg, HasSubstr(fmt::format("width=\"{:.1f}\"", width)));
  EXPECT_THAT(svg, HasSubstr("<text x=\"32.9\" y=\"78.6\" class=\"label\">step, compared"));
}

TEST(HeatMapSvg, KeepsTheEndsOfLongNames) {
  HeatMap map = SmallMap();
  map.rows[0] = "ä" + std::string(100, 'x') + ".weight";
  map.rows[1] = "\x1b[31m";
  const std::string svg = HeatMapSvg(map);
  EXPECT_THAT(svg, HasSubstr(">…xxxx"));
  EXPECT_THAT(svg, HasSubstr("x.weight</text>"));
  EXPECT_THAT(svg, HasSubstr("\\x1b[31m"));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
}

TEST(HeatLegend, NamesTheKindsOfCellsThatThereAre) {
  const std::string legend = HeatLegend(SmallMap());
  EXPECT_THAT(legend, HasSubstr("unchanged"));
  EXPECT_THAT(legend, HasSubstr("not read"));
  EXPECT_THAT(legend, HasSubstr("0.032 – 0.056"));
  EXPECT_THAT(legend, Not(HasSubstr("NaN")));
  EXPECT_THAT(legend, Not(HasSubstr("zeros")));
  EXPECT_THAT(legend, Not(HasSubstr("same numbers")));
}

TEST(HeatMapSvg, TellsTheSameNumbersInOtherBytesFromTheSameBytes) {
  HeatMap map = SmallMap();
  map.cells[1] = {.kind = Kind::kSameNumbers};
  EXPECT_THAT(HeatMapSvg(map),
              HasSubstr("class=\"equal\"><title>a&lt;b\nstep 20 to 30: other bytes, the same numbers<"));
  EXPECT_THAT(HeatLegend(map), HasSubstr("swatch equal\"></span>other bytes, the same numbers<"));
  EXPECT_THAT(HeatLegend(map), Not(HasSubstr("unchanged")));
}

}  // namespace
}  // namespace tidemark::inspect
