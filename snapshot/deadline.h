// Waits that end in time. Deadline is a time of the monotonic clock, MonotonicCondVar waits until one, and
// AwaitUnlessCancelled waits in a public call that the caller may cancel.
//
// absl::Mutex and absl::Notification measure their timeouts by the wall clock: Debian 12's Abseil (20220623) turns each
// of them into a time of day and gives that to futex(FUTEX_CLOCK_REALTIME). A clock that is set back by an hour
// meanwhile would prolong the wait by an hour, however short it was to be. So what must end in time waits here.

#ifndef TIDEMARK_SNAPSHOT_DEADLINE_H_
#define TIDEMARK_SNAPSHOT_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidemark {

// Immutable.
class Deadline {
 public:
  static Deadline Never() { return Deadline(Clock::time_point::max()); }
  // Passed by now, but for what is there already.
  static Deadline Passed() { return Deadline(Clock::time_point::min()); }
  // So long from now. More than a century is never, and less than nothing has passed.
  static Deadline After(absl::Duration time) {
    if (time > absl::Hours(24 * 365 * 100)) return Never();
    if (time <= absl::ZeroDuration()) return Passed();
    return Deadline(Clock::now() + absl::ToChronoNanoseconds(time));
  }
  // At a time of the wall clock as that is set now; `now` is what it says.
  static Deadline At(absl::Time time, absl::Time now = absl::Now()) { return After(time - now); }

  // So much before it, but not before now.
  Deadline Before(absl::Duration time) const { return After(left() - time); }

  // Infinite: never. 0: it has passed.
  absl::Duration left() const {
    if (at_ == Clock::time_point::max()) return absl::InfiniteDuration();
    const Clock::time_point now = Clock::now();
    return now >= at_ ? absl::ZeroDuration() : absl::FromChrono(at_ - now);
  }
  // For functions that take a time of the wall clock, as that is set now, and convert it back at once.
  absl::Time as_time() const { return absl::Now() + left(); }

 private:
  friend class MonotonicCondVar;
  using Clock = std::chrono::steady_clock;
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// Thread-safe. Whoever makes a condition true that somebody may wait for must call NotifyAll, which Abseil's own
// conditions do not ask for.
class MonotonicCondVar {
 public:
  void NotifyAll() { changed_.notify_all(); }

  // Blocks until `holds`, which is called with `mutex` held, or until the deadline; then whether it holds. It is called
  // once at least.
  template <typename Condition>
  bool Await(absl::Mutex* mutex, const Condition& holds, const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (holds()) return true;
    if (deadline.left() <= absl::ZeroDuration()) return false;
    if (deadline.left() == absl::InfiniteDuration()) {
      mutex->Await(absl::Condition(&holds));
      return true;
    }
    Lockable lockable(mutex);
    return changed_.wait_until(lockable, deadline.at_, holds);
  }

 private:
  // An absl::Mutex by the names that the standard library calls.
  class Lockable {
   public:
    explicit Lockable(absl::Mutex* mutex) : mutex_(mutex) {}
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_->Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_->Unlock(); }

   private:
    absl::Mutex* const mutex_;
  };
  // With a time point of steady_clock both standard libraries wait by CLOCK_MONOTONIC.
  std::condition_variable_any changed_;
};

enum class WaitEnd { kDone, kDeadline, kCancelled };

// How often a wait asks whether it is cancelled. A user who presses Ctrl-C notices no delay.
inline constexpr absl::Duration kCancellationInterval = absl::Milliseconds(50);

// wait(until) returns whether what is waited for has come by then. It is called with a time within the deadline again
// and again, and `cancelled` between two calls; null: the wait is never cancelled.
template <typename Wait>
WaitEnd AwaitUnlessCancelled(const std::function<bool()>& cancelled, const Deadline& deadline, const Wait& wait) {
  for (;;) {
    const bool is_last = cancelled == nullptr || deadline.left() <= kCancellationInterval;
    if (wait(is_last ? deadline : Deadline::After(kCancellationInterval))) return WaitEnd::kDone;
    if (is_last) return WaitEnd::kDeadline;
    if (cancelled()) return WaitEnd::kCancelled;
  }
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_DEADLINE_H_
