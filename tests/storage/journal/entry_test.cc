#include "storage/journal/entry.h"

#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

JournalEntry MadeEntry(EntryNumber number) {
  return {.number = number,
          .id = TestEntryId(static_cast<uint8_t>(number)),
          .epoch = 3,
          .durable = number - 1,
          .previous = Digest128{{9, 8, 7}},
          .facts = {"a fact", "", std::string("\0\xff", 2)}};
}

// Entry 7, which carries 5 and 6.
EntryFile MadeFile() {
  EntryFile file{.entry = MadeEntry(7), .carried = {MadeEntry(5), MadeEntry(6)}};
  file.entry.durable = 4;
  return file;
}

std::string Encoded(const EntryFile& file) {
  auto bytes = EncodeEntryFile(file);
  EXPECT_THAT(bytes, IsOk());
  return bytes.ok() ? *bytes : "";
}

void Repair(std::string& bytes) {
  const uint64_t checksum = ChecksumOf(AsBytes(std::string_view(bytes).substr(0, bytes.size() - sizeof(uint64_t))));
  std::memcpy(bytes.data() + bytes.size() - sizeof(checksum), &checksum, sizeof(checksum));
}

TEST(JournalEntryTest, SurvivesEncodingExactly) {
  const EntryFile file = MadeFile();
  EXPECT_EQ(DecodeEntryFile(7, Encoded(file)).value(), file);
  EntryFile epoch{.entry = {.number = 1, .id = TestEntryId(1), .epoch = 1, .begins_epoch = true}};
  EXPECT_EQ(DecodeEntryFile(1, Encoded(epoch)).value(), epoch);
}

TEST(JournalEntryTest, IsTheSameInALongerFile) {
  const std::string bytes = Encoded(MadeFile());
  for (const size_t size : {bytes.size() + 1, size_t{4096}}) {
    std::string padded = PadEntryFile(bytes, size);
    EXPECT_EQ(padded.size(), size);
    EXPECT_EQ(DecodeEntryFile(7, padded).value(), MadeFile());
    padded[padded.size() - 9] = 1;
    Repair(padded);
    EXPECT_THAT(DecodeEntryFile(7, padded), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("padding")));
  }
  EXPECT_EQ(PadEntryFile(bytes, bytes.size()), bytes);
  EXPECT_EQ(PadEntryFile(bytes, 1), bytes);
}

TEST(JournalEntryTest, HasADigestOfAllThatItStates) {
  const Digest128 digest = DigestOfEntry(MadeEntry(7));
  EXPECT_EQ(DigestOfEntry(MadeEntry(7)), digest);
  const std::vector<std::function<void(JournalEntry&)>> changes = {
      [](JournalEntry& entry) { ++entry.number; },
      [](JournalEntry& entry) { entry.id = TestEntryId(99); },
      [](JournalEntry& entry) { ++entry.epoch; },
      [](JournalEntry& entry) { entry.begins_epoch = true; },
      [](JournalEntry& entry) { --entry.durable; },
      [](JournalEntry& entry) { entry.previous = Digest128{}; },
      [](JournalEntry& entry) { entry.facts.pop_back(); },
      [](JournalEntry& entry) {
        entry.facts = {"a fact", std::string("\0\xff", 2), ""};
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    JournalEntry entry = MadeEntry(7);
    changes[i](entry);
    EXPECT_NE(DigestOfEntry(entry), digest) << i;
  }
}

TEST(JournalEntryTest, IsRefusedWithAnyBitChangedOrByteMissing) {
  const std::string good = Encoded(MadeFile());
  for (size_t i = 0; i < good.size() * 8; ++i) {
    std::string bytes = good;
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << i % 8));
    EXPECT_THAT(DecodeEntryFile(7, bytes), StatusIs(absl::StatusCode::kDataLoss, testing::_)) << i;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(DecodeEntryFile(7, good.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss, testing::_)) << size;
  }
  EXPECT_THAT(DecodeEntryFile(7, good + '\0'), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

// Whatever the fields say, with a checksum that is right.
TEST(JournalEntryTest, IsRefusedWithAnyByteChangedUnderItsChecksumOrIsAnotherEntry) {
  const EntryFile file = MadeFile();
  const std::string good = Encoded(file);
  for (size_t i = 0; i + sizeof(uint64_t) < good.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      Repair(bytes);
      const auto decoded = DecodeEntryFile(7, bytes);
      if (decoded.ok()) {
        EXPECT_NE(*decoded, file) << i;
        EXPECT_EQ(Encoded(*decoded), bytes) << i;
      } else if (!absl::IsUnimplemented(decoded.status())) {
        EXPECT_THAT(decoded, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 7"))) << i;
      }
    }
  }
}

// Offsets in the file of entry 7: magic 8, version 2, then number 8, id 16, epoch 8, flags 1, durable 8.
constexpr size_t kVersionAt = 8;
constexpr size_t kNumberAt = 10;
constexpr size_t kFlagsAt = kNumberAt + 8 + 16 + 8;
constexpr size_t kDurableAt = kFlagsAt + 1;
constexpr size_t kFactsAt = kDurableAt + 8 + 16;

std::string With(size_t at, std::string_view bytes) {
  std::string changed = Encoded(MadeFile());
  changed.replace(at, bytes.size(), bytes);
  Repair(changed);
  return changed;
}

TEST(JournalEntryTest, SaysWhatIsWrong) {
  EXPECT_THAT(DecodeEntryFile(7, "no entry, but long enough"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("25 bytes that do not begin as an entry does")));
  EXPECT_THAT(DecodeEntryFile(8, Encoded(MadeFile())),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 8: the file is that of entry 7")));
  EXPECT_THAT(DecodeEntryFile(7, With(kVersionAt, "\2")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 2; this library reads up to 1")));
  EXPECT_THAT(DecodeEntryFile(7, With(kVersionAt, std::string_view("\0", 1))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("version")));
  EXPECT_THAT(DecodeEntryFile(7, With(kFlagsAt, "\2")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("flags at byte 42: expected 0 or 1, found 2")));
  EXPECT_THAT(DecodeEntryFile(7, With(kDurableAt, "\7")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("durable at byte 43: expected less than the entry's "
                                                              "number, 7, found 7")));
  EXPECT_THAT(DecodeEntryFile(7, With(kFactsAt, "\xff\xff\xff\xff")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("count of facts")));
  EXPECT_THAT(DecodeEntryFile(7, With(kDurableAt, "\5")), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("carried")));
  EXPECT_THAT(DecodeEntryFile(7, With(kDurableAt, std::string_view("\0", 1))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("carried")));
  std::string far = With(kNumberAt, "\xff\xff\xff\xff\xff\xff\xff\x7f");
  EXPECT_THAT(DecodeEntryFile(0x7fff'ffff'ffff'ffff, far),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("carried entries")));
}

TEST(JournalEntryTest, IsNotWrittenIfNoReaderWouldTakeIt) {
  EntryFile file = MadeFile();
  file.entry.number = 0;
  EXPECT_THAT(EncodeEntryFile(file), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  file = MadeFile();
  file.entry.durable = 7;
  EXPECT_THAT(EncodeEntryFile(file), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  file = MadeFile();
  file.carried.pop_back();
  EXPECT_THAT(EncodeEntryFile(file), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  file = MadeFile();
  file.entry.epoch = 0;
  file.entry.begins_epoch = true;
  EXPECT_THAT(EncodeEntryFile(file), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  file = MadeFile();
  file.entry.facts.assign(1, std::string(kEntryFileBytesMax, 'x'));
  EXPECT_THAT(EncodeEntryFile(file), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("journal entry 7")));
}

}  // namespace
}  // namespace tidemark::storage
