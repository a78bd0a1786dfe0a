#include "storage/shard/read/range_fetcher.h"

#include <atomic>
#include <new>
#include <random>
#include <stdexcept>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
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

TEST(AddToRanges, GivesAPlaceWhereAlignmentAndSizeAllowIt) {
  File* const file = reinterpret_cast<File*>(8);
  std::byte* const place = reinterpret_cast<std::byte*>(uintptr_t{1} << 30);
  const auto place_of = [&](uint64_t begin, uint64_t end, std::byte* wanted) {
    std::vector<ByteRange> ranges;
    AddToRanges(file, begin, end, 0, &ranges, wanted);
    return ranges[0].place;
  };
  EXPECT_EQ(place_of(4096, 4096 + kPlacedBytesMin, place), place);
  EXPECT_EQ(place_of(4096, 4097 + kPlacedBytesMin, place), place) << "the end need not be aligned";
  EXPECT_EQ(place_of(4096, 4095 + kPlacedBytesMin, place), nullptr);
  EXPECT_EQ(place_of(4097, 4097 + kPlacedBytesMin, place), nullptr);
  EXPECT_EQ(place_of(4096, 4096 + kPlacedBytesMin, place + 64), nullptr);
  EXPECT_EQ(place_of(4096, 4096 + kPlacedBytesMin, nullptr), nullptr);
}

TEST(AddToRanges, JoinsPlacesOnlyWhereBytesAndPlacesFollowEachOther) {
  File* const file = reinterpret_cast<File*>(8);
  std::byte* const place = reinterpret_cast<std::byte*>(uintptr_t{1} << 30);
  constexpr uint64_t kSize = 128 << 10;
  std::vector<ByteRange> ranges;
  AddToRanges(file, 0, kSize, 0, &ranges, place);
  AddToRanges(file, kSize, 2 * kSize, 1, &ranges, place + kSize);          // right behind it
  AddToRanges(file, kSize, 2 * kSize, 2, &ranges, place + 8 * kSize);      // the same bytes again
  AddToRanges(file, 2 * kSize, 3 * kSize, 3, &ranges, place + 3 * kSize);  // elsewhere
  AddToRanges(file, 3 * kSize, 4 * kSize, 4, &ranges, nullptr);            // to a buffer
  AddToRanges(file, 4 * kSize, 5 * kSize, 5, &ranges, place + 5 * kSize);  // not to a buffer
  AddToRanges(file, 6 * kSize, 7 * kSize, 6, &ranges, place + 6 * kSize);  // with a gap
  AddToRanges(file, 7 * kSize, 7 * kSize + 100, 7, &ranges, nullptr);      // too small for a place
  AddToRanges(file, 8 * kSize, 8 * kSize + kRangeBytes, 8, &ranges, place + 8 * kSize);
  AddToRanges(file, 8 * kSize + kRangeBytes, 9 * kSize + kRangeBytes, 9, &ranges, place + 8 * kSize + kRangeBytes);
  const std::vector<std::vector<uint64_t>> expected = {
      {0, 2 * kSize, 0, 3, 0},
      {2 * kSize, 3 * kSize, 3, 4, 3 * kSize},
      {3 * kSize, 4 * kSize, 4, 5, 1},
      {4 * kSize, 5 * kSize, 5, 6, 5 * kSize},
      {6 * kSize, 7 * kSize, 6, 7, 6 * kSize},
      {7 * kSize, 7 * kSize + 100, 7, 8, 1},
      {8 * kSize, 8 * kSize + kRangeBytes, 8, 9, 8 * kSize},
      {8 * kSize + kRangeBytes, 9 * kSize + kRangeBytes, 9, 10, 8 * kSize + kRangeBytes}};
  ASSERT_EQ(ranges.size(), expected.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    SCOPED_TRACE(i);
    const uint64_t at = ranges[i].place == nullptr ? 1 : static_cast<uint64_t>(ranges[i].place - place);
    EXPECT_EQ((std::vector<uint64_t>{ranges[i].begin, ranges[i].end, ranges[i].first_item, ranges[i].last_item, at}),
              expected[i]);
  }
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

struct NotifyAtEndOfThread {
  absl::Notification& ended;
  ~NotifyAtEndOfThread() { ended.Notify(); }
};

// Who comes after the one that fails waits until its thread has come to its end, for that may be late to tell of it.
TEST_F(FetchRangesTest, EndsWithTheFirstErrorOfTheHandler) {
  std::atomic<size_t> handled = 0;
  absl::Notification ended;
  EXPECT_THAT(FetchRanges(files_, {.threads = 2, .io_depth = 2}, ranges_,
                          [&](size_t, const absl::Status&, std::span<const std::byte>, FetchWorker&) {
                            const size_t before = handled++;
                            if (before > 5) ended.WaitForNotification();
                            if (before != 5) return absl::OkStatus();
                            thread_local const NotifyAtEndOfThread at_end{ended};
                            return absl::DataLossError("the sixth");
                          }),
              StatusIs(StatusCode::kDataLoss, "the sixth"));
  EXPECT_LE(handled, 7u) << "the other thread may have had one";
}

TEST_F(FetchRangesTest, EndsWithWhatAFunctionThrowsAndLeavesNoThread) {
  const size_t threads = CountThreads();
  const auto handled = [](size_t, const absl::Status&, std::span<const std::byte>, FetchWorker&) {
    return absl::OkStatus();
  };
  const auto throwing = [](size_t range, const absl::Status&, std::span<const std::byte>,
                           FetchWorker&) -> absl::Status {
    if (range == 20) throw std::runtime_error("the handler's");
    return absl::OkStatus();
  };
  const auto no_memory = [](size_t, const absl::Status&, std::span<const std::byte>, FetchWorker&) -> absl::Status {
    throw std::bad_alloc();
  };
  for (const size_t depth : {1, 16}) {
    const FetchOptions options{.threads = 2, .io_depth = depth};
    EXPECT_THAT(FetchRanges(files_, options, ranges_, throwing),
                StatusIs(StatusCode::kInternal, testing::HasSubstr("threw: the handler's")));
    EXPECT_THAT(FetchRanges(files_, options, ranges_, no_memory),
                StatusIs(StatusCode::kResourceExhausted, testing::HasSubstr("no memory")));
    EXPECT_THAT(FetchRanges(files_, options, ranges_, handled,
                            [](size_t range) {
                              if (range == 20) throw std::runtime_error("the reader's");
                            }),
                StatusIs(StatusCode::kInternal, testing::HasSubstr("threw: the reader's")));
    EXPECT_LE(CountThreads(threads), threads);
  }
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

// Places for ranges that end in a block or with one, each followed by bytes that are nobody's.
class PlacedRangesTest : public FetchRangesTest {
 protected:
  static constexpr std::byte kUntouched{0xa5};

  PlacedRangesTest() {
    memory_ = AlignedBuffer(2 << 20);
    std::fill(memory_.span().begin(), memory_.span().end(), kUntouched);
    ranges_.clear();
    std::byte* place = memory_.data();
    for (const uint64_t size : {65536, 65537, 69631, 4096, 131072, 100}) {
      ranges_.push_back({.file = file_.get(), .begin = ranges_.size() * 131072, .place = place});
      ranges_.back().end = ranges_.back().begin + size;
      place += AlignUp(size) + kDirectAlignment;
    }
    ranges_.push_back({.file = file_.get(), .begin = 777, .end = 5000});  // without a place
  }

  std::span<const std::byte> Expected(size_t range) {
    return std::span(bytes_).subspan(ranges_[range].begin, ranges_[range].end - ranges_[range].begin);
  }

  AlignedBuffer memory_;
};

TEST_F(PlacedRangesTest, AreReadToTheirPlaceAndNotBeyond) {
  for (size_t depth : {1, 2, 16}) {
    std::atomic<int> handled = 0;
    EXPECT_THAT(
        FetchRanges(files_, {.threads = 2, .io_depth = depth}, ranges_,
                    [&](size_t range, const absl::Status& status, std::span<const std::byte> bytes, FetchWorker&) {
                      EXPECT_THAT(status, IsOk());
                      const std::byte* const place = ranges_[range].place;
                      EXPECT_TRUE(place == nullptr || bytes.data() == place);
                      EXPECT_TRUE(
                          std::equal(bytes.begin(), bytes.end(), Expected(range).begin(), Expected(range).end()));
                      ++handled;
                      return absl::OkStatus();
                    }),
        IsOk());
    EXPECT_EQ(handled, 7);
    for (const ByteRange& range : ranges_) {
      if (range.place == nullptr) continue;
      const std::byte* const end = range.place + (range.end - range.begin);
      EXPECT_TRUE(std::all_of(end, end + kDirectAlignment, [](std::byte byte) { return byte == kUntouched; }));
    }
  }
}

TEST_F(PlacedRangesTest, AreHandledOnceWhicheverOfTheirReadsFails) {
  size_t reads = 0;
  for (; reads < 100; ++reads) {
    files_.FailOperation("QueueRead", absl::InternalError("injected"), reads);
    std::atomic<int> handled = 0;
    std::atomic<int> failed = 0;
    EXPECT_THAT(FetchRanges(files_, {.threads = 2}, ranges_,
                            [&](size_t, const absl::Status& read, std::span<const std::byte> bytes, FetchWorker&) {
                              ++handled;
                              failed += read.ok() ? 0 : 1;
                              EXPECT_EQ(read.ok(), !bytes.empty());
                              return absl::OkStatus();
                            }),
                IsOk());
    EXPECT_EQ(handled, 7);
    if (failed == 0) break;
    EXPECT_EQ(failed, 1);
  }
  EXPECT_EQ(reads, 9u) << "two for the three that end in a block, and are longer than one";
}

TEST_F(PlacedRangesTest, AreNotReadAnyMoreAfterAnError) {
  std::vector<ByteRange> many(200, ranges_[0]);
  for (size_t i = 0; i < many.size(); ++i) many[i].place = memory_.data() + i % 16 * 65536;
  absl::Notification ended;
  EXPECT_THAT(FetchRanges(
                  files_, {.threads = 1, .io_depth = 1}, many,
                  [&](size_t, const absl::Status&, std::span<const std::byte>, FetchWorker&) {
                    // The thread ends for the error, once the reading thread can know of it, too.
                    thread_local const NotifyAtEndOfThread at_end{ended};
                    return absl::DataLossError("enough");
                  },
                  [&](size_t) { ended.WaitForNotification(); }),
              StatusIs(StatusCode::kDataLoss, "enough"));
  EXPECT_THAT(files_.operations(), testing::ElementsAre("OpenForRead", "NewIoQueue", "QueueRead"));
}

TEST_F(FetchRangesTest, DoesNothingForNoRanges) {
  files_.FailOperation("NewIoQueue", absl::InternalError("injected"));
  EXPECT_THAT(FetchRanges(files_, {}, {}, nullptr), IsOk());
  EXPECT_THAT(FetchRanges(files_, {}, ranges_, nullptr), StatusIs(StatusCode::kInternal, "injected"));
}

}  // namespace
}  // namespace tidemark::storage
