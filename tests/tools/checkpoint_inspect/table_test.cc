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
