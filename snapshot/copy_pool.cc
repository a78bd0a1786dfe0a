#include "snapshot/copy_pool.h"

#include <system_error>

namespace tidemark {

CopyPool::CopyPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
  } catch (const std::system_error&) {
    // Those that there are, and the caller, do it.
  }
}

CopyPool::~CopyPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& worker : workers_) worker.join();
}

bool CopyPool::TakeOne(const std::function<void(size_t)>*& work, size_t& index) {
  if (next_ >= count_) return false;
  work = work_;
  index = next_++;
  ++running_;
  return true;
}

void CopyPool::WorkerLoop() {
  const std::function<void(size_t)>* work;
  size_t index;
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || next_ < count_; };
  for (;;) {
    mutex_.Await(absl::Condition(&has_work));
    if (stopping_) return;
    while (TakeOne(work, index)) {
      mutex_.Unlock();
      (*work)(index);
      mutex_.Lock();
      --running_;
    }
  }
}

void CopyPool::Run(size_t count, const std::function<void(size_t)>& work) {
  if (workers_.empty() || count == 1) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  const std::function<void(size_t)>* taken;
  size_t index;
  absl::MutexLock lock(&mutex_);
  work_ = &work;
  next_ = 0;
  count_ = count;
  while (TakeOne(taken, index)) {
    mutex_.Unlock();
    (*taken)(index);
    mutex_.Lock();
    --running_;
  }
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
  mutex_.Await(absl::Condition(&done));
  count_ = 0;
}

}  // namespace tidemark
