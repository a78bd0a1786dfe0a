#include "storage/bytes/utf8.h"

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(IsUtf8, TakesShortestFormsOfCodePointsAlone) {
  for (const char* text : {"", "a", "größe", "\xe4\xbd\xa0", "\xf0\x9f\x8c\x8a", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text : {"\x80", "a\xff", "\xc3", "\xc3(", "\xc0\x80", "\xe0\x80\x80", "\xe4\xbd", "\xed\xa0\x80",
                           "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

}  // namespace
}  // namespace tidemark::storage
