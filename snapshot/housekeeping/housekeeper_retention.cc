// What a housekeeper lets go of, and when it lets nothing go.

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "snapshot/housekeeping/housekeeper.h"

namespace tidemark {

Housekeeper::RetentionPause::RetentionPause(Housekeeper& keeper) : keeper_(keeper) {
  absl::MutexLock lock(&keeper_.mutex_);
  ++keeper_.pauses_;
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(keeper_.mutex_) { return !keeper_.deleting_; };
  keeper_.mutex_.Await(absl::Condition(&idle));
}

Housekeeper::RetentionPause::~RetentionPause() {
  absl::MutexLock lock(&keeper_.mutex_);
  --keeper_.pauses_;
  keeper_.wake_ = true;
  keeper_.has_work_.NotifyAll();
}

void Housekeeper::EndRetention() {
  absl::MutexLock lock(&mutex_);
  retention_ended_ = true;
}

std::set<int64_t> Housekeeper::Unjudged() const {
  absl::MutexLock lock(&mutex_);
  std::set<int64_t> steps = pending_reports_.AwaitingRows();
  for (const Report& report : unrecorded_verdicts_) steps.insert(report.step);
  return steps;
}

bool Housekeeper::RetentionHasEnded() const {
  absl::MutexLock lock(&mutex_);
  return retention_ended_;
}

std::optional<std::set<int64_t>> Housekeeper::UnjudgedUnlessEnded() const {
  std::set<int64_t> unjudged = Unjudged();
  // Asked for last: what was read before is from when all was known.
  return RetentionHasEnded() ? std::nullopt : std::make_optional(std::move(unjudged));
}

absl::Status Housekeeper::ApplyRetention() {
  retention_warnings_.Begin();
  const Stopwatch watch;
  const absl::StatusOr<std::vector<RetentionDecision>> deleted =
      retention_.Apply(host_.claims, [this] { return UnjudgedUnlessEnded(); });
  {
    absl::MutexLock lock(&mutex_);
    deleting_ = false;
    retention_unfinished_ = retention_.unfinished();
    retention_due_ = retention_due_ || retention_unfinished_ || !deleted.ok();
  }
  if (absl::IsCancelled(deleted.status()) && RetentionHasEnded()) return absl::OkStatus();
  Note("old steps cannot be deleted", deleted.status());
  if (!deleted.ok()) return deleted.status();
  if (deleted->empty()) return absl::OkStatus();
  host_.statistics.AddBackground("delete", watch.elapsed());
  host_.statistics.AddDeleted(deleted->size());
  for (const RetentionDecision& decision : *deleted) host_.listeners.Deleted(decision.step, decision.reason);
  return absl::OkStatus();
}

}  // namespace tidemark
