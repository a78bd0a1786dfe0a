#include "snapshot/staging/staging_progress.h"

#include <utility>

namespace tidemark {

StagingProgress::StagingProgress(std::vector<uint64_t> run_begins, uint64_t total_bytes)
    : run_begins_(std::move(run_begins)),
      total_bytes_(total_bytes),
      filled_(run_begins_.empty() ? 0 : run_begins_.front()),
      finished_(run_begins_.size(), false) {}

void StagingProgress::FinishRun(size_t run) {
  absl::MutexLock lock(&mutex_);
  finished_[run] = true;
  while (first_unfinished_ < finished_.size() && finished_[first_unfinished_]) ++first_unfinished_;
  if (first_unfinished_ < finished_.size()) filled_ = run_begins_[first_unfinished_];
}

void StagingProgress::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  status_ = status;
  if (status.ok()) filled_ = total_bytes_ + 1;
  has_ended_.NotifyAll();
}

absl::Status StagingProgress::WaitFor(uint64_t end) const {
  if (filled_ >= end) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  const auto known = [this, end]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_ || filled_ >= end; };
  mutex_.Await(absl::Condition(&known));
  return filled_ >= end ? absl::OkStatus() : status_;
}

bool StagingProgress::WaitUntilEndedBy(const Deadline& deadline) const {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_; };
  return has_ended_.Await(&mutex_, ended, deadline);
}

std::optional<absl::Status> StagingProgress::outcome() const {
  absl::MutexLock lock(&mutex_);
  return ended_ ? std::optional<absl::Status>(status_) : std::nullopt;
}

}  // namespace tidemark
