#include "storage/shard/range_fetcher.h"

#include <atomic>
#include <random>

#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

TEST(AddToRanges, JoinsWhatIsCloseAndSmall) {
  File* const a = reinterpret_cast<File*>(8);
  File* const b = reinterpret_cast<File*>(16);
  std::vector<ByteRange> ranges;
  AddToRanges(a, 4096, 5000, 0, &ranges);
  AddToRanges(a, 4096, 5000, 1, &ranges);                 // the same bytes again
  AddToRanges(a, 60000, 61000, 2, &ranges);               // close behind
  AddToRanges(a, 61000 + 65536 + 1, 200000, 3, &ranges);  // too far
  AddToRanges(a, 200000, 3000000, 4, &ranges);            // too much
  AddToRanges(a, 200000, 3000000, 5, &ranges);            // the same bytes again, however much
  AddToRanges(b, 3000000, 3000001, 6, &ranges);           // another file
  const std::vector<std::vector<uint64_t>> expected = {
      {4096, 61000, 0, 3}, {126537, 200000, 3, 4}, {200000, 3000000, 4, 6}, {3000000, 3000001, 6, 7}};
  ASSERT_EQ(ranges.size(), expected.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ((std::vector<uint64_t>{ranges[i].begin, ranges[i].end, ranges[i].first_item, ranges[i].last_item}),
              expected[i]);
  }
  EXPECT_EQ(ranges[3].file, b);
}

class FetchRangesTest : public ::testing::Test {
 protected:
  FetchRangesTest() {
    std::mt19937_64 random(1);
    bytes_ = RandomBytes(1 << 20, random);
    WriteWhole(directory_ / "file", {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()});
    file_ = *files_.OpenForRead(directory_ / "file", /*direct=*/true);
    for (uint64_t begin = 0; begin + 9000 < bytes_.size(); begin += 7777) {
      ranges_.push_back({file_.get(), begin, begin + 1 + begin % 9000});
    }
  }
  TestDirectory directory_;
  FailingFileSystem files_{PosixFileSystem()};
  std::vector<std::byte> bytes_;
  std::unique_ptr<File> file_;
  std::vector<ByteRange> ranges_;
};

TEST_F(FetchRangesTest, HandsOutTheBytesOfEveryRangeOnce) {
  for (int threads : {1, 3}) {
    for (size_t depth : {1, 3, 64}) {
      std::vector<std::atomic<int>> handled(ranges_.size());
      std::vector<int> read(ranges_.size());
      EXPECT_THAT(FetchRanges(
                      files_, {.threads = threads, .io_depth = depth}, ranges_,
                      [&](size_t range, const absl::Status& status, std::span<const std::byte> bytes, FetchWorker&) {
                        const auto expected =
                            std::span(bytes_).subspan(ranges_[range].begin, ranges_[range].end - ranges_[range].begin);
                        EXPECT_THAT(status, IsOk());
                        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
                        ++handled[range];
                        return absl::OkStatus();
                      },
                      [&](size_t range) { ++read[range]; }),
                  IsOk());
      for (const auto& count : handled) EXPECT_EQ(count, 1);
      for (const int count : read) EXPECT_EQ(count, 1);
    }
  }
}

TEST_F(FetchRangesTest, EndsWithTheFirstErrorOfTheHandler) {
  std::atomic<size_t> handled = 0;
  EXPECT_THAT(FetchRanges(files_, {.threads = 2, .io_depth = 2}, ranges_,
                          [&](size_t range, const absl::Status&, std::span<const std::byte>, FetchWorker&) {
                            ++handled;
                            return range == 5 ? absl::DataLossError("range 5") : absl::OkStatus();
                          }),
              StatusIs(StatusCode::kDataLoss, "range 5"));
  EXPECT_LT(handled, ranges_.size());
}

TEST_F(FetchRangesTest, TellsTheHandlerOfAReadThatFailed) {
  files_.FailOperation("QueueRead", absl::InternalError("injected"), 3);
  std::atomic<int> failed = 0;
  EXPECT_THAT(FetchRanges(files_, {}, ranges_,
                          [&](size_t range, const absl::Status& read, std::span<const std::byte> bytes, FetchWorker&) {
                            if (!read.ok()) {
                              ++failed;
                              EXPECT_EQ(range, 3u);
                              EXPECT_TRUE(bytes.empty());
                            }
                            return absl::OkStatus();
                          }),
              IsOk());
  EXPECT_EQ(failed, 1);
}

TEST_F(FetchRangesTest, DoesNothingForNoRanges) {
  files_.FailOperation("NewIoQueue", absl::InternalError("injected"));
  EXPECT_THAT(FetchRanges(files_, {}, {}, nullptr), IsOk());
  EXPECT_THAT(FetchRanges(files_, {}, ranges_, nullptr), StatusIs(StatusCode::kInternal, "injected"));
}

}  // namespace
}  // namespace tidemark::storage
