// StepDeletions: the part of the housekeeper's work that deletes steps: by the rules of retention, at the requests that
// other processes leave in the journal, and at the trainer's own.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_STEP_DELETIONS_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_STEP_DELETIONS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/housekeeping/deletion_gate.h"
#include "snapshot/housekeeping/housekeeper_host.h"
#include "snapshot/housekeeping/pending_reports.h"
#include "snapshot/housekeeping/retry_warnings.h"
#include "storage/io/warn_once.h"
#include "storage/records/fact.h"
#include "storage/retention/retention.h"
#include "tidemark/retention.h"

namespace tidemark {

// Owned by the housekeeping thread, but for SetDue and HasWork. What it is given outlives it. Steps are deleted only
// while the gate is open.
class StepDeletions {
 public:
  StepDeletions(const HousekeeperHost& host, RetentionOptions rules, const PendingReports& pending, DeletionGate& gate,
                RetryWarnings& warnings);

  // Something changed that the rules depend on, so the next ApplyRules looks at them. Thread-safe.
  void SetDue() { due_ = true; }

  // Deletes the steps that people have asked to delete, and answers each request that it carries out or refuses. One
  // call deletes a bounded number.
  absl::Status CarryOutRequests();

  // Deletes what no rule keeps, and removes the files of deleted steps, if SetDue was called since, or `at_once`. One
  // call deletes a bounded number.
  absl::Status ApplyRules(bool at_once);

  // Whether a bound, a pause or a deletion's files left work for the next round.
  bool unfinished() const { return more_requests_ || retention_.unfinished() || unfinished_; }
  // Whether that can be done now. Other threads may call it while the housekeeping thread waits.
  bool HasWork() const;
  // Whether CarryOutRequests has left requests.
  bool more_requests() const { return more_requests_; }

  // The decisions that retention would take now.
  absl::StatusOr<std::vector<RetentionDecision>> Plan();

  // See AsyncCheckpointer. The files are for ApplyRules. kFailedPrecondition, kUnavailable: see DeletionGate::Begin.
  // kDataLoss: the step's record names no attempt.
  absl::Status Delete(int64_t step, const std::string& reason);
  // `before_files_go` is called once steps may be marked as deleted, before any of their files is removed. Not if the
  // discard is refused, or if there is nothing to discard. Must not throw. `*deleted` gets the steps that went, also if
  // there is an error.
  absl::Status DiscardAfter(int64_t step, const std::string& reason, const std::function<void()>& before_files_go,
                            std::vector<int64_t>* deleted);

 private:
  // PendingReports::Unjudged. nullopt: deletion has ended, so evaluators may have stopped without a report.
  std::optional<std::set<int64_t>> Unjudged() const;
  // `*more`: the bound has left some.
  absl::Status DeleteRequested(const std::vector<storage::DeletionRequestFact>& requests, bool* more);
  void TellDeleted(int64_t step, const std::string& reason);

  const HousekeeperHost& host_;
  const PendingReports& pending_;
  DeletionGate& gate_;
  RetryWarnings& warnings_;
  storage::WarnOnce retention_warnings_;
  storage::Retention retention_;
  std::atomic<bool> due_ = false;
  bool unfinished_ = false;     // the last ApplyRules met a pause, or the trainer has deleted steps since
  bool more_requests_ = false;  // the last CarryOutRequests did only a part of them
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_STEP_DELETIONS_H_
