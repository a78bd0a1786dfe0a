#include "snapshot/deadline.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

// ThreadSanitizer has a function of this name itself, and must see the wait.
#ifndef __SANITIZE_THREAD__
namespace {
std::atomic<int> waits_by_the_monotonic_clock = 0;
std::atomic<int> waits_by_another_clock = 0;
std::atomic<absl::Notification*> next_wait = nullptr;  // is notified of it, once
}  // namespace

// What both standard libraries call for a wait until a time of steady_clock. Notes the clock and goes on.
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                      const timespec* until) {
  static const auto real = reinterpret_cast<decltype(&pthread_cond_clockwait)>(dlsym(RTLD_NEXT, __func__));
  ++(clock == CLOCK_MONOTONIC ? waits_by_the_monotonic_clock : waits_by_another_clock);
  if (absl::Notification* const waiting = next_wait.exchange(nullptr)) waiting->Notify();
  return real(condition, mutex, clock, until);
}
#endif

namespace tidemark {
namespace {

struct Flag {
  absl::Mutex mutex;
  MonotonicCondVar changed;
  bool set ABSL_GUARDED_BY(mutex) = false;

  bool Await(const Deadline& deadline) {
    absl::MutexLock lock(&mutex);
    const auto is_set = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return set; };
    return changed.Await(&mutex, is_set, deadline);
  }
  void Set() {
    absl::MutexLock lock(&mutex);
    set = true;
    changed.NotifyAll();
  }
};

TEST(Deadline, CountsFromTheWallClockAsItIsSetNow) {
  const absl::Time now = absl::FromUnixSeconds(1'000);  // as if the clock had been set back by decades since
  const Deadline deadline = Deadline::At(now + absl::Hours(1), now);
  EXPECT_LE(deadline.left(), absl::Hours(1));
  EXPECT_GT(deadline.left(), absl::Minutes(59));
  EXPECT_GT(deadline.as_time(), absl::Now() + absl::Minutes(59));
  EXPECT_LE(deadline.as_time(), absl::Now() + absl::Hours(1));
}

TEST(Deadline, HasPassedWhereThereIsNoTimeLeft) {
  for (const Deadline& deadline :
       {Deadline::Passed(), Deadline::After(absl::ZeroDuration()), Deadline::After(-absl::Hours(1)),
        Deadline::After(-absl::InfiniteDuration()), Deadline::At(absl::InfinitePast()),
        Deadline::After(absl::Hours(1)).Before(absl::Hours(2)), Deadline::Passed().Before(absl::Hours(1))}) {
    EXPECT_EQ(deadline.left(), absl::ZeroDuration());
    const absl::Time time = deadline.as_time();
    EXPECT_LE(time, absl::Now());
  }
}

TEST(Deadline, NeverComesWhereThereIsNone) {
  for (const Deadline& deadline :
       {Deadline::Never(), Deadline::After(absl::InfiniteDuration()), Deadline::After(absl::Hours(24 * 365 * 1000)),
        Deadline::At(absl::InfiniteFuture()), Deadline::Never().Before(absl::Hours(1))}) {
    EXPECT_EQ(deadline.left(), absl::InfiniteDuration());
    EXPECT_EQ(deadline.as_time(), absl::InfiniteFuture());
  }
}

TEST(Deadline, IsBeforeAnotherOneByWhatItIsTold) {
  const Deadline deadline = Deadline::After(absl::Hours(2)).Before(absl::Hours(1));
  EXPECT_LE(deadline.left(), absl::Hours(1));
  EXPECT_GT(deadline.left(), absl::Minutes(59));
}

TEST(MonotonicCondVar, GivesUpWhenTheTimeHasPassedAndLooksOnceInAnyCase) {
  Flag flag;
  EXPECT_FALSE(flag.Await(Deadline::Passed()));
  EXPECT_FALSE(flag.Await(Deadline::After(absl::Milliseconds(1))));
  flag.Set();
  EXPECT_TRUE(flag.Await(Deadline::Passed()));
}

TEST(MonotonicCondVar, WakesWhoWaitsWithADeadlineAndWithout) {
  for (const Deadline& deadline : {Deadline::After(absl::Hours(1)), Deadline::Never()}) {
    Flag flag;
    std::thread waiter([&] { EXPECT_TRUE(flag.Await(deadline)); });
    flag.Set();
    waiter.join();
  }
}

#ifndef __SANITIZE_THREAD__
// The deadline is far off, so that no scheduler makes it pass before there has been a wait.
TEST(MonotonicCondVar, WaitsByTheClockThatNobodySets) {
  const int before = waits_by_the_monotonic_clock;
  const int others = waits_by_another_clock;
  Flag flag;
  absl::Notification waits;
  next_wait = &waits;
  std::thread waiter([&] { EXPECT_TRUE(flag.Await(Deadline::After(absl::Hours(1)))); });
  EXPECT_TRUE(waits.WaitForNotificationWithTimeout(absl::Minutes(1)));
  next_wait = nullptr;
  flag.Set();
  waiter.join();
  EXPECT_GT(waits_by_the_monotonic_clock, before);
  EXPECT_EQ(waits_by_another_clock, others);
}
#endif

}  // namespace
}  // namespace tidemark
