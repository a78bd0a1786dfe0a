// ThreadSanitizer sees that a ring's memory is not its predecessor's, and a race where two threads use one ring. A
// report makes the process end with status 66.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <liburing.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/tsan/race_testing.h"

namespace {

constexpr int kRounds = 50;

bool Create(io_uring& ring) { return io_uring_queue_init(8, &ring, 0) == 0; }

void Use(io_uring& ring) {
  for (int i = 0; i < 20; ++i) {
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    ASSERT_EQ(io_uring_submit(&ring), 1);
    io_uring_cqe* cqe = nullptr;
    ASSERT_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
    EXPECT_EQ(cqe->res, 0);
    io_uring_cqe_seen(&ring, cqe);
  }
}

// Two threads in turns, which the sanitizer does not see: an atomic that orders nothing tells whose turn it is.
void TakeTurns(int rounds, const std::function<void()>& take) {
  std::atomic<int> turn = 0;
  const auto take_turns = [&](int self) {
    for (int round = 0; round < rounds; ++round) {
      while (turn.load(std::memory_order_relaxed) != self) std::this_thread::yield();
      take();
      turn.store(1 - self, std::memory_order_relaxed);
    }
  };
  RunBoth([&] { take_turns(0); }, [&] { take_turns(1); });
}

class UringMemory : public testing::Test {
 protected:
  void SetUp() override {
    io_uring ring = {};
    if (!Create(ring)) GTEST_SKIP() << "no io_uring here";
    io_uring_queue_exit(&ring);
  }
};

TEST_F(UringMemory, OfOneThreadMayHaveBeenAnothers) {
  TakeTurns(kRounds, [] {
    io_uring ring = {};
    ASSERT_TRUE(Create(ring));
    Use(ring);
    io_uring_queue_exit(&ring);
  });
}

using UringMemoryDeathTest = UringMemory;

TEST_F(UringMemoryDeathTest, IsStillReportedWhereTwoThreadsUseOneRing) {
  ExpectReported([] {
    io_uring ring = {};
    if (!Create(ring)) return;
    TakeTurns(1, [&] { Use(ring); });
    io_uring_queue_exit(&ring);
  });
}

}  // namespace
