#include "storage/io/queues/transfer.h"

#include <cerrno>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using Kind = IoRequest::Kind;

Transfer Buffered(Kind kind, uint64_t offset, size_t size) { return Transfer(kind, "run/x", false, offset, size); }
Transfer Direct(Kind kind, uint64_t offset, size_t size) { return Transfer(kind, "run/x", true, offset, size); }

TEST(Transfer, IsDoneWhenEveryByteCame) {
  Transfer transfer = Buffered(Kind::kRead, 100, 50);
  EXPECT_EQ(transfer.next_offset(), 100u);
  EXPECT_EQ(transfer.next_size(), 50u);
  const auto finished = transfer.Advance(50);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished, IsOk());
}

TEST(Transfer, OfNothingIsDoneAtOnce) {
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    const auto finished = Buffered(kind, 100, 0).Advance(0);
    ASSERT_TRUE(finished.has_value());
    EXPECT_THAT(*finished, IsOk());
  }
}

TEST(Transfer, GoesOnBehindAShortOne) {
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    Transfer transfer = Buffered(kind, 100, 50);
    EXPECT_FALSE(transfer.Advance(20).has_value());
    EXPECT_EQ(transfer.done(), 20u);
    EXPECT_EQ(transfer.next_offset(), 120u);
    EXPECT_EQ(transfer.next_size(), 30u);
    const auto finished = transfer.Advance(30);
    ASSERT_TRUE(finished.has_value());
    EXPECT_THAT(*finished, IsOk());
  }
}

TEST(Transfer, GoesOnAsItWasAfterEintrAndEagain) {
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    for (const int error : {EINTR, EAGAIN}) {
      Transfer transfer = Buffered(kind, 100, 50);
      EXPECT_FALSE(transfer.Advance(20).has_value());
      EXPECT_FALSE(transfer.Advance(-error).has_value());
      EXPECT_EQ(transfer.next_offset(), 120u);
      EXPECT_EQ(transfer.next_size(), 30u);
    }
  }
}

TEST(Transfer, AsksForAGibibyteAtMostAtOnce) {
  constexpr size_t kGibibyte = size_t{1} << 30;
  Transfer transfer = Direct(Kind::kWrite, 4096, 3 * kGibibyte + 4096);
  EXPECT_EQ(transfer.next_size(), kGibibyte);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(transfer.Advance(kGibibyte).has_value());
  EXPECT_EQ(transfer.next_offset(), 3 * kGibibyte + 4096);
  EXPECT_EQ(transfer.next_size(), 4096u);
}

TEST(Transfer, ReadPastTheEndIsDataLoss) {
  Transfer transfer = Buffered(Kind::kRead, 100, 50);
  EXPECT_FALSE(transfer.Advance(20).has_value());
  const auto finished = transfer.Advance(0);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished,
              StatusIs(StatusCode::kDataLoss, "read 50 bytes at 100 of run/x: the file ends after 20 of them"));
}

TEST(Transfer, WriteThatGetsNowhereIsAnError) {
  const auto finished = Buffered(Kind::kWrite, 100, 50).Advance(0);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished,
              StatusIs(StatusCode::kInternal, "write 50 bytes at 100 to run/x: the file system took only 0 of them"));
}

TEST(Transfer, ErrorCarriesOperationOffsetSizeAndPath) {
  const auto read = Buffered(Kind::kRead, 8192, 50).Advance(-EIO);
  ASSERT_TRUE(read.has_value());
  EXPECT_THAT(*read, StatusIs(StatusCode::kInternal, "read 50 bytes at 8192 of run/x: Input/output error (EIO)"));
  Transfer write = Direct(Kind::kWrite, 8192, 12288);
  EXPECT_FALSE(write.Advance(4096).has_value());
  const auto finished = write.Advance(-ENOSPC);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished, StatusIs(StatusCode::kResourceExhausted,
                                  "write 12288 bytes at 8192 to run/x: No space left on device (ENOSPC)"));
}

TEST(Transfer, DirectOneGoesOnFromTheLastAlignedPlace) {
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    Transfer transfer = Direct(kind, 8192, 16384);
    EXPECT_FALSE(transfer.Advance(4096 + 512).has_value());
    EXPECT_EQ(transfer.done(), 4096u);
    EXPECT_EQ(transfer.next_offset(), 12288u);
    EXPECT_EQ(transfer.next_size(), 12288u);
  }
}

TEST(Transfer, DirectReadOfAFileThatEndsBetweenIsDataLoss) {
  Transfer transfer = Direct(Kind::kRead, 0, 16384);
  EXPECT_FALSE(transfer.Advance(4096 + 100).has_value());
  const auto finished = transfer.Advance(100);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished,
              StatusIs(StatusCode::kDataLoss, "read 16384 bytes at 0 of run/x: the file ends after 4196 of them"));
}

TEST(Transfer, DirectWriteThatGetsNowhereIsAnError) {
  const auto finished = Direct(Kind::kWrite, 0, 16384).Advance(512);
  ASSERT_TRUE(finished.has_value());
  EXPECT_THAT(*finished, StatusIs(StatusCode::kInternal, testing::HasSubstr("the file system took only 512 of them")));
}

TEST(Transfer, RefusesRangesPastTheLargestOffset) {
  EXPECT_THAT(Buffered(Kind::kRead, kOffsetMax - 4096, 4096).CheckRange(), IsOk());
  EXPECT_THAT(Buffered(Kind::kRead, kOffsetMax - 4095, 4096).CheckRange(),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("read 4096 bytes at 9223372036854771712 of "
                                                                        "run/x: the range ends past")));
  // What io_uring would take for the file's own position.
  EXPECT_THAT(Buffered(Kind::kWrite, std::numeric_limits<uint64_t>::max(), 1).CheckRange(),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("write 1 bytes")));
}

TEST(TransferDeathTest, EndsTheProcessOverMoreBytesThanWereAskedFor) {
  Transfer transfer = Buffered(Kind::kRead, 0, 50);
  EXPECT_DEATH(transfer.Advance(51), "more bytes than it asked for");
}

}  // namespace
}  // namespace tidemark::storage
