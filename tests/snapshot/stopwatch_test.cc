#include "snapshot/stopwatch.h"

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(Stopwatch, RunsFromItsConstructionOn) {
  const Stopwatch first;
  const Stopwatch second;
  const absl::Duration later = second.elapsed();
  EXPECT_GE(later, absl::ZeroDuration());
  EXPECT_GE(first.elapsed(), later);
  EXPECT_LE(later, second.elapsed());
}

}  // namespace
}  // namespace tidemark
