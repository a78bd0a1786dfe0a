#include "snapshot/consumers/compression_time.h"

#include <chrono>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const CompressionTime::Time kBegin = CompressionTime::Time() + seconds(1000);

TEST(CompressionTime, TheFirstSaveHasNone) {
  CompressionTime time(absl::InfiniteDuration());
  EXPECT_EQ(time.EndFor(kBegin), kBegin);
}

TEST(CompressionTime, IsHalfTheShortestOfTheLastThreeIntervals) {
  CompressionTime time(absl::InfiniteDuration());
  time.EndFor(kBegin);
  EXPECT_EQ(time.EndFor(kBegin + seconds(10)), kBegin + seconds(15));
  EXPECT_EQ(time.EndFor(kBegin + seconds(12)), kBegin + seconds(13));  // as at the end of an epoch
  EXPECT_EQ(time.EndFor(kBegin + seconds(22)), kBegin + seconds(23));
  EXPECT_EQ(time.EndFor(kBegin + seconds(32)), kBegin + seconds(33));
  EXPECT_EQ(time.EndFor(kBegin + seconds(42)), kBegin + seconds(47));  // the short one is forgotten
}

TEST(CompressionTime, IsNeverLongerThanItMayBe) {
  CompressionTime time(absl::Milliseconds(1500));
  EXPECT_EQ(time.EndFor(kBegin), kBegin);
  EXPECT_EQ(time.EndFor(kBegin + seconds(10)), kBegin + seconds(10) + milliseconds(1500));
  EXPECT_EQ(time.EndFor(kBegin + seconds(12)), kBegin + seconds(13));
}

}  // namespace
}  // namespace tidemark
