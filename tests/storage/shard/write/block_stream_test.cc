#include "storage/shard/write/block_stream.h"

#include <cstring>
#include <deque>
#include <new>
#include <random>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

// Keeps what is written in memory; completes the youngest first, since a disk may take any order.
class MemoryQueue final : public IoQueue {
 public:
  explicit MemoryQueue(size_t depth) : depth_(depth) {}
  std::string_view name() const override { return "memory"; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return in_flight_.size(); }
  void Submit(const IoRequest& request) override {
    ASSERT_LT(in_flight_.size(), depth_);
    EXPECT_EQ(request.offset % kDirectAlignment, 0u);
    EXPECT_EQ(request.size % kDirectAlignment, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(request.data) % kDirectAlignment, 0u);
    in_flight_.push_back(request);
    requests.push_back(request);
  }
  IoCompletion Wait() override {
    const IoRequest request = in_flight_.back();
    in_flight_.pop_back();
    if (request.offset == failing_offset) return {request.tag, absl::InternalError("injected")};
    // As late as a disk may look at it.
    if (written.size() < request.offset + request.size) written.resize(request.offset + request.size, '?');
    std::memcpy(written.data() + request.offset, request.data, request.size);
    return {request.tag, absl::OkStatus()};
  }
  std::optional<IoCompletion> Poll() override {
    if (ended == 0) return std::nullopt;
    --ended;
    return Wait();
  }

  size_t ended = 0;  // of those in flight, as far as Poll knows
  std::vector<IoRequest> requests;
  std::string written;
  uint64_t failing_offset = ~uint64_t{0};

 private:
  const size_t depth_;
  std::deque<IoRequest> in_flight_;
};

TEST(BlockStream, WritesWhatIsAppendedInAnySizesAndWays) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (size_t depth : {1, 2, 5}) {
    for (size_t blocks : {1, 2, 6}) {
      MemoryQueue queue(depth);
      BlockStream stream(blocks);
      std::string expected(8192, '?');
      stream.Begin(nullptr, &queue, 8192);
      std::deque<AlignedBuffer> sources;  // stay in place until Finish
      for (int i = 0; i < 40; ++i) {
        const size_t size = random() % 3 == 0 ? random() % 3000000 : random() % 10000;
        sources.emplace_back(size + 1);
        const size_t shift = random() % 4 == 0 ? 1 : 0;
        const auto data = sources.back().span().subspan(shift, size);
        for (std::byte& byte : data) byte = static_cast<std::byte>(random());
        if (random() % 2 == 0) {
          ASSERT_THAT(stream.Align(), IsOk());
          expected.resize(AlignUp(expected.size()), '\0');
        }
        EXPECT_EQ(stream.offset(), expected.size());
        ASSERT_THAT(random() % 2 == 0 ? stream.Append(data) : stream.AppendInPlace(data), IsOk());
        expected.append(reinterpret_cast<const char*>(data.data()), data.size());
      }
      ASSERT_THAT(stream.Finish(), IsOk());
      expected.resize(AlignUp(expected.size()), '\0');
      EXPECT_TRUE(queue.written == expected);
      EXPECT_EQ(queue.in_flight(), 0u);
    }
  }
}

TEST(BlockStream, WritesAlignedBytesFromWhereTheyLie) {
  MemoryQueue queue(4);
  BlockStream stream(2);
  AlignedBuffer source(3 << 20);
  stream.Begin(nullptr, &queue, 4096);
  ASSERT_THAT(stream.AppendInPlace(source.span()), IsOk());
  ASSERT_EQ(queue.requests.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.requests[i].data, source.data() + (i << 20));
    EXPECT_EQ(queue.requests[i].offset, 4096 + (i << 20));
  }
  EXPECT_THAT(stream.Finish(), IsOk());
}

TEST(BlockStream, CopiesWhatIsNotWorthAWriteOfItsOwn) {
  MemoryQueue queue(4);
  BlockStream stream(2);
  AlignedBuffer source(BlockStream::kInPlaceBytesMin);
  stream.Begin(nullptr, &queue, 0);
  ASSERT_THAT(stream.AppendInPlace(source.span().first(BlockStream::kInPlaceBytesMin - kDirectAlignment)), IsOk());
  EXPECT_TRUE(queue.requests.empty());
  ASSERT_THAT(stream.Finish(), IsOk());
  ASSERT_EQ(queue.requests.size(), 1u);
  EXPECT_EQ(queue.requests[0].data, stream.memory().data() + BlockStream::kBlockBytes);
  EXPECT_EQ(stream.memory().size(), 2 * BlockStream::kBlockBytes);
}

class RecordingObserver final : public WriteObserver {
 public:
  void Submitting(uint64_t bytes) override { log.push_back(static_cast<int64_t>(bytes)); }
  void Completed(uint64_t bytes) override { log.push_back(-static_cast<int64_t>(bytes)); }
  void Waited(BusySpans::Time begin, BusySpans::Time end) override {
    EXPECT_LE(begin, end);
    ++waits;
  }
  std::vector<int64_t> log;
  int waits = 0;
};

TEST(BlockStream, TellsItsObserverOfEveryWrite) {
  MemoryQueue queue(1);
  BlockStream stream(2);
  AlignedBuffer source(3 << 19);
  RecordingObserver observer;
  stream.Begin(nullptr, &queue, 0, &observer);
  ASSERT_THAT(stream.AppendInPlace(source.span()), IsOk());
  EXPECT_TRUE(stream.in_flight());
  queue.failing_offset = 1 << 20;
  EXPECT_THAT(stream.Wait(), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_FALSE(stream.in_flight());
  EXPECT_THAT(stream.Finish(), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_EQ(observer.log, (std::vector<int64_t>{1 << 20, -(1 << 20), 1 << 19, -(1 << 19)}));
  EXPECT_EQ(observer.waits, 2) << "of a queue of one: for room, and for the end of the last";
}

TEST(BlockStream, NoticesWhatHasEndedWhenItIsAsked) {
  MemoryQueue queue(4);
  BlockStream stream(2);
  AlignedBuffer source(3 << 20);
  stream.Begin(nullptr, &queue, 0);
  ASSERT_THAT(stream.AppendInPlace(source.span()), IsOk());
  stream.Poll();
  EXPECT_EQ(queue.in_flight(), 3u);
  queue.ended = 2;
  stream.Poll();
  EXPECT_EQ(queue.in_flight(), 1u);
  EXPECT_THAT(stream.Finish(), IsOk());
}

TEST(BlockStream, KeepsTheFirstErrorAndSubmitsNothingMore) {
  MemoryQueue queue(1);
  queue.failing_offset = BlockStream::kBlockBytes;
  BlockStream stream(2);
  const std::vector<std::byte> data(BlockStream::kBlockBytes);
  stream.Begin(nullptr, &queue, 0);
  EXPECT_THAT(stream.Append(data), IsOk());
  EXPECT_THAT(stream.Append(data), IsOk());  // fails, but nobody has waited for it yet
  EXPECT_THAT(stream.Append(data), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_THAT(stream.AppendInPlace(data), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_THAT(stream.Align(), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_THAT(stream.Finish(), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_EQ(queue.requests.size(), 2u);
  EXPECT_EQ(queue.in_flight(), 0u);

  queue.failing_offset = ~uint64_t{0};
  stream.Begin(nullptr, &queue, 0);
  EXPECT_THAT(stream.Append(data), IsOk());
  EXPECT_THAT(stream.Finish(), IsOk());
}

TEST(BlockStream, ReportsAnErrorThatOnlyFinishSees) {
  MemoryQueue queue(8);
  queue.failing_offset = 0;
  BlockStream stream(2);
  stream.Begin(nullptr, &queue, 0);
  EXPECT_THAT(stream.Append(std::vector<std::byte>(10)), IsOk());
  EXPECT_THAT(stream.Finish(), StatusIs(StatusCode::kInternal, "injected"));
}

// Throws at each call, as where there is no memory to remember it by.
class ThrowingObserver final : public WriteObserver {
 public:
  void Submitting(uint64_t) override { Throw(); }
  void Completed(uint64_t) override { Throw(); }
  void Waited(BusySpans::Time, BusySpans::Time) override { Throw(); }

  bool throws = false;

 private:
  void Throw() const {
    if (throws) throw std::bad_alloc();
  }
};

TEST(BlockStream, LosesNoCompletionAndNoBlockToAnObserverThatThrows) {
  MemoryQueue queue(2);
  ThrowingObserver observer;
  BlockStream stream(3);
  const std::vector<std::byte> data(BlockStream::kBlockBytes);
  stream.Begin(nullptr, &queue, 0, &observer);
  EXPECT_THAT(stream.Append(data), IsOk());
  EXPECT_THAT(stream.Append(data), IsOk());
  observer.throws = true;
  EXPECT_THROW(stream.Append(data).IgnoreError(), std::bad_alloc);  // it waits for one and submits another
  int thrown = 0;
  for (bool finished = false; !finished && thrown < 10;) {
    try {
      EXPECT_THAT(stream.Finish(), IsOk());
      finished = true;
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
  }
  EXPECT_LT(thrown, 10);
  EXPECT_EQ(queue.in_flight(), 0u);

  observer.throws = false;
  stream.Begin(nullptr, &queue, 0, &observer);
  for (int i = 0; i < 9; ++i) EXPECT_THAT(stream.Append(data), IsOk());
  EXPECT_THAT(stream.Finish(), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
