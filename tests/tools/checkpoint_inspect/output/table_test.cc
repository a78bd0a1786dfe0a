#include "tools/checkpoint_inspect/output/table.h"

#include <cstdlib>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

class TableTest : public testing::Test {
 protected:
  TableTest() { setenv("NO_COLOR", "1", 1); }
};

TEST_F(TableTest, AlignsColumnsAndLeavesNoTrailingSpaces) {
  Table table({{"N", Table::Align::kRight}, {"NAME"}, {"LAST"}});
  table.AddRow({{"1"}, {"größe"}, {"x"}});
  table.AddRow({{"200"}, {"b"}, {""}});
  EXPECT_EQ(table.Format(Console()),
            "  N  NAME   LAST\n"
            "  1  größe  x\n"
            "200  b\n");
}

TEST_F(TableTest, CutsNothingWhereThereIsNoTerminal) {
  Table table({{"A", Table::Align::kLeft, Table::Narrow::kCut, 1}, {"B"}});
  table.AddRow({{std::string(100, 'x')}, {"2"}});
  EXPECT_EQ(table.Format(Console(stdout, stderr)),
            "A" + std::string(99 + 2, ' ') + "B\n" + std::string(100, 'x') + "  2\n");
}

Table StepsTable(Table::Narrow narrow) {
  using enum Table::Align;
  Table table({{"STEP", kRight},
               {"AGE", kRight, Table::Narrow::kWhole, 2},
               {"METRICS", kLeft, narrow},
               {"RATIO", kRight, Table::Narrow::kWhole, 1}});
  table.AddRow({{"100"}, {"7 min"}, {"loss=0.25 rate=0.001 v/loss=0.5"}, {"0.50"}});
  table.AddNote("kept: latest; not among the best of loss");
  return table;
}

TEST_F(TableTest, LeavesOutColumnsAndCutsBehindAWordWhereTheTerminalIsTooNarrow) {
  const Table table = StepsTable(Table::Narrow::kCut);
  EXPECT_EQ(table.Format(Console(stdout, stderr, 52)),
            "STEP    AGE  METRICS                          RATIO\n"
            " 100  7 min  loss=0.25 rate=0.001 v/loss=0.5   0.50\n"
            "  kept: latest; not among the best of loss\n");
  EXPECT_EQ(table.Format(Console(stdout, stderr, 40)),
            "STEP    AGE  METRICS               RATIO\n"
            " 100  7 min  loss=0.25 …            0.50\n"
            "  kept: latest; not among the best of\n"
            "    loss\n");
  EXPECT_EQ(table.Format(Console(stdout, stderr, 28)),
            "STEP    AGE  METRICS\n"
            " 100  7 min  loss=0.25 …\n"
            "  kept: latest; not among\n"
            "    the best of loss\n");
  EXPECT_EQ(table.Format(Console(stdout, stderr, 24)).substr(0, 38),
            "STEP  METRICS\n"
            " 100  loss=0.25 …\n"
            "  ke");
}

TEST_F(TableTest, WrapsBetweenWordsWhereTheTerminalIsTooNarrow) {
  EXPECT_EQ(StepsTable(Table::Narrow::kWrap).Format(Console(stdout, stderr, 40)),
            "STEP    AGE  METRICS               RATIO\n"
            " 100  7 min  loss=0.25 rate=0.001   0.50\n"
            "             v/loss=0.5\n"
            "  kept: latest; not among the best of\n"
            "    loss\n");
}

TEST_F(TableTest, KeepsNotesUnderTheirRowAndIndentsEverything) {
  Table table({{"A"}, {"B"}});
  table.AddRow({{"1"}, {"2"}});
  table.AddNote("a long note that moves no column");
  table.AddRow({{"3"}, {"4"}});
  EXPECT_EQ(table.Format(Console(), "> "),
            "> A  B\n"
            "> 1  2\n"
            ">   a long note that moves no column\n"
            "> 3  4\n");
}

}  // namespace
}  // namespace tidemark::inspect
