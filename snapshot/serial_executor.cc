#include "snapshot/serial_executor.h"

#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "storage/io/exception_status.h"

namespace tidemark {

absl::StatusOr<std::unique_ptr<SerialExecutor>> SerialExecutor::Create() {
  std::unique_ptr<SerialExecutor> executor(new SerialExecutor());
  try {
    executor->thread_ = std::thread([raw = executor.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("start a thread: {}", error.what()));
  }
  return executor;
}

SerialExecutor::~SerialExecutor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Add(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

void SerialExecutor::Drain() { DrainUntil(Deadline::Never()); }

bool SerialExecutor::DrainUntil(const Deadline& deadline) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return tasks_.empty() && !busy_; };
  return done_.Await(&mutex_, idle, deadline);
}

void SerialExecutor::Loop() {
  for (;;) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); };
      mutex_.Await(absl::Condition(&has_work));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    storage::BestEffort(task);  // a task that throws has nothing more to do; it settles what it holds when it goes
    task = nullptr;             // destroys what the task holds before Drain can return
    absl::MutexLock lock(&mutex_);
    busy_ = false;
    done_.NotifyAll();
  }
}

}  // namespace tidemark
