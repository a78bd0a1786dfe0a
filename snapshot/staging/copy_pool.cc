#include "snapshot/staging/copy_pool.h"

#include <utility>

#include "storage/io/exception_status.h"

namespace tidemark {

CopyPool::CopyPool(int threads) {
  storage::BestEffort([&] {
    workers_.reserve(static_cast<size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
  });
}

CopyPool::~CopyPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& worker : workers_) worker.join();
}

// Takes the next piece of work and does it without the lock. False: no piece is left.
bool CopyPool::DoOne() {
  if (next_ >= count_) return false;
  const std::function<void(size_t)>& work = *work_;
  const size_t index = next_++;
  ++running_;
  mutex_.Unlock();
  std::exception_ptr thrown;
  try {
    work(index);
  } catch (...) {
    thrown = std::current_exception();
  }
  mutex_.Lock();
  if (thrown != nullptr) {
    if (thrown_ == nullptr) thrown_ = std::move(thrown);
    next_ = count_;
  }
  --running_;
  return true;
}

void CopyPool::WorkerLoop() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || next_ < count_; };
  for (;;) {
    mutex_.Await(absl::Condition(&has_work));
    if (stopping_) return;
    while (DoOne()) {
    }
  }
}

void CopyPool::Run(size_t count, const std::function<void(size_t)>& work) {
  if (workers_.empty() || count == 1) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::exception_ptr thrown;
  {
    absl::MutexLock lock(&mutex_);
    work_ = &work;
    next_ = 0;
    count_ = count;
    while (DoOne()) {
    }
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
    mutex_.Await(absl::Condition(&done));
    count_ = 0;
    thrown = std::exchange(thrown_, nullptr);
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace tidemark
