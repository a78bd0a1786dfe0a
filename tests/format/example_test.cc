// The examples in docs/format.md are a shard and an entry of a journal.

#include <cstdio>
#include <cstring>
#include <sstream>

#include "gtest/gtest.h"
#include "storage/journal/entry.h"
#include "storage/records/fact.h"
#include "storage/shard/read/shard_verify.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

std::string ExampleOfTheDocumentation() {
  std::istringstream page(ReadWhole(TIDEMARK_SOURCE_DIR "/docs/format.md"));
  std::string shard(0x4000, '\0');
  for (std::string line; std::getline(page, line);) {
    unsigned offset = 0;
    int end = 0;
    if (line.size() < 58 || line.find_first_not_of("0123456789abcdef") != 8) continue;
    if (std::sscanf(line.c_str(), "%8x  %n", &offset, &end) != 1 || end != 10) continue;
    for (size_t i = 0; i < 16; ++i) {
      const size_t column = 10 + 3 * i + (i >= 8 ? 1 : 0);
      shard.at(offset + i) = static_cast<char>(std::stoi(line.substr(column, 2), nullptr, 16));
    }
  }
  return shard;
}

// Its lines have offsets of four digits.
std::string EntryOfTheDocumentation() {
  std::istringstream page(ReadWhole(TIDEMARK_SOURCE_DIR "/docs/format.md"));
  std::string entry;
  for (std::string line; std::getline(page, line);) {
    unsigned offset = 0;
    int end = 0;
    if (line.size() < 54 || line.find_first_not_of("0123456789abcdef") != 4) continue;
    if (std::sscanf(line.c_str(), "%4x  %n", &offset, &end) != 1 || end != 6) continue;
    EXPECT_EQ(offset, entry.size());
    for (size_t i = 0; i < 16; ++i) {
      const std::string digits = line.substr(6 + 3 * i + (i >= 8 ? 1 : 0), 2);
      if (digits != "  ") entry.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
    }
  }
  return entry;
}

TEST(FormatDocumentation, ShowsASoundShard) {
  TestDirectory directory;
  const std::string path = directory / "example.tmk";
  WriteWhole(path, ExampleOfTheDocumentation());
  auto reader = ShardReader::Open(PosixFileSystem(), path, directory.path());
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->header().identity.step, 5);
  EXPECT_EQ((*reader)->header().chunk_bytes, 1u << 20);
  const ShardIndex& index = (*reader)->index();
  ASSERT_EQ(index.entries.size(), 1u);
  EXPECT_EQ(index.entries[0].spec, Tensor("w", Dtype::kFloat32, {2}));
  EXPECT_EQ(index.metrics, (std::map<std::string, double>{{"loss", 0.5}}));
  EXPECT_EQ(index.properties, (std::map<std::string, std::string>{{"io", "threads"}}));
  float values[2] = {};
  const EntryRead read{0, std::as_writable_bytes(std::span(values))};
  ASSERT_THAT((*reader)->Read({&read, 1}, {}), IsOk());
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  auto verified = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {});
  ASSERT_THAT(verified, IsOk());
  EXPECT_TRUE(verified->damage.empty());
}

TEST(FormatDocumentation, ShowsASoundEntry) {
  const auto file = DecodeEntryFile(2, EntryOfTheDocumentation());
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE(file->carried.empty());
  EXPECT_EQ(file->entry.epoch, 0u);
  EXPECT_EQ(file->entry.durable, 1u);
  EXPECT_EQ(ToHex(file->entry.previous.bytes), "de715b2e8a9f6be36531e356913ad348");
  ASSERT_EQ(file->entry.facts.size(), 1u);
  const auto fact = DecodeFact(file->entry.facts[0]);
  ASSERT_THAT(fact, IsOk());
  const auto* pin = std::get_if<PinFact>(&*fact);
  ASSERT_NE(pin, nullptr);
  EXPECT_EQ(pin->step, 5);
  EXPECT_EQ(pin->attempt, "00000000000000010000000000000001");
  EXPECT_TRUE(pin->pinned);
  EXPECT_EQ(pin->tags, std::vector<std::string>{"paper"});
}

TEST(FormatDocumentation, NamesEveryDtype) {
  const std::string page = ReadWhole(TIDEMARK_SOURCE_DIR "/docs/format.md");
  for (uint16_t number = 0; number < 1000; ++number) {
    const DtypeInfo* info = FindDtype(number);
    if (info == nullptr) continue;
    EXPECT_THAT(page, testing::HasSubstr("| " + std::to_string(number) + " " + std::string(info->name) + " |"));
  }
}

}  // namespace
}  // namespace tidemark::storage
