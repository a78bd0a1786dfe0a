#include "snapshot/exchange/zip_format.h"

#include <vector>

#include "gmock/gmock.h"

namespace tidemark {
namespace {

using namespace std::string_literals;
using testing::EndsWith;
using testing::HasSubstr;

TEST(ZipFormat, AnArchiveOfOneMemberIsWhatTheStandardSays) {
  const ZipMember member{.name = "a.npy", .bytes = 3, .offset = 0, .crc = 0x04030201};
  const std::string common =
      "\x2d\0\0\x08\0\0\0\0\x21\0"
      "\1\2\3\4"
      "\3\0\0\0"
      "\3\0\0\0"
      "\5\0\0\0"s;
  EXPECT_EQ(EncodeZipMemberHeader(member), "PK\3\4" + common + "a.npy");
  const std::string directory = EncodeZipDirectory({&member, 1}, 38);
  EXPECT_EQ(directory, "PK\1\2\x2d\0"s + common + "\0\0\0\0\0\0\0\0\0\0"s + "\0\0\0\0"s + "a.npy" +
                           "PK\5\6\0\0\0\0\1\0\1\0\x33\0\0\0\x26\0\0\0\0\0"s);
}

TEST(ZipFormat, TheLengthOfAHeaderDoesNotDependOnTheChecksum) {
  ZipMember member{.name = "a", .bytes = uint64_t{5} << 30};
  const size_t length = EncodeZipMemberHeader(member).size();
  member.crc = 0xffffffff;
  EXPECT_EQ(EncodeZipMemberHeader(member).size(), length);
}

TEST(ZipFormat, WhatDoesNotFitInto32BitsIsInTheFieldOf64) {
  // 5 GiB of bytes that begin at 6 GiB.
  const ZipMember member{.name = "a", .bytes = uint64_t{5} << 30, .offset = uint64_t{6} << 30};
  const std::string sizes = "\0\0\0\x40\1\0\0\0\0\0\0\x40\1\0\0\0"s;
  EXPECT_THAT(EncodeZipMemberHeader(member), EndsWith("a\1\0\x10\0"s + sizes));
  EXPECT_THAT(EncodeZipMemberHeader(member), HasSubstr("\xff\xff\xff\xff\xff\xff\xff\xff\1\0\x14\0"s));
  const std::string directory = EncodeZipDirectory({&member, 1}, uint64_t{11} << 30);
  EXPECT_THAT(directory, HasSubstr("\xff\xff\xff\xff"
                                   "a\1\0\x18\0"s +
                                   sizes + "\0\0\0\x80\1\0\0\0"s));
  // The end of 64 bits, its locator, and the end of 32 that leads to them.
  const std::string bytes = "\x4b\0\0\0\0\0\0\0"s;
  EXPECT_THAT(directory, EndsWith("PK\6\6\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0"s + "\1\0\0\0\0\0\0\0"s +
                                  "\1\0\0\0\0\0\0\0"s + bytes + "\0\0\0\xc0\2\0\0\0"s +
                                  "PK\6\7\0\0\0\0\x4b\0\0\xc0\2\0\0\0\1\0\0\0"s +
                                  "PK\5\6\0\0\0\0\1\0\1\0\x4b\0\0\0\xff\xff\xff\xff\0\0"s));
}

TEST(ZipFormat, MoreMembersThan16BitsCountAreCountedIn64) {
  const std::vector<ZipMember> members(65'535, ZipMember{.name = "a"});
  const std::string directory = EncodeZipDirectory(members, 0);
  EXPECT_THAT(directory, HasSubstr("PK\6\6\x2c\0\0\0\0\0\0\0"s));
  EXPECT_THAT(directory, HasSubstr("\xff\xff\0\0\0\0\0\0\xff\xff\0\0\0\0\0\0"s));
  EXPECT_THAT(EncodeZipDirectory({members.data(), 65'534}, 0), testing::Not(HasSubstr("PK\6\6")));
}

}  // namespace
}  // namespace tidemark
