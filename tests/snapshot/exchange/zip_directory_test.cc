#include "snapshot/exchange/zip_directory.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "snapshot/exchange/zip_format.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using namespace std::string_literals;
using storage::IsOk;
using storage::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<ZipRecord>> RecordsOf(const std::string& archive) {
  return ReadZipDirectory(archive.size(), [&](uint64_t offset, std::span<std::byte> destination) {
    EXPECT_LE(offset, archive.size());
    EXPECT_LE(destination.size(), archive.size() - offset);
    std::memcpy(destination.data(), archive.data() + offset, destination.size());
    return absl::OkStatus();
  });
}

// Of a record "a" with "123" and one "bc" with nothing. Byte 34 is the first behind "123".
std::string TwoRecords() {
  std::vector<ZipMember> members = {{.name = "a", .bytes = 3, .offset = 0, .crc = 7}};
  std::string archive = EncodeZipMemberHeader(members[0]) + "123";
  members.push_back({.name = "bc", .bytes = 0, .offset = archive.size()});
  archive += EncodeZipMemberHeader(members[1]);
  return archive + EncodeZipDirectory(members, archive.size());
}

// With `bytes` at `at`.
std::string Changed(std::string archive, size_t at, const std::string& bytes) {
  return archive.replace(at, bytes.size(), bytes);
}

constexpr size_t kDirectory = 66;
constexpr size_t kSecond = 47;  // bytes behind kDirectory
constexpr size_t kEnd = kDirectory + kSecond + 48;

TEST(ZipDirectory, HasTheRecordsWithTheirPlaces) {
  const auto records = RecordsOf(TwoRecords());
  ASSERT_THAT(records, IsOk());
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].name, "a");
  EXPECT_EQ((*records)[0].offset, 31u);
  EXPECT_EQ((*records)[0].bytes, 3u);
  EXPECT_EQ((*records)[0].crc, 7u);
  EXPECT_EQ((*records)[1].name, "bc");
  EXPECT_EQ((*records)[1].offset, kDirectory);
}

TEST(ZipDirectory, ReadsZip64) {
  const uint64_t large = (uint64_t{5} << 30) + 3;
  const ZipMember member{.name = "a", .bytes = large, .offset = 0, .crc = 7};
  const std::string head = EncodeZipMemberHeader(member);
  const uint64_t directory_offset = head.size() + large;
  const std::string tail = EncodeZipDirectory({&member, 1}, directory_offset);
  // A file of which only the ends are in memory.
  const auto records =
      ReadZipDirectory(directory_offset + tail.size(), [&](uint64_t offset, std::span<std::byte> destination) {
        std::memset(destination.data(), 0, destination.size());
        const std::string& part = offset < head.size() ? head : tail;
        const uint64_t begin = offset < head.size() ? 0 : directory_offset;
        for (size_t i = 0; i < destination.size(); ++i) {
          const uint64_t at = offset + i - begin;
          if (offset + i >= begin && at < part.size()) destination[i] = static_cast<std::byte>(part[at]);
        }
        return absl::OkStatus();
      });
  ASSERT_THAT(records, IsOk());
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].bytes, large);
  EXPECT_EQ((*records)[0].offset, head.size());
}

TEST(ZipDirectory, NamesWhatIsDamaged) {
  const auto refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kDataLoss, HasSubstr("zip archive: " + message));
  };
  const std::string whole = TwoRecords();
  ASSERT_EQ(whole.size(), kEnd + 22);
  EXPECT_THAT(RecordsOf(""), refused("no end of a directory in the last 0 bytes"));
  EXPECT_THAT(RecordsOf(whole.substr(0, whole.size() - 1)), refused("no end of a directory"));
  EXPECT_THAT(RecordsOf(whole + "x"), refused("the end of the directory at byte 161 is not the end of the file"));
  EXPECT_THAT(RecordsOf(Changed(whole, kEnd + 12, "\xff")), refused("255 bytes of directory at byte 66 do not end"));
  EXPECT_THAT(RecordsOf(Changed(whole, kEnd + 8, "\x03\0\x03"s)), refused("3 records do not fit in the 95 bytes"));
  EXPECT_THAT(RecordsOf(Changed(whole, kEnd + 8, "\x01\0\x01"s)), refused("its directory has more bytes than records"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory, "x")), refused("no record 0 in the directory"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + kSecond + 28, "\x09")), refused("record 1 does not fit"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + 20, "\x02")), refused("record 'a' has 3 bytes, stored in 2"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + 20, "\xff\xff\xff\xff")),
              refused("record 'a' has no valid Zip64 field"));
  EXPECT_THAT(RecordsOf(Changed(whole, 0, "x")), refused("the header of record 'a' is not at byte 0"));
  EXPECT_THAT(RecordsOf(Changed(whole, 30, "b")), refused("record 'a' is another one by its header at byte 0"));
  EXPECT_THAT(RecordsOf(Changed(whole, 14, "x")), refused("record 'a' is another one by its header at byte 0"));
  EXPECT_THAT(RecordsOf(Changed(whole, 28, "\x09")),
              refused("record 'a' of 3 bytes at 40 does not end before byte 34"));
  // Both records at byte 0.
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + kSecond + 42, "\0"s)), refused("record "));
  EXPECT_THAT(RecordsOf(Changed(whole, kEnd + 8, "\xff\xff\xff\xff")), refused("no Zip64 locator at byte 141"));
}

TEST(ZipDirectory, NamesWhatIsNotRead) {
  const auto refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("zip archive: " + message));
  };
  const std::string whole = TwoRecords();
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + 8, "\x01")), refused("record 'a' is encrypted"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + 10, "\x08")), refused("record 'a' is compressed"));
  EXPECT_THAT(RecordsOf(Changed(whole, kEnd + 4, "\x01")), refused("it has several parts"));
  EXPECT_THAT(RecordsOf(Changed(whole, kDirectory + 34, "\x01")), refused("it has several parts"));
  // A directory of 16 MiB and a byte, in a file that is a hole.
  const uint64_t bytes = kZipDirectoryBytesMax + 1;
  std::string end = "PK\5\6"s + std::string(8, '\0');
  for (int i = 0; i < 4; ++i) end += static_cast<char>(bytes >> (8 * i) & 0xff);
  EXPECT_THAT(RecordsOf(std::string(bytes, '\0') + end + std::string(6, '\0')),
              refused("a directory of 16777217 bytes; at most 16777216 are read"));
}

TEST(ZipDirectory, PassesErrorsOfReadingOn) {
  const auto records =
      ReadZipDirectory(100, [](uint64_t, std::span<std::byte>) { return absl::UnavailableError("no disk"); });
  EXPECT_THAT(records, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no disk")));
}

// Neither an abort nor a read outside of the file.
TEST(ZipDirectory, SurvivesEveryByteThatIsChangedAndEveryTruncation) {
  const std::string whole = TwoRecords();
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    EXPECT_THAT(RecordsOf(whole.substr(0, at)), StatusIs(absl::StatusCode::kDataLoss, testing::_)) << at;
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = whole;
      changed[at] = static_cast<char>(byte);
      refused += RecordsOf(changed).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 20'000u);
}

}  // namespace
}  // namespace tidemark
