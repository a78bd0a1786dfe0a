#include "tools/checkpoint_inspect/output/dot_canvas.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

TEST(DotCanvas, IsBlankAtFirst) {
  const DotCanvas canvas(3, 2);
  EXPECT_EQ(canvas.Row(0), "   ");
  EXPECT_EQ(canvas.Row(1), "   ");
}

TEST(DotCanvas, PutsEachDotWhereItBelongs) {
  const char* dots[4][2] = {{"⠁", "⠈"}, {"⠂", "⠐"}, {"⠄", "⠠"}, {"⡀", "⢀"}};
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 2; ++x) {
      DotCanvas canvas(2, 2);
      canvas.SetDot(2 + x, 4 + y);
      EXPECT_EQ(canvas.Row(0), "  ");
      EXPECT_EQ(canvas.Row(1), std::string(" ") + dots[y][x]);
    }
  }
}

TEST(DotCanvas, DrawsLinesWithBothEndsInEveryDirection) {
  DotCanvas across(2, 1);
  across.DrawLine(0, 0, 3, 0);
  EXPECT_EQ(across.Row(0), "⠉⠉");
  DotCanvas back(2, 1);
  back.DrawLine(3, 0, 0, 0);
  EXPECT_EQ(back.Row(0), "⠉⠉");
  DotCanvas up(1, 1);
  up.DrawLine(0, 3, 0, 0);
  EXPECT_EQ(up.Row(0), "⡇");
  DotCanvas slope(2, 1);
  slope.DrawLine(0, 3, 3, 0);
  EXPECT_EQ(slope.Row(0), "⡠⠊");
  DotCanvas point(1, 1);
  point.DrawLine(1, 1, 1, 1);
  EXPECT_EQ(point.Row(0), "⠐");
}

}  // namespace
}  // namespace tidemark::inspect
