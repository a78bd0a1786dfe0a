// ThreadSanitizer sees the order that each of Abseil's primitives gives, and a race where there is none. It compares
// what the threads are ordered by, not when they ran: nothing here depends on the machine's timing. A report makes the
// process end with status 66.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/tsan/race_testing.h"

namespace {

// So many that each thread comes first in some of them.
constexpr int kRounds = 50;

// What one thread writes and another reads, plain on purpose.
struct Shared {
  absl::Mutex mutex;
  absl::CondVar changed;
  int value = 0;
  bool written = false;
};

absl::Duration Long() { return absl::Minutes(10); }
absl::Time Late() { return absl::Now() + Long(); }

// A way to wait until `written`, with the mutex held as it ends, and how to let go of it then.
struct Wait {
  std::string name;
  std::function<void(Shared&)> begin;
  std::function<void(Shared&)> end;
};

std::vector<Wait> Waits() {
  const auto unlock = [](Shared& shared) { shared.mutex.Unlock(); };
  const auto reader_unlock = [](Shared& shared) { shared.mutex.ReaderUnlock(); };
  return {
      {"Lock",
       [](Shared& shared) {
         for (shared.mutex.Lock(); !shared.written; shared.mutex.Lock()) shared.mutex.Unlock();
       },
       unlock},
      {"TryLock",
       [](Shared& shared) {
         for (;;) {
           if (!shared.mutex.TryLock()) continue;
           if (shared.written) return;
           shared.mutex.Unlock();
         }
       },
       unlock},
      {"ReaderLock",
       [](Shared& shared) {
         for (shared.mutex.ReaderLock(); !shared.written; shared.mutex.ReaderLock()) shared.mutex.ReaderUnlock();
       },
       reader_unlock},
      {"ReaderTryLock",
       [](Shared& shared) {
         for (;;) {
           if (!shared.mutex.ReaderTryLock()) continue;
           if (shared.written) return;
           shared.mutex.ReaderUnlock();
         }
       },
       reader_unlock},
      {"Await",
       [](Shared& shared) {
         shared.mutex.Lock();
         shared.mutex.Await(absl::Condition(&shared.written));
       },
       unlock},
      {"AwaitWithTimeout",
       [](Shared& shared) {
         shared.mutex.Lock();
         EXPECT_TRUE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.written), Long()));
       },
       unlock},
      {"AwaitWithDeadline",
       [](Shared& shared) {
         shared.mutex.Lock();
         EXPECT_TRUE(shared.mutex.AwaitWithDeadline(absl::Condition(&shared.written), Late()));
       },
       unlock},
      {"LockWhen", [](Shared& shared) { shared.mutex.LockWhen(absl::Condition(&shared.written)); }, unlock},
      {"LockWhenWithTimeout",
       [](Shared& shared) { EXPECT_TRUE(shared.mutex.LockWhenWithTimeout(absl::Condition(&shared.written), Long())); },
       unlock},
      {"LockWhenWithDeadline",
       [](Shared& shared) { EXPECT_TRUE(shared.mutex.LockWhenWithDeadline(absl::Condition(&shared.written), Late())); },
       unlock},
      {"ReaderLockWhen", [](Shared& shared) { shared.mutex.ReaderLockWhen(absl::Condition(&shared.written)); },
       reader_unlock},
      {"ReaderLockWhenWithTimeout",
       [](Shared& shared) {
         EXPECT_TRUE(shared.mutex.ReaderLockWhenWithTimeout(absl::Condition(&shared.written), Long()));
       },
       reader_unlock},
      {"ReaderLockWhenWithDeadline",
       [](Shared& shared) {
         EXPECT_TRUE(shared.mutex.ReaderLockWhenWithDeadline(absl::Condition(&shared.written), Late()));
       },
       reader_unlock},
      {"CondVarWait",
       [](Shared& shared) {
         shared.mutex.Lock();
         while (!shared.written) shared.changed.Wait(&shared.mutex);
       },
       unlock},
      {"CondVarWaitWithTimeout",
       [](Shared& shared) {
         shared.mutex.Lock();
         while (!shared.written) shared.changed.WaitWithTimeout(&shared.mutex, Long());
       },
       unlock},
      {"CondVarWaitWithDeadline",
       [](Shared& shared) {
         shared.mutex.Lock();
         while (!shared.written) shared.changed.WaitWithDeadline(&shared.mutex, Late());
       },
       unlock},
  };
}

class AbslSynchronizationWait : public testing::TestWithParam<Wait> {};

TEST_P(AbslSynchronizationWait, OrdersTheWriterBeforeTheWaiter) {
  for (int round = 0; round < kRounds; ++round) {
    Shared shared;
    RunBoth(
        [&] {
          absl::ReleasableMutexLock lock(&shared.mutex);
          shared.value = 1;
          shared.written = true;
          shared.changed.SignalAll();
          lock.Release();
        },
        [&] {
          GetParam().begin(shared);
          EXPECT_EQ(shared.value, 1);
          GetParam().end(shared);
        });
  }
}

TEST_P(AbslSynchronizationWait, OrdersItsReaderBeforeALaterWriter) {
  for (int round = 0; round < kRounds; ++round) {
    Shared shared;
    shared.written = true;
    RunBoth(
        [&] {
          GetParam().begin(shared);
          EXPECT_THAT(shared.value, testing::AnyOf(0, 1));
          GetParam().end(shared);
        },
        [&] {
          absl::MutexLock lock(&shared.mutex);
          shared.value = 1;
        });
  }
}

INSTANTIATE_TEST_SUITE_P(Every, AbslSynchronizationWait, testing::ValuesIn(Waits()),
                         [](const testing::TestParamInfo<Wait>& info) { return info.param.name; });

TEST(AbslSynchronization, NotificationOrdersWhatCameBefore) {
  const std::vector<std::function<void(const absl::Notification&)>> waits = {
      [](const absl::Notification& done) { done.WaitForNotification(); },
      [](const absl::Notification& done) { EXPECT_TRUE(done.WaitForNotificationWithTimeout(Long())); },
      [](const absl::Notification& done) { EXPECT_TRUE(done.WaitForNotificationWithDeadline(Late())); },
      [](const absl::Notification& done) {
        while (!done.HasBeenNotified()) std::this_thread::yield();
      },
  };
  for (const auto& wait : waits) {
    int value = 0;
    absl::Notification done;
    RunBoth(
        [&] {
          value = 1;
          done.Notify();
        },
        [&] {
          wait(done);
          EXPECT_EQ(value, 1);
        });
  }
}

TEST(AbslSynchronization, BarrierOrdersAllBeforeItBeforeAllAfterIt) {
  int values[2] = {0, 0};
  auto* barrier = new absl::Barrier(2);
  const auto meet = [&](int self) {
    values[self] = 1;
    if (barrier->Block()) delete barrier;
    EXPECT_EQ(values[1 - self], 1);
  };
  RunBoth([&] { meet(0); }, [&] { meet(1); });
}

TEST(AbslSynchronization, BlockingCounterOrdersWhatWasCountedBeforeItsWaiter) {
  int value = 0;
  absl::BlockingCounter counter(1);
  RunBoth(
      [&] {
        value = 1;
        counter.DecrementCount();
      },
      [&] {
        counter.Wait();
        EXPECT_EQ(value, 1);
      });
}

// The one that comes last frees what the other has read.
TEST(AbslStatus, MayBeReleasedByAnyThread) {
  for (int round = 0; round < kRounds; ++round) {
    absl::Status first = absl::InternalError("a message that is too long for its string's own bytes");
    absl::Status second = first;
    const auto read_and_release = [](absl::Status& status) {
      EXPECT_EQ(std::string(status.message()).front(), 'a');
      status = absl::OkStatus();
    };
    RunBoth([&] { read_and_release(first); }, [&] { read_and_release(second); });
  }
}

// Abseil takes each out of one graph of them all.
TEST(AbslSynchronization, MutexesMayEndInAnyThread) {
  const auto make_and_end = [] {
    for (int round = 0; round < kRounds; ++round) {
      absl::Mutex first;
      absl::Mutex second;
      absl::Notification third;
      absl::MutexLock lock(&first);
      absl::MutexLock nested(&second);
      third.Notify();
    }
  };
  RunBoth(make_and_end, make_and_end);
}

TEST(AbslSynchronizationDeathTest, ReportsWritesThatNothingOrders) {
  ExpectReported([] {
    int value = 0;
    const auto add = [&] { ++value; };
    RunBoth(add, add);
  });
}

TEST(AbslSynchronizationDeathTest, ReportsWritesUnderTwoMutexes) {
  ExpectReported([] {
    int value = 0;
    absl::Mutex mutexes[2];
    const auto add = [&](absl::Mutex* mutex) {
      absl::MutexLock lock(mutex);
      ++value;
    };
    RunBoth([&] { add(&mutexes[0]); }, [&] { add(&mutexes[1]); });
  });
}

TEST(AbslSynchronizationDeathTest, ReportsWritesUnderAReadersLock) {
  ExpectReported([] {
    Shared shared;
    const auto add = [&] {
      absl::ReaderMutexLock lock(&shared.mutex);
      ++shared.value;
    };
    RunBoth(add, add);
  });
}

TEST(AbslSynchronizationDeathTest, ReportsAConditionOnWhatTheMutexDoesNotGuard) {
  ExpectReported([] {
    Shared shared;
    RunBoth([&] { shared.written = true; },
            [&] {
              const auto written = [&] { return shared.written; };
              absl::MutexLock lock(&shared.mutex);
              shared.mutex.AwaitWithTimeout(absl::Condition(&written), absl::ZeroDuration());
            });
  });
}

TEST(AbslSynchronizationDeathTest, ReportsWhatComesAfterANotification) {
  ExpectReported([] {
    int value = 0;
    absl::Notification done;
    RunBoth(
        [&] {
          done.Notify();
          ++value;
        },
        [&] {
          done.WaitForNotification();
          ++value;
        });
  });
}

}  // namespace
