// SaveDeadlines: settles saves that are not committed in time (CheckpointerOptions::save_timeout).

#ifndef TIDEMARK_SNAPSHOT_SAVES_SAVE_DEADLINES_H_
#define TIDEMARK_SNAPSHOT_SAVES_SAVE_DEADLINES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/deadline.h"
#include "snapshot/saves/pending_save.h"
#include "snapshot/serial_executor.h"

namespace tidemark {

// Has a thread of its own, because every other one may be standing still with the disk. Thread-safe.
class SaveDeadlines {
 public:
  // On the thread, after the save was settled: no future waits for it.
  using Tell = std::function<void(int64_t step, const absl::Status& status)>;

  // `timeout`: of every save. kResourceExhausted: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<SaveDeadlines>> Start(absl::Duration timeout, Tell tell);

  // Settles no more saves, and ends the thread.
  ~SaveDeadlines();

  // Settles the save with kDeadlineExceeded when `deadline` has passed, unless it is settled by then. Deadlines do not
  // go back from call to call.
  void Watch(std::shared_ptr<const PendingSave> save, const Deadline& deadline);

  bool OnOwnThread() const { return thread_->OnOwnThread(); }

 private:
  struct Watched {
    std::shared_ptr<const PendingSave> save;
    Deadline deadline;
  };

  SaveDeadlines(absl::Duration timeout, Tell tell);
  void Run();
  // The first save whose time has passed. Null: the thread is to end.
  std::shared_ptr<const PendingSave> AwaitOverdue();

  const absl::Duration timeout_;
  const Tell tell_;
  absl::Mutex mutex_;
  MonotonicCondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Watched> saves_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SerialExecutor> thread_;  // last: it ends before the rest goes
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_SAVE_DEADLINES_H_
