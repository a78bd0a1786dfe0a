#include "tools/checkpoint_inspect/heat_map.h"

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

TEST(LevelOf, PutsAnEdgeIntoTheLevelAboveIt) {
  const HeatScale scale{.edges = {0.01, 0.1, 1}};
  EXPECT_EQ(LevelOf(scale, 0.01), 0);
  EXPECT_EQ(LevelOf(scale, 0.0999), 0);
  EXPECT_EQ(LevelOf(scale, 0.1), 1);
  EXPECT_EQ(LevelOf(scale, 1), 1);
  EXPECT_EQ(LevelOf(scale, 50), 1);
  EXPECT_EQ(LevelOf(scale, 1e-9), 0);
}

TEST(HeatMapSvg, DrawsWhatThereIs) { EXPECT_EQ(HeatMapSvg(SmallMap()), R"(@HEAT@)"); }

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
}

}  // namespace
}  // namespace tidemark::inspect
