#include "tools/checkpoint_inspect/output/svg.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

TEST(Px, HasATenthAtMost) {
  EXPECT_EQ(Px(12.34), "12.3");
  EXPECT_EQ(Px(7), "7");
  EXPECT_EQ(Px(6.97), "7");
  EXPECT_EQ(Px(-0.01), "0");
  EXPECT_EQ(Px(-1.25), "-1.3");
}

TEST(Svg, NamesItselfToThoseWhoDoNotSeeIt) {
  EXPECT_EQ(SvgBegin(10, 20, "lines", "a & b", "<i>"),
            "<svg class=\"chart lines\" role=\"img\" viewBox=\"0 0 10 20\" width=\"10\" height=\"20\">"
            "<title>a &amp; b</title><desc>&lt;i&gt;</desc>\n");
}

TEST(Svg, EscapesTextAndTitles) {
  EXPECT_EQ(SvgText(1, 2, "tick", Anchor::kEnd, "<b>"),
            "<text x=\"1\" y=\"2\" class=\"tick\" text-anchor=\"end\">&lt;b&gt;</text>\n");
  EXPECT_EQ(SvgText(1, 2, "tick", Anchor::kStart, "t", -90),
            "<text x=\"1\" y=\"2\" class=\"tick\" transform=\"rotate(-90 1 2)\">t</text>\n");
  EXPECT_EQ(SvgRect(1, 2, 3, 4, "s0"), "<rect x=\"1\" y=\"2\" width=\"3\" height=\"4\" class=\"s0\"/>\n");
  EXPECT_EQ(SvgRect(1, 2, 3, 4, "s0", "\"\n<"),
            "<rect x=\"1\" y=\"2\" width=\"3\" height=\"4\" class=\"s0\"><title>&quot;\n&lt;</title></rect>\n");
}

}  // namespace
}  // namespace tidemark::inspect
