#include "storage/io/rate_limiter.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::storage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Duration = RateLimiter::Duration;
using Time = RateLimiter::Time;

TEST(RateLimiter, LetsABurstGoAtOnceAndSpacesTheRest) {
  RateLimiter limiter(1000);
  const Time now(seconds(5));
  EXPECT_EQ(limiter.Reserve(60, now), Duration::zero());
  EXPECT_EQ(limiter.Reserve(40, now), Duration::zero());
  EXPECT_EQ(limiter.Reserve(50, now), Duration::zero());  // the burst is over with the one before
  EXPECT_EQ(limiter.Reserve(50, now), milliseconds(50));
  EXPECT_EQ(limiter.Reserve(1, now), milliseconds(100));
}

TEST(RateLimiter, LetsATransferThatIsLargerThanABurstWaitOnlyForOthers) {
  RateLimiter limiter(1000);
  const Time now(seconds(5));
  EXPECT_EQ(limiter.Reserve(5000, now), Duration::zero());
  EXPECT_EQ(limiter.Reserve(1, now), milliseconds(4900));
}

TEST(RateLimiter, SavesNoMoreThanABurstDuringAPause) {
  RateLimiter limiter(1000);
  const Time now(seconds(5));
  limiter.Reserve(100, now);
  EXPECT_EQ(limiter.Reserve(100, now + seconds(100)), Duration::zero());
  EXPECT_EQ(limiter.Reserve(100, now + seconds(100)), Duration::zero());
  EXPECT_EQ(limiter.Reserve(100, now + seconds(100)), milliseconds(100));
}

TEST(RateLimiter, KeepsToTheRateWhateverTheSizes) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  RateLimiter limiter(1'000'000);
  const Time start(seconds(1));
  Time now = start;
  uint64_t bytes = 0;
  uint64_t last = 0;
  for (int i = 0; i < 10000; ++i) {
    last = 1 + random() % 20000;
    now += limiter.Reserve(last, now);
    bytes += last;
  }
  const double allowed = std::chrono::duration<double>(now - start + RateLimiter::kBurst).count() * 1e6;
  EXPECT_LE(static_cast<double>(bytes - last), allowed + 1);
  EXPECT_GE(static_cast<double>(bytes), allowed - 1);
}

}  // namespace
}  // namespace tidemark::storage
