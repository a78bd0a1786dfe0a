// What a housekeeper takes in from inbox/: workers' reports, and what people ask.

#include "fmt/format.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/request_inbox.h"
#include "storage/records/metric_report.h"

namespace tidemark {

absl::Status Housekeeper::CollectFromInbox() {
  inbox_warnings_.Begin();
  const storage::InboxResult result = storage::CollectInbox(host_.files, host_.store, [this](std::string_view line) {
    if (inbox_warnings_.IsNew(line)) host_.listeners.Warn(line);
  });
  Note("workers' reports cannot be read", result.error);
  if (result.rejected > 0) host_.statistics.AddRejected(static_cast<uint64_t>(result.rejected));
  for (const storage::MetricReport& report : result.recorded) {
    if (report.evaluation.outcome == Evaluation::Outcome::kFailed) {
      host_.listeners.Warn(fmt::format("evaluator '{}' of {} failed at step {}: {}", report.evaluation.evaluator,
                                       report.evaluation.worker, report.step, report.evaluation.reason));
    }
    for (Report& waiting : unrecorded_) {
      const bool same = waiting.step == report.step && waiting.evaluation.evaluator == report.evaluation.evaluator;
      waiting.told = waiting.told || same;
    }
    Recorded(report.step, report.evaluation);
  }
  return result.error;
}

absl::Status Housekeeper::CarryOutRequests() {
  storage::TakeRequestsOptions options{.claims = host_.claims, .unjudged = [this] { return UnjudgedUnlessEnded(); }};
  options.warn = [this](std::string_view line) {
    if (inbox_warnings_.IsNew(line)) host_.listeners.Warn(line);
  };
  {
    absl::MutexLock lock(&mutex_);
    options.deletions = deleting_ = pauses_ == 0 && !retention_ended_;
  }
  const storage::RequestsTaken taken = storage::TakeInRequests(host_.files, host_.store, retention_, options);
  {
    absl::MutexLock lock(&mutex_);
    deleting_ = false;
    retention_due_ = retention_due_ || !taken.deleted.empty();  // their files
    more_requests_ = taken.more && taken.error.ok();
    wake_ = wake_ || more_requests_;  // for the next round, at once
  }
  absl::Status error = taken.error;
  if (absl::IsCancelled(error) && RetentionHasEnded()) error = absl::OkStatus();
  Note("requests cannot be carried out", error);
  if (!taken.deleted.empty()) host_.statistics.AddDeleted(taken.deleted.size());
  for (const storage::StoreRequest& request : taken.deleted) host_.listeners.Deleted(request.step, request.text);
  return error;
}

}  // namespace tidemark
