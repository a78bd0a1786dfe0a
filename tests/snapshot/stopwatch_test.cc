#include "snapshot/stopwatch.h"

#include <chrono>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(Stopwatch, TellsTheTimeSinceItsConstruction) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto before = now();
  const Stopwatch stopwatch;
  const auto after = now();
  while (now() - after < std::chrono::milliseconds(2)) {
  }
  const auto earliest = absl::FromChrono(now() - after);
  const absl::Duration elapsed = stopwatch.elapsed();
  EXPECT_GE(elapsed, earliest);
  EXPECT_LE(elapsed, absl::FromChrono(now() - before));
}

}  // namespace
}  // namespace tidemark
