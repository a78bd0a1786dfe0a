#include "storage/io/quoted_name.h"

#include <string>

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(QuotedName, ShowsAShortNameAsAWhole) {
  EXPECT_EQ(QuotedName(""), "''");
  EXPECT_EQ(QuotedName("val/loss \u00e9"), "'val/loss \u00e9'");
  EXPECT_EQ(QuotedName(std::string(64, 'x')), "'" + std::string(64, 'x') + "'");
}

TEST(QuotedName, IsPrintable) { EXPECT_EQ(QuotedName("loss\n\x1b[2J \xfe"), "'loss\\n\\x1b[2J \\xfe'"); }

TEST(QuotedName, CutsALongNameBetweenCharacters) {
  EXPECT_EQ(QuotedName(std::string(5000, 'x')), "'" + std::string(64, 'x') + "...'");
  EXPECT_EQ(QuotedName(std::string(63, 'x') + "\u00e9y"), "'" + std::string(63, 'x') + "...'");
  EXPECT_EQ(QuotedName(std::string(61, 'x') + "\U0001f30a"), "'" + std::string(61, 'x') + "...'");
  EXPECT_EQ(QuotedName(std::string(60, 'x') + "\U0001f30a!"), "'" + std::string(60, 'x') + "\U0001f30a...'");
}

TEST(QuotedName, CutsANameThatIsNotUtf8) {
  const std::string shown = QuotedName(std::string(70, '\x80'));
  EXPECT_EQ(shown.size(), 64 * 4 + 5);
  EXPECT_TRUE(shown.ends_with("\\x80...'")) << shown;
}

}  // namespace
}  // namespace tidemark::storage
