#include "storage/journal/segment.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

std::vector<DigestedEntry> SomeEntries(EntryNumber first, size_t count) {
  std::vector<DigestedEntry> entries;
  JournalEntry before{.number = first - 1};
  for (size_t i = 0; i < count; ++i) {
    JournalEntry entry = MadeJournal().After(before, static_cast<uint8_t>(i), fmt::format("fact {}", i));
    if (i == 0) entry.previous = Digest128{{7}};
    before = entry;
    entries.push_back({.entry = entry, .digest = DigestOfEntry(entry)});
  }
  return entries;
}

void RepairChecksum(std::string& bytes) {
  const uint64_t checksum = ChecksumOf(AsBytes(std::string_view(bytes).substr(0, bytes.size() - 8)));
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, 8);
}

TEST(SegmentTest, SurvivesEncodingExactly) {
  const auto entries = SomeEntries(4097, 5);
  const auto bytes = EncodeSegment(entries);
  ASSERT_THAT(bytes, IsOk());
  EXPECT_TRUE(IsSegment(*bytes));
  const auto decoded = DecodeSegment("a file", *bytes);
  ASSERT_THAT(decoded, IsOk());
  ASSERT_EQ(decoded->size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ((*decoded)[i].entry, entries[i].entry);
    EXPECT_EQ((*decoded)[i].digest, entries[i].digest);
  }
}

TEST(SegmentTest, IsNotMadeOfEntriesThatDoNotFollowEachOther) {
  auto entries = SomeEntries(1, 3);
  std::swap(entries[1], entries[2]);
  EXPECT_THAT(EncodeSegment(entries), StatusIs(StatusCode::kInvalidArgument, HasSubstr("entry 3 after another one")));
  EXPECT_THAT(EncodeSegment({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("without entries")));
}

TEST(SegmentTest, EveryChangedByteAndEveryLengthIsDamage) {
  const std::string bytes = *EncodeSegment(SomeEntries(1, 3));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x21);
    EXPECT_THAT(DecodeSegment("a file", changed), StatusIs(StatusCode::kDataLoss, HasSubstr("a file"))) << i;
    EXPECT_THAT(DecodeSegment("a file", bytes.substr(0, i)), StatusIs(StatusCode::kDataLoss, HasSubstr("a file"))) << i;
  }
}

// As somebody could make it who knows the checksum.
TEST(SegmentTest, WhatIsWrongBehindARightChecksumIsNamed) {
  const std::string bytes = *EncodeSegment(SomeEntries(1, 3));
  for (size_t i = 8; i + 8 < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x21);
    RepairChecksum(changed);
    const auto decoded = DecodeSegment("a file", changed);
    if (decoded.ok()) continue;  // a byte of the last entry, which nothing follows
    EXPECT_TRUE(absl::IsDataLoss(decoded.status()) || absl::IsUnimplemented(decoded.status())) << decoded.status();
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("a file"));
  }
}

TEST(SegmentTest, ANewerVersionIsNotDamage) {
  std::string bytes = *EncodeSegment(SomeEntries(1, 3));
  bytes[8] = 2;
  RepairChecksum(bytes);
  EXPECT_THAT(DecodeSegment("a file", bytes), StatusIs(StatusCode::kUnimplemented, HasSubstr("version 2")));
}

}  // namespace
}  // namespace tidemark::storage
