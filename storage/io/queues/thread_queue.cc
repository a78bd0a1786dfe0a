#include "storage/io/queues/thread_queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/exception_status.h"

namespace tidemark::storage {
namespace {

// Blocking calls of 1 MiB keep a disk busy from this many threads on; more only take turns.
constexpr size_t kThreadsMax = 4;

}  // namespace

ThreadQueue::ThreadQueue(size_t depth, std::string note) : depth_(depth), note_(std::move(note)) {
  submitted_.reserve(depth);
  done_.reserve(depth);
}

absl::StatusOr<std::unique_ptr<IoQueue>> ThreadQueue::Create(size_t depth, std::string note) {
  std::unique_ptr<ThreadQueue> queue(new ThreadQueue(depth, std::move(note)));
  const size_t count = std::min(depth, kThreadsMax);
  try {
    for (size_t i = 0; i < count; ++i) queue->threads_.emplace_back([raw = queue.get()] { raw->Work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        fmt::format("start I/O thread {} of {}: {}", queue->threads_.size() + 1, count, error.what()));
  }
  return queue;
}

ThreadQueue::~ThreadQueue() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadQueue::Submit(const IoRequest& request) {
  Check(in_flight_ < depth_, "Submit to an I/O queue that is full");
  ++in_flight_;
  absl::MutexLock lock(&mutex_);
  submitted_.push_back(request);
}

IoCompletion ThreadQueue::Wait() {
  Check(in_flight_ > 0, "Wait on an I/O queue with nothing in flight");
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &ThreadQueue::HasDone));
  return TakeDone();
}

std::optional<IoCompletion> ThreadQueue::Poll() {
  absl::MutexLock lock(&mutex_);
  if (done_.empty()) return std::nullopt;
  return TakeDone();
}

IoCompletion ThreadQueue::TakeDone() {
  --in_flight_;
  IoCompletion completion = std::move(done_.front());
  done_.erase(done_.begin());
  return completion;
}

void ThreadQueue::Work() {
  for (;;) {
    IoRequest request;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ThreadQueue::HasWork));
      if (submitted_.empty()) return;
      request = submitted_.front();
      submitted_.erase(submitted_.begin());
    }
    absl::Status status;
    try {
      status = request.kind == IoRequest::Kind::kRead
                   ? request.file->ReadAt(request.offset, {request.data, request.size})
                   : request.file->WriteAt(request.offset, {request.data, request.size});
    } catch (...) {
      status = ExceptionStatus("an I/O thread");
    }
    absl::MutexLock lock(&mutex_);
    done_.push_back({.tag = request.tag, .status = std::move(status)});
  }
}

}  // namespace tidemark::storage
