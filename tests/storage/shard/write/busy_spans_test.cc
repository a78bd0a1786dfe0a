#include "storage/shard/write/busy_spans.h"

#include <cstdint>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

BusySpans::Time At(int64_t ms) { return BusySpans::Time() + milliseconds(ms); }

BusySpans::Span Span(int64_t begin, int64_t end, int64_t busy, uint64_t bytes) {
  return {.begin = At(begin), .end = At(end), .busy = milliseconds(busy), .bytes = bytes};
}

TEST(BusySpans, KeepsWhatItIsTold) {
  BusySpans spans;
  EXPECT_THAT(spans.spans(), IsEmpty());
  spans.Add(At(1), At(3), 10);
  spans.Add(At(3), At(4));
  EXPECT_THAT(spans.spans(), ElementsAre(Span(1, 3, 2, 10), Span(3, 4, 1, 0)));
  spans.Clear();
  EXPECT_THAT(spans.spans(), IsEmpty());
}

TEST(BusySpans, MakesOneOfNeighboursWithAShorterPause) {
  BusySpans spans;
  spans.JoinAcross(milliseconds(5));
  EXPECT_THAT(spans.spans(), IsEmpty());
  spans.Add(At(0), At(10), 1);
  spans.Add(At(14), At(20), 2);  // after 4
  spans.Add(At(25), At(30), 4);  // after 5
  spans.Add(At(30), At(31), 8);  // after none
  spans.JoinAcross(milliseconds(5));
  EXPECT_THAT(spans.spans(), ElementsAre(Span(0, 20, 16, 3), Span(25, 31, 6, 12)));
}

TEST(BusySpans, JoinsTheTwoWithTheShortestPauseWhereTheyAreTooMany) {
  BusySpans spans;
  // Pauses of 10, but for one of 2 behind the third.
  for (int64_t i = 0; i < static_cast<int64_t>(BusySpans::kSpansMax); ++i) {
    const int64_t begin = 20 * i - (i > 2 ? 8 : 0);
    spans.Add(At(begin), At(begin + 10), 1);
  }
  ASSERT_THAT(spans.spans(), SizeIs(BusySpans::kSpansMax));
  spans.Add(At(100'000), At(100'001), 1);
  ASSERT_THAT(spans.spans(), SizeIs(BusySpans::kSpansMax));
  EXPECT_EQ(spans.spans()[2], Span(40, 62, 20, 2));
  EXPECT_EQ(spans.spans()[3], Span(72, 82, 10, 1));
  EXPECT_EQ(spans.spans().back(), Span(100'000, 100'001, 1, 1));
  // The shortest is now that before the one that is added.
  spans.Add(At(100'002), At(100'005), 1);
  EXPECT_EQ(spans.spans().back(), Span(100'000, 100'005, 4, 2));
}

TEST(BusySpans, LosesNeitherTimeNorBytesHoweverManyThereAre) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  BusySpans spans;
  int64_t now = 0;
  int64_t busy = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    now += static_cast<int64_t>(random() % 50);
    const auto took = static_cast<int64_t>(random() % 20);
    spans.Add(At(now), At(now + took), i);
    now += took;
    busy += took;
  }
  ASSERT_THAT(spans.spans(), SizeIs(BusySpans::kSpansMax));
  BusySpans::Clock::duration kept = {};
  uint64_t bytes = 0;
  BusySpans::Time last;
  for (const BusySpans::Span& span : spans.spans()) {
    EXPECT_LE(last, span.begin);
    EXPECT_LE(span.begin, span.end);
    EXPECT_LE(span.busy, span.end - span.begin);
    kept += span.busy;
    bytes += span.bytes;
    last = span.end;
  }
  EXPECT_EQ(kept, milliseconds(busy));
  EXPECT_EQ(bytes, 9'999u * 10'000 / 2);
  EXPECT_EQ(last, At(now));
}

}  // namespace
}  // namespace tidemark::storage
