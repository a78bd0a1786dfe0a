#include "snapshot/housekeeping/deletion_gate.h"

#include "fmt/format.h"
#include "snapshot/closed_error.h"

namespace tidemark {

void DeletionGate::EndDeletion::operator()(DeletionGate* gate) const {
  absl::MutexLock lock(&gate->mutex_);
  gate->deleting_ = false;
}

absl::StatusOr<DeletionGate::Deletion> DeletionGate::Begin(std::string_view what) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return ClosedError();
  if (deleting_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a callback asked for it while other steps are being deleted", what));
  }
  if (pauses_ > 0) return absl::UnavailableError(fmt::format("{} while a restore is running", what));
  deleting_ = true;
  return Deletion(this);
}

void DeletionGate::Pause() {
  absl::MutexLock lock(&mutex_);
  ++pauses_;
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !deleting_; };
  mutex_.Await(absl::Condition(&idle));
}

void DeletionGate::Resume() {
  absl::MutexLock lock(&mutex_);
  --pauses_;
}

bool DeletionGate::paused() const {
  absl::MutexLock lock(&mutex_);
  return pauses_ > 0;
}

void DeletionGate::End() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
}

bool DeletionGate::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

}  // namespace tidemark
