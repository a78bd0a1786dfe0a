#include "snapshot/serial_executor.h"

#include <memory>
#include <new>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(SerialExecutor, DoesTasksInOrder) {
  std::vector<int> seen;
  auto created = SerialExecutor::Create();
  ASSERT_TRUE(created.ok());
  SerialExecutor& executor = **created;
  for (int i = 0; i < 100; ++i) executor.Add([&seen, i] { seen.push_back(i); });
  executor.Drain();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(SerialExecutor, DoesWhatIsWaitingBeforeItEnds) {
  int done = 0;
  {
    absl::Notification go;
    auto created = SerialExecutor::Create();
    ASSERT_TRUE(created.ok());
    SerialExecutor& executor = **created;
    executor.Add([&] {
      go.WaitForNotification();
      ++done;
    });
    executor.Add([&] { ++done; });
    go.Notify();
  }
  EXPECT_EQ(done, 2);
}

TEST(SerialExecutor, ReleasesWhatATaskHeldBeforeDrainReturns) {
  auto held = std::make_shared<int>(1);
  auto created = SerialExecutor::Create();
  ASSERT_TRUE(created.ok());
  SerialExecutor& executor = **created;
  executor.Add([held] {});
  executor.Drain();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SerialExecutor, GoesOnAfterATaskThatThrows) {
  bool done = false;
  auto held = std::make_shared<int>(1);
  auto created = SerialExecutor::Create();
  ASSERT_TRUE(created.ok());
  SerialExecutor& executor = **created;
  executor.Add([held] { throw std::bad_alloc(); });
  executor.Add([&] { done = true; });
  executor.Drain();
  EXPECT_TRUE(done);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SerialExecutor, GivesUpDrainingAtTheDeadline) {
  absl::Notification go;
  auto created = SerialExecutor::Create();
  ASSERT_TRUE(created.ok());
  SerialExecutor& executor = **created;
  executor.Add([&] { go.WaitForNotification(); });
  EXPECT_FALSE(executor.DrainUntil(Deadline::Passed()));
  go.Notify();
  EXPECT_TRUE(executor.DrainUntil(Deadline::Never()));
}

}  // namespace
}  // namespace tidemark
