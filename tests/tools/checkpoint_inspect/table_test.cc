#include "tools/checkpoint_inspect/table.h"

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
  Table table({{"A", Table::Align::kLeft, /*may_cut=*/true}, {"B"}});
  table.AddRow({{std::string(100, 'x')}, {"2"}});
  EXPECT_EQ(table.Format(Console(stdout, stderr)),
            "A" + std::string(99 + 2, ' ') + "B\n" + std::string(100, 'x') + "  2\n");
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
