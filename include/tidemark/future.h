// A one-shot result that arrives later: wait for it, wait with a deadline, poll, or be called.

#ifndef TIDEMARK_FUTURE_H_
#define TIDEMARK_FUTURE_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidemark {

class Promise;

// A handle on a result that is set exactly once. Cheap to copy; all copies share the result. Thread-safe.
// Dropping a Future cancels nothing: the work continues, and AsyncCheckpointer::CheckForErrors reports a failure.
class Future {
 public:
  Future();  // already resolved, kOk

  // Whether the result has arrived. Never blocks. Does not mark a failure as seen.
  bool ready() const;

  // Blocks until the result has arrived, and returns it. Marks a failure as seen. kFailedPrecondition, at once, in a
  // forked child of the process that made the future, unless the result had arrived before the fork; so do WaitUntil
  // and OnReady.
  absl::Status Wait() const;

  // The same until `deadline`, then kDeadlineExceeded, which says nothing about the result. The remaining time is
  // computed once, on the monotonic clock: setting the wall clock meanwhile does not change the wait.
  absl::Status WaitUntil(absl::Time deadline) const;

  // Calls `callback` once with the result: immediately on this thread if it has arrived, otherwise on the thread that
  // sets it, with no lock held. The callback must be quick, must not call the checkpointer, and must not wait for
  // another future. An exception on another thread is printed to standard error and dropped. There is one callback for
  // each result; a second one is a bug and CHECK-fails. Marks a failure as seen.
  void OnReady(std::function<void(const absl::Status&)> callback) const;

  // Whether Wait, WaitUntil or OnReady has delivered the result.
  bool observed() const;

 private:
  friend class OpenSaves;  // for Await and Peek
  friend class Promise;
  friend class State;  // for Await
  struct Shared;
  // The result; ok while it is not there. Does not count as having looked at it.
  absl::Status Peek() const;
  // Ok: the result has arrived. Else as of WaitUntil. Does not count as having looked at the result.
  absl::Status Await(absl::Time deadline) const;
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

  // Whether a call waits for the result, or has. Thread-safe.
  bool awaited() const;

  // Calls `watcher` once with the result, as OnReady does, but before the callback, and without marking a failure as
  // seen. Any number of watchers. Thread-safe, also beside Set.
  void Watch(std::function<void(const absl::Status&)> watcher) const;

  // Precondition: not set before.
  void Set(absl::Status status);

 private:
  std::shared_ptr<Future::Shared> shared_;
};

}  // namespace tidemark

#endif  // TIDEMARK_FUTURE_H_
