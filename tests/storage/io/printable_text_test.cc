#include "storage/io/printable_text.h"

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(PrintableText, LeavesTextAsItIs) {
  for (const char* text : {"", "step 1: \"x\" \\n", "\u00e9 \u00a0 \u6f6e \U0001f30a", "\\x1b"}) {
    EXPECT_EQ(PrintableText(text), text);
  }
}

TEST(PrintableText, WritesControlCharactersOut) {
  EXPECT_EQ(PrintableText("a\nstep 7: committed\r\t"), "a\\nstep 7: committed\\r\\t");
  EXPECT_EQ(PrintableText("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(PrintableText("\u0080\u0085\u009f"), "\\x80\\x85\\x9f");
  EXPECT_EQ(PrintableText(std::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(PrintableText("plain\x7f\u00e9 \x1f~"), "plain\\x7f\u00e9 \\x1f~");
}

TEST(PrintableText, WritesOutWhatTurnsOrEndsALine) {
  EXPECT_EQ(PrintableText("a\u202eb\u2066c\u2028"), "a\\u{202e}b\\u{2066}c\\u{2028}");
}

TEST(PrintableText, WritesBytesThatAreNotUtf8Out) { EXPECT_EQ(PrintableText("a\xff\x85z\xc2"), "a\\xff\\x85z\\xc2"); }

TEST(PrintableText, StaysAsItIsOnceItIsPrintable) {
  const std::string once = PrintableText("\x1b\u202e\xff\n");
  EXPECT_EQ(PrintableText(once), once);
}

}  // namespace
}  // namespace tidemark::storage
