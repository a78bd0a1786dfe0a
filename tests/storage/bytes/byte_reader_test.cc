#include "storage/bytes/byte_reader.h"

#include <limits>

#include "gtest/gtest.h"
#include "storage/bytes/byte_writer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

TEST(ByteReader, TakesWhatByteWriterPut) {
  ByteWriter out;
  out.Put<uint8_t>(0xfe);
  out.Put<uint16_t>(0x1234);
  out.Put<uint32_t>(0xdeadbeef);
  out.Put<int64_t>(-2);
  out.PutDouble(-0.0);
  out.PutBytes16({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  out.PutText("name");
  out.PadTo(out.size() + 3);
  const std::string bytes = std::move(out).Take();
  EXPECT_EQ(bytes.substr(0, 7), "\xfe\x34\x12\xef\xbe\xad\xde");

  ByteReader in(AsBytes(bytes), "record");
  EXPECT_EQ(in.Get<uint8_t>("a"), 0xfe);
  EXPECT_EQ(in.Get<uint16_t>("b"), 0x1234);
  EXPECT_EQ(in.Get<uint32_t>("c"), 0xdeadbeef);
  EXPECT_EQ(in.Get<int64_t>("d"), -2);
  EXPECT_TRUE(std::signbit(in.GetDouble("e")));
  EXPECT_EQ(in.GetBytes16("f")[15], 16);
  EXPECT_EQ(in.GetText(4, "g"), "name");
  in.SkipZeros(3, "h");
  in.ExpectEnd();
  EXPECT_TRUE(in.ok()) << in.status();
}

TEST(ByteReader, FailsPastTheEndAndReadsZeroFromThenOn) {
  ByteReader in(AsBytes("\1\2\3\4\5"), "record");
  EXPECT_EQ(in.Get<uint8_t>("first"), 1);
  EXPECT_EQ(in.Get<uint64_t>("second"), 0u);
  EXPECT_EQ(in.Get<uint8_t>("third"), 0);
  EXPECT_EQ(in.GetText(1, "fourth"), "");
  EXPECT_EQ(in.GetBytes16("fifth")[0], 0);
  in.SkipZeros(1, "sixth");
  in.ExpectEnd();
  EXPECT_FALSE(in.Fail("seventh", 0, "", ""));
  EXPECT_THAT(in.status(),
              StatusIs(StatusCode::kDataLoss, "record: second at byte 1: expected 8 bytes, found 4 bytes left"));
}

TEST(ByteReader, RefusesATextLongerThanTheRest) {
  ByteReader in(AsBytes("abc"), "record");
  EXPECT_EQ(in.GetText(std::numeric_limits<uint64_t>::max(), "name"), "");
  EXPECT_THAT(in.status(), StatusIs(StatusCode::kDataLoss,
                                    "record: name at byte 0: expected 18446744073709551615 bytes, found 3 bytes left"));
}

TEST(ByteReader, RefusesACountThatCannotBeThere) {
  ByteReader in(AsBytes("0123456789"), "record");
  EXPECT_TRUE(in.CheckCount(3, 3, "items"));
  EXPECT_FALSE(in.CheckCount(4, 3, "items"));
  EXPECT_THAT(in.status(),
              StatusIs(StatusCode::kDataLoss,
                       "record: items at byte 0: expected at most 3 of 3 bytes or more in the 10 bytes left, found 4"));
  EXPECT_FALSE(in.CheckCount(0, 3, "items"));
}

TEST(ByteReader, NamesTheFirstByteThatIsNotZero) {
  const std::string bytes("\0\0\0\0\0\0\0\0\0\7", 10);
  ByteReader in(AsBytes(bytes), "record");
  in.SkipZeros(10, "padding");
  EXPECT_THAT(in.status(), StatusIs(StatusCode::kDataLoss, "record: padding at byte 9: expected zero, found 0x07"));
}

TEST(ByteReader, RefusesBytesAfterTheEnd) {
  ByteReader in(AsBytes("ab"), "record");
  in.Get<uint8_t>("a");
  in.ExpectEnd();
  EXPECT_THAT(in.status(),
              StatusIs(StatusCode::kDataLoss, "record: end at byte 1: expected no more bytes, found 1 bytes more"));
}

TEST(FindNonZero, FindsEveryPosition) {
  for (size_t size = 0; size < 40; ++size) {
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(FindNonZero(bytes), size);
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = std::byte{0x80};
      EXPECT_EQ(FindNonZero(bytes), i);
      bytes[i] = std::byte{0};
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
