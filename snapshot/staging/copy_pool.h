// A few threads that share a list of independent pieces of work with the thread that has it. For copies: memory
// bandwidth of one thread is about half of what two have (17 to 22 GB/s against 8 to 10 on a 2-core machine).

#ifndef TIDEMARK_SNAPSHOT_STAGING_COPY_POOL_H_
#define TIDEMARK_SNAPSHOT_STAGING_COPY_POOL_H_

#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// Run may be called by one thread at a time.
class CopyPool {
 public:
  // `threads` >= 1 counts the caller of Run. Where the system gives fewer, fewer do the work.
  explicit CopyPool(int threads);
  ~CopyPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(0) ... work(count - 1), each once, on these threads and the caller's; returns when all are done. Where
  // one throws, those that have not begun are left out, and the exception is thrown once the others have ended.
  void Run(size_t count, const std::function<void(size_t)>& work);

 private:
  void WorkerLoop();
  bool DoOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  const std::function<void(size_t)>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mutex_);  // by the work of this Run, the first one
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_COPY_POOL_H_
