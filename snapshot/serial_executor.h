// One thread that does what it is given, in order.

#ifndef TIDEMARK_SNAPSHOT_SERIAL_EXECUTOR_H_
#define TIDEMARK_SNAPSHOT_SERIAL_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/deadline.h"

namespace tidemark {

// Thread-safe. The queue is not bounded here: what waits in it holds staging memory, which is.
class SerialExecutor {
 public:
  // kResourceExhausted: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<SerialExecutor>> Create();

  // Does everything that was added, then ends the thread.
  ~SerialExecutor();

  // Adds a task. An exception ends a task and is dropped, so what others wait for is settled by the destructors of what
  // the task holds.
  void Add(std::function<void()> task);

  // Blocks until nothing is waiting or running.
  void Drain();

  // The same, but gives up at `deadline`: false.
  bool DrainUntil(const Deadline& deadline);

  // Whether the caller is a task of this executor.
  bool OnOwnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  SerialExecutor() = default;
  void Loop();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar done_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SERIAL_EXECUTOR_H_
