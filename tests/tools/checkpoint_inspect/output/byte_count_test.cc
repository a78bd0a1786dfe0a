#include "tools/checkpoint_inspect/output/byte_count.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

TEST(ParseByteCount, TakesDecimalAndBinaryMultiples) {
  EXPECT_EQ(ParseByteCount("17"), 17u);
  EXPECT_EQ(ParseByteCount("17B"), 17u);
  EXPECT_EQ(ParseByteCount("1kB"), 1'000u);
  EXPECT_EQ(ParseByteCount("1KB"), 1'000u);
  EXPECT_EQ(ParseByteCount("1KiB"), 1'024u);
  EXPECT_EQ(ParseByteCount("5GB"), 5'000'000'000u);
  EXPECT_EQ(ParseByteCount("2MiB"), 2u << 20);
  EXPECT_EQ(ParseByteCount("1TiB"), uint64_t{1} << 40);
}

TEST(ParseByteCount, RefusesWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "GB", "0", "0GB", "-1", "1.5GB", "1gb", "1 GB", "1GBs", "1K", "99999999999999999999",
                           "18446744073709551615KB"}) {
    EXPECT_EQ(ParseByteCount(text), std::nullopt) << text;
  }
}

TEST(AddByteCount, MakesAnOptionWhoseErrorNamesIt) {
  CLI::App app;
  uint64_t bytes = 7;
  AddByteCount(&app, "--bytes", bytes, "So many");
  app.parse("--bytes 2kB");
  EXPECT_EQ(bytes, 2'000u);
  try {
    app.parse("--bytes 2kb");
    FAIL() << "2kb is no size";
  } catch (const CLI::ValidationError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--bytes: expected a size as 5GB or 512MiB, found '2kb'"));
  }
  EXPECT_EQ(bytes, 2'000u);
}

}  // namespace
}  // namespace tidemark::inspect
