// That a forked child can take memory, whatever other threads did at the fork. Without asan_fork.cc three children in a
// hundred hang here under AddressSanitizer.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark {
namespace {

using storage::kThreadSanitizer;

// Takes memory of all sizes, and gives it back.
void UseMemory(int times) {
  std::vector<std::unique_ptr<std::string>> held(64);
  for (int i = 0; i < times; ++i) {
    held[static_cast<size_t>(i) % held.size()] = std::make_unique<std::string>(static_cast<size_t>(1) << (i % 9), 'x');
  }
}

TEST(AsanForkTest, AChildCanTakeMemoryThoughOtherThreadsDidAtTheFork) {
  if (kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        UseMemory(200);
        absl::SleepFor(absl::Microseconds(50));
      }
    });
  }
  int hung = 0;
  for (int i = 0; i < 60; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      UseMemory(100);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    hung += status != 0;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hung, 0);
}

}  // namespace
}  // namespace tidemark
