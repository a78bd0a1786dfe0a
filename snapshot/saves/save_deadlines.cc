#include "snapshot/saves/save_deadlines.h"

#include <string>
#include <utility>

#include "fmt/format.h"

namespace tidemark {

absl::StatusOr<std::unique_ptr<SaveDeadlines>> SaveDeadlines::Start(absl::Duration timeout, Tell tell) {
  std::unique_ptr<SaveDeadlines> deadlines(new SaveDeadlines(timeout, std::move(tell)));
  auto thread = SerialExecutor::Create();
  if (!thread.ok()) return thread.status();
  deadlines->thread_ = *std::move(thread);
  deadlines->thread_->Add([raw = deadlines.get()] { raw->Run(); });
  return deadlines;
}

SaveDeadlines::SaveDeadlines(absl::Duration timeout, Tell tell) : timeout_(timeout), tell_(std::move(tell)) {}

SaveDeadlines::~SaveDeadlines() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  stopped_.NotifyAll();
}

void SaveDeadlines::Watch(std::shared_ptr<const PendingSave> save, const Deadline& deadline) {
  absl::MutexLock lock(&mutex_);
  saves_.push_back({std::move(save), deadline});
}

std::shared_ptr<const PendingSave> SaveDeadlines::AwaitOverdue() {
  absl::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !saves_.empty(); };
  mutex_.Await(absl::Condition(&has_work));
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  if (stopping_ || stopped_.Await(&mutex_, stopping, saves_.front().deadline)) return nullptr;
  std::shared_ptr<const PendingSave> save = std::move(saves_.front().save);
  saves_.pop_front();
  return save;
}

void SaveDeadlines::Run() {
  while (const std::shared_ptr<const PendingSave> save = AwaitOverdue()) {
    const absl::Status status = absl::DeadlineExceededError(
        fmt::format("step {} was not committed within {} (CheckpointerOptions::save_timeout)", save->step(),
                    absl::FormatDuration(timeout_)));
    if (save->Settle(status)) tell_(save->step(), status);
  }
}

}  // namespace tidemark
