#include "storage/index/rocks_threads.h"

#include <pthread.h>

#include <thread>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "storage/index/database.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

// Time enough for any machine; what is waited for has happened, or never will.
constexpr absl::Duration kLong = absl::Minutes(5);

TEST(NullLoggerTest, KnowsTheTimerByItsThread) {
  NullLogger logger;
  logger.Flush();
  EXPECT_FALSE(logger.AwaitTimer(absl::ZeroDuration())) << "the thread that opened the database";
  std::thread([&] {
    ASSERT_EQ(pthread_setname_np(pthread_self(), "rocksdb:low0"), 0);
    logger.Flush();
  }).join();
  EXPECT_FALSE(logger.AwaitTimer(absl::ZeroDuration())) << "a thread of a pool";
  std::thread timer([&] { logger.Flush(); });
  EXPECT_TRUE(logger.AwaitTimer(kLong));
  timer.join();
}

TEST(NullLoggerTest, WaitsNoLongerThanItIsTold) { EXPECT_FALSE(NullLogger().AwaitTimer(absl::Milliseconds(1))); }

TEST(RunPoolThreadsTest, LeavesNoWorkWaiting) {
  SimulatedDisk disk;
  ASSERT_THAT(disk.CreateDirectory("/store"), IsOk());
  const auto database = Database::Create(disk, "/store/index");
  ASSERT_THAT(database, IsOk());
  rocksdb::Env& env = *rocksdb::Env::Default();
  RunPoolThreads(env);
  EXPECT_EQ(env.GetThreadPoolQueueLen(rocksdb::Env::Priority::LOW), 0u);
  EXPECT_EQ(env.GetThreadPoolQueueLen(rocksdb::Env::Priority::HIGH), 0u);
}

}  // namespace
}  // namespace tidemark::storage
