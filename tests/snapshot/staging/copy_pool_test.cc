#include "snapshot/staging/copy_pool.h"

#include <atomic>
#include <new>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(CopyPool, DoesEveryPieceOnce) {
  CopyPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> counts(37);
    pool.Run(counts.size(), [&](size_t i) { ++counts[i]; });
    for (const std::atomic<int>& count : counts) ASSERT_EQ(count, 1);
  }
}

TEST(CopyPool, WorksOnAllItsThreadsAtOnce) {
  CopyPool pool(3);
  ASSERT_EQ(pool.threads(), 3);
  // Three pieces that wait for each other: with fewer threads this never ends.
  auto* barrier = new absl::Barrier(3);
  std::atomic<int> done{0};
  pool.Run(3, [&](size_t) {
    if (barrier->Block()) delete barrier;
    ++done;
  });
  EXPECT_EQ(done, 3);
}

TEST(CopyPool, OfOneThreadUsesTheCaller) {
  CopyPool pool(1);
  int sum = 0;
  pool.Run(5, [&](size_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 10);
}

TEST(CopyPool, ThrowsWhatAPieceThrewOnceTheOthersHaveEnded) {
  CopyPool pool(3);
  std::atomic<int> running = 0;
  const auto work = [&](size_t i) {
    ++running;
    if (i % 2 == 1) {
      --running;
      throw std::bad_alloc();
    }
    --running;
  };
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(pool.Run(10, work), std::bad_alloc);
    EXPECT_EQ(running, 0);
  }
  std::atomic<int> done = 0;
  pool.Run(10, [&](size_t) { ++done; });
  EXPECT_EQ(done, 10) << "it works as before";
}

TEST(CopyPool, HasNothingToDoForNoPieces) {
  CopyPool pool(2);
  pool.Run(0, [](size_t) { FAIL(); });
}

}  // namespace
}  // namespace tidemark
