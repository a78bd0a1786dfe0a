#include "snapshot/printable_line.h"

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(PrintableLine, LeavesTextAsItIs) {
  for (const char* text : {"", "step 1: \"x\" \\n", "\u00e9 \u00a0 \u6f6e \xc2", "\xff\x85"})
    EXPECT_EQ(PrintableLine(text), text);
}

TEST(PrintableLine, WritesControlCharactersOut) {
  EXPECT_EQ(PrintableLine("a\nstep 7: committed\r\t"), "a\\nstep 7: committed\\x0d\\x09");
  EXPECT_EQ(PrintableLine("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(PrintableLine("\u0080\u0085\u009f"), "\\u0080\\u0085\\u009f");
  EXPECT_EQ(PrintableLine(std::string_view("\0x", 2)), "\\x00x");
}

}  // namespace
}  // namespace tidemark
