// Tells ThreadSanitizer about Abseil's locks and counted references. Debian's libraries are compiled without it, so
// that nothing in them orders anything in the sanitizer's eyes, and every use of an absl::Mutex looks like a race. Each
// wrapper says what the library itself would have said had it been instrumented, and calls it.
//
// Each function of mutex.h, notification.h, barrier.h and blocking_counter.h that locks, unlocks or waits has its
// wrapper. Where one is missing, as after a change of Debian's inline namespace,
// tests/tsan/abseil_test.cc fails.

#include <sanitizer/tsan_interface.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tests/tsan/wrap.h"

// In the sanitizer's runtime, declared in no header.
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();

namespace {

// Between the first and the last call of each of these three the sanitizer ignores the thread's accesses. That is right
// for the conditions of other threads, which Abseil evaluates wherever a mutex is unlocked.
class Locking {
 public:
  explicit Locking(absl::Mutex* mutex, unsigned flags = 0) : mutex_(mutex), flags_(flags) {
    __tsan_mutex_pre_lock(mutex_, flags_);
  }
  ~Locking() { __tsan_mutex_post_lock(mutex_, flags_, 0); }
  Locking(const Locking&) = delete;
  Locking& operator=(const Locking&) = delete;

  bool Tried(bool locked) {
    if (!locked) flags_ |= __tsan_mutex_try_lock_failed;
    return locked;
  }

 private:
  absl::Mutex* const mutex_;
  unsigned flags_;
};

class Unlocking {
 public:
  explicit Unlocking(absl::Mutex* mutex, unsigned flags = 0) : mutex_(mutex), flags_(flags) {
    __tsan_mutex_pre_unlock(mutex_, flags_);
  }
  ~Unlocking() { __tsan_mutex_post_unlock(mutex_, flags_); }
  Unlocking(const Unlocking&) = delete;
  Unlocking& operator=(const Unlocking&) = delete;

 private:
  absl::Mutex* const mutex_;
  const unsigned flags_;
};

// A wait lets go of the mutex and takes it again. Every holder is taken for a writer: a wait under a reader's lock,
// which nothing here does, is reported as the unlocking of what is not locked.
class Waiting {
 public:
  explicit Waiting(absl::Mutex* mutex) : mutex_(mutex) {
    __tsan_mutex_pre_unlock(mutex_, 0);
    __tsan_mutex_post_unlock(mutex_, 0);
    __tsan_mutex_pre_lock(mutex_, 0);
  }
  ~Waiting() { __tsan_mutex_post_lock(mutex_, 0, 0); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  absl::Mutex* const mutex_;
};

// The sanitizer looks away from what is done in here: memory that Abseil gives from thread to thread by atomics, which
// are not seen, and reads, writes or frees by functions that are.
class Ignoring {
 public:
  Ignoring() { __tsan_ignore_thread_begin(); }
  ~Ignoring() { __tsan_ignore_thread_end(); }
  Ignoring(const Ignoring&) = delete;
  Ignoring& operator=(const Ignoring&) = delete;
};

// What waits for a Notification synchronises with its second member, since HasBeenNotified() is inline and reads that.
static_assert(sizeof(absl::Notification) == 2 * sizeof(absl::Mutex));
void* NotifiedYet(const absl::Notification* notification) {
  return const_cast<char*>(reinterpret_cast<const char*>(notification)) + sizeof(absl::Mutex);
}

}  // namespace

extern "C" {

TIDEMARK_WRAP(void, _ZN4absl7debian35MutexD1Ev, absl::Mutex* mutex) {
  __tsan_mutex_destroy(mutex, __tsan_mutex_not_static);
  const Ignoring the_graph_of_all_mutexes;
  __real__ZN4absl7debian35MutexD1Ev(mutex);
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex4LockEv, absl::Mutex* mutex) {
  Locking locking(mutex);
  __real__ZN4absl7debian35Mutex4LockEv(mutex);
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex6UnlockEv, absl::Mutex* mutex) {
  Unlocking unlocking(mutex);
  __real__ZN4absl7debian35Mutex6UnlockEv(mutex);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex7TryLockEv, absl::Mutex* mutex) {
  Locking locking(mutex, __tsan_mutex_try_lock);
  return locking.Tried(__real__ZN4absl7debian35Mutex7TryLockEv(mutex));
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex10ReaderLockEv, absl::Mutex* mutex) {
  Locking locking(mutex, __tsan_mutex_read_lock);
  __real__ZN4absl7debian35Mutex10ReaderLockEv(mutex);
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex12ReaderUnlockEv, absl::Mutex* mutex) {
  Unlocking unlocking(mutex, __tsan_mutex_read_lock);
  __real__ZN4absl7debian35Mutex12ReaderUnlockEv(mutex);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex13ReaderTryLockEv, absl::Mutex* mutex) {
  Locking locking(mutex, __tsan_mutex_read_lock | __tsan_mutex_try_lock);
  return locking.Tried(__real__ZN4absl7debian35Mutex13ReaderTryLockEv(mutex));
}

TIDEMARK_WRAP(void, _ZN4absl7debian319ReleasableMutexLock7ReleaseEv, absl::ReleasableMutexLock* lock) {
  Unlocking unlocking(*reinterpret_cast<absl::Mutex**>(lock));  // its one member
  __real__ZN4absl7debian319ReleasableMutexLock7ReleaseEv(lock);
}

// The waiter evaluates its own condition here, under the lock and seen: a function that reads what the mutex does not
// guard is reported. (A condition that is a pointer to bool is read by Abseil.)

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE, absl::Mutex* mutex,
              const absl::Condition* condition) {
  if (condition->Eval()) return;
  Waiting waiting(mutex);
  __real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(mutex, condition);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE, absl::Mutex* mutex,
              const absl::Condition* condition, absl::Duration timeout) {
  if (condition->Eval()) return true;
  Waiting waiting(mutex);
  return __real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition, timeout);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, absl::Mutex* mutex,
              const absl::Condition* condition, absl::Time deadline) {
  if (condition->Eval()) return true;
  Waiting waiting(mutex);
  return __real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition, deadline);
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE, absl::Mutex* mutex,
              const absl::Condition* condition) {
  {
    Locking locking(mutex);
    __real__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE(mutex, condition);
  }
  condition->Eval();
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE, absl::Mutex* mutex,
              const absl::Condition* condition, absl::Duration timeout) {
  {
    Locking locking(mutex);
    __real__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition, timeout);
  }
  return condition->Eval();
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE, absl::Mutex* mutex,
              const absl::Condition* condition, absl::Time deadline) {
  {
    Locking locking(mutex);
    __real__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition, deadline);
  }
  return condition->Eval();
}

TIDEMARK_WRAP(void, _ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE, absl::Mutex* mutex,
              const absl::Condition* condition) {
  {
    Locking locking(mutex, __tsan_mutex_read_lock);
    __real__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE(mutex, condition);
  }
  condition->Eval();
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE,
              absl::Mutex* mutex, const absl::Condition* condition, absl::Duration timeout) {
  {
    Locking locking(mutex, __tsan_mutex_read_lock);
    __real__ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(mutex, condition, timeout);
  }
  return condition->Eval();
}

TIDEMARK_WRAP(bool, _ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE, absl::Mutex* mutex,
              const absl::Condition* condition, absl::Time deadline) {
  {
    Locking locking(mutex, __tsan_mutex_read_lock);
    __real__ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(mutex, condition, deadline);
  }
  return condition->Eval();
}

// Who signals a CondVar needs no wrapper: its mutex is what orders the two threads.

TIDEMARK_WRAP(void, _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE, absl::CondVar* changed, absl::Mutex* mutex) {
  Waiting waiting(mutex);
  __real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(changed, mutex);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE, absl::CondVar* changed,
              absl::Mutex* mutex, absl::Duration timeout) {
  Waiting waiting(mutex);
  return __real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(changed, mutex, timeout);
}

TIDEMARK_WRAP(bool, _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE, absl::CondVar* changed,
              absl::Mutex* mutex, absl::Time deadline) {
  Waiting waiting(mutex);
  return __real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(changed, mutex, deadline);
}

TIDEMARK_WRAP(void, _ZN4absl7debian312NotificationD1Ev, absl::Notification* notification) {
  {
    const Ignoring the_graph_of_all_mutexes;
    __real__ZN4absl7debian312NotificationD1Ev(notification);
  }
  // Its constructor is inline and made the sanitizer know the mutex, which is its first member.
  __tsan_mutex_destroy(notification, __tsan_mutex_not_static);
}

TIDEMARK_WRAP(void, _ZN4absl7debian312Notification6NotifyEv, absl::Notification* notification) {
  __tsan_release(NotifiedYet(notification));
  __real__ZN4absl7debian312Notification6NotifyEv(notification);
}

TIDEMARK_WRAP(void, _ZNK4absl7debian312Notification19WaitForNotificationEv, const absl::Notification* notification) {
  __real__ZNK4absl7debian312Notification19WaitForNotificationEv(notification);
  __tsan_acquire(NotifiedYet(notification));
}

TIDEMARK_WRAP(bool, _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE,
              const absl::Notification* notification, absl::Duration timeout) {
  if (!__real__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(notification, timeout)) {
    return false;
  }
  __tsan_acquire(NotifiedYet(notification));
  return true;
}

TIDEMARK_WRAP(bool, _ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE,
              const absl::Notification* notification, absl::Time deadline) {
  if (!__real__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE(notification, deadline)) {
    return false;
  }
  __tsan_acquire(NotifiedYet(notification));
  return true;
}

TIDEMARK_WRAP(bool, _ZN4absl7debian37Barrier5BlockEv, absl::Barrier* barrier) {
  // All barriers are one here: whoever comes last may delete this one before the others get to say that they passed it.
  static char every_barrier;
  __tsan_release(&every_barrier);
  const bool last = __real__ZN4absl7debian37Barrier5BlockEv(barrier);
  __tsan_acquire(&every_barrier);
  return last;
}

TIDEMARK_WRAP(bool, _ZN4absl7debian315BlockingCounter14DecrementCountEv, absl::BlockingCounter* counter) {
  __tsan_release(counter);
  return __real__ZN4absl7debian315BlockingCounter14DecrementCountEv(counter);
}

TIDEMARK_WRAP(void, _ZN4absl7debian315BlockingCounter4WaitEv, absl::BlockingCounter* counter) {
  __real__ZN4absl7debian315BlockingCounter4WaitEv(counter);
  __tsan_acquire(counter);
}

TIDEMARK_WRAP(void, _ZN4absl7debian36Status15UnrefNonInlinedEm, uintptr_t message) {
  // Whoever holds the last reference frees what the others have read before they let go of theirs.
  const Ignoring the_message;
  __real__ZN4absl7debian36Status15UnrefNonInlinedEm(message);
}

}  // extern "C"
