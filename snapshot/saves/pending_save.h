// PendingSave: one save that is in flight or is still being evaluated. It may outlive the memory of its snapshot.

#ifndef TIDEMARK_SNAPSHOT_SAVES_PENDING_SAVE_H_
#define TIDEMARK_SNAPSHOT_SAVES_PENDING_SAVE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "snapshot/staging/staging_progress.h"
#include "tidemark/future.h"

namespace tidemark {

// Immutable, but for the promise and the count of rows. Thread-safe. Shared by the snapshot and by every evaluator from
// when it is given the snapshot until its row has been given.
class PendingSave {
 public:
  // `progress`: of the staging. Null: it has ended well.
  PendingSave(int64_t step, bool persist, std::shared_ptr<const StagingProgress> progress = nullptr)
      : step_(step), persist_(persist), progress_(std::move(progress)) {}

  // A save that is only evaluated ends when its last holder releases it: the memory is free then, and every row has
  // been given.
  ~PendingSave() {
    if (persist_) return;
    const std::optional<absl::Status> staged = progress_ == nullptr ? absl::OkStatus() : progress_->outcome();
    if (staged) committed_->Set(*staged);
  }

  PendingSave(const PendingSave&) = delete;
  PendingSave& operator=(const PendingSave&) = delete;

  // Grows from save to save, whatever their steps, and is above 0. Unique in this process.
  int64_t number() const { return number_; }
  // The highest one so far; 0: there was no save.
  static int64_t LastNumber() { return Numbers(); }
  int64_t step() const { return step_; }

  // See SaveRequest::persist.
  bool persist() const { return persist_; }

  // An evaluator will give a row on the save, and has given it. What is saved is not known to be healthy in between.
  void ExpectRow() const { ++rows_due_; }
  void RowGiven() const { --rows_due_; }
  bool expects_rows() const { return rows_due_ > 0; }

  // Sets committed(), unless it was set. Whether this call did. Called when the snapshot survives power loss, when it
  // is known that it never will, and when its time is up. Only with persist().
  bool Settle(const absl::Status& status) const {
    if (settled_.exchange(true)) return false;
    committed_->Set(status);
    return true;
  }
  // kDeadlineExceeded: its time was up before its end.
  absl::Status CheckDeadline() const {
    if (!settled_) return absl::OkStatus();
    return absl::DeadlineExceededError("its time was up (CheckpointerOptions::save_timeout)");
  }

  // Set by Settle. Without persist() the pending save sets it itself, when it is destroyed.
  const std::shared_ptr<Promise>& committed() const { return committed_; }

 private:
  static std::atomic<int64_t>& Numbers() {
    static std::atomic<int64_t> last = 0;
    return last;
  }

  const int64_t number_ = ++Numbers();
  const int64_t step_;
  const bool persist_;
  const std::shared_ptr<const StagingProgress> progress_;
  mutable std::atomic<int64_t> rows_due_ = 0;
  mutable std::atomic<bool> settled_ = false;
  const std::shared_ptr<Promise> committed_ = std::make_shared<Promise>();
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_PENDING_SAVE_H_
