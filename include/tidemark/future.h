// A one-shot result that arrives later. No algebra: wait, wait with a deadline, look, or be called.

#ifndef TIDEMARK_FUTURE_H_
#define TIDEMARK_FUTURE_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidemark {

class Promise;

// A handle on a result that is set exactly once. Cheap to copy; all copies share the result. Thread-safe.
// Dropping a Future cancels nothing: the work goes on and a failure is reported elsewhere (see
// AsyncCheckpointer::CheckForErrors).
class Future {
 public:
  Future();  // already resolved, kOk

  // Whether the result is there. Never blocks, and does not count as having looked at it.
  bool ready() const;

  // Blocks until the result is there and returns it.
  absl::Status Wait() const;

  // The same, but gives up at `deadline` with kDeadlineExceeded, which says nothing about the result. How long that is
  // from now is settled at once: a wall clock that is set meanwhile neither prolongs nor shortens the wait.
  absl::Status WaitUntil(absl::Time deadline) const;

  // Calls `callback` once with the result: at once on this thread if it is there, otherwise on the thread that
  // sets it, with no lock held. The callback must be quick and must neither call into the checkpointer nor wait for
  // another future. What it throws on another thread is said on standard error, and goes no further. One callback for
  // each result; a second one is a bug and CHECK-fails.
  void OnReady(std::function<void(const absl::Status&)> callback) const;

  // Whether somebody has been given the result by Wait, WaitUntil or OnReady.
  bool observed() const;

 private:
  friend class Promise;
  struct Shared;
  explicit Future(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
};

// The producing end. Destroying a Promise that was not set resolves its futures with kCancelled. Movable;
// thread-compatible.
class Promise {
 public:
  Promise();
  ~Promise();
  Promise(Promise&&) noexcept;
  Promise& operator=(Promise&&) noexcept;

  Future future() const;

  // Calls `watcher` once with the result, as OnReady would, but before whoever waits for a future's callback, and
  // without counting as having looked at it. Any number of them. Thread-safe, also beside Set.
  void Watch(std::function<void(const absl::Status&)> watcher) const;

  // Precondition: not set before.
  void Set(absl::Status status);

 private:
  std::shared_ptr<Future::Shared> shared_;
};

}  // namespace tidemark

#endif  // TIDEMARK_FUTURE_H_
