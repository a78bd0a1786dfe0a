// An IoQueue on threads that block in File::ReadAt and File::WriteAt: for kernels without io_uring, and for any File.

#ifndef TIDEMARK_STORAGE_IO_QUEUES_THREAD_QUEUE_H_
#define TIDEMARK_STORAGE_IO_QUEUES_THREAD_QUEUE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Owned by one thread; its own threads, min(depth, 4), live as long as it does. Destruction carries out whatever was
// submitted.
class ThreadQueue final : public IoQueue {
 public:
  // note() returns `note`. kResourceExhausted: the system gives no thread. Throws std::bad_alloc if it has no memory.
  static absl::StatusOr<std::unique_ptr<IoQueue>> Create(size_t depth, std::string note = "");

  ~ThreadQueue() override;

  std::string_view name() const override { return "threads"; }
  std::string_view note() const override { return note_; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return in_flight_; }
  void Submit(const IoRequest& request) override;
  IoCompletion Wait() override;
  std::optional<IoCompletion> Poll() override;

 private:
  ThreadQueue(size_t depth, std::string note);

  void Work();
  IoCompletion TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !submitted_.empty(); }
  bool HasDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !done_.empty(); }

  // Constant after Create.
  const size_t depth_;
  const std::string note_;
  std::vector<std::thread> threads_;

  // Only the owner touches it.
  size_t in_flight_ = 0;

  absl::Mutex mutex_;
  // With room for `depth_` from the start: a thread that has finished a request cannot report a lack of memory.
  std::vector<IoRequest> submitted_ ABSL_GUARDED_BY(mutex_);
  std::vector<IoCompletion> done_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_QUEUES_THREAD_QUEUE_H_
