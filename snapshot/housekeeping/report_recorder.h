// ReportRecorder: the part of the housekeeper's work that records evaluations in the journal, or says why there is no
// record.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPORT_RECORDER_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPORT_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "snapshot/housekeeping/housekeeper_host.h"
#include "snapshot/housekeeping/pending_reports.h"
#include "snapshot/housekeeping/retry_warnings.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Of a report on a step whose save failed.
absl::Status NoStepFor(int64_t step, const absl::Status& failure);

// Owned by the housekeeping thread, but for GiveUp. What it is given outlives it. A report that cannot be recorded
// because of the disk is kept, and recorded in a later call.
class ReportRecorder {
 public:
  // `recorded`: called for each evaluation that is news to this process, before the listeners hear of it.
  ReportRecorder(const HousekeeperHost& host, PendingReports& pending, RetryWarnings& warnings,
                 std::function<void()> recorded);

  // Records the reports that earlier calls have kept, then `fresh`. Returns the first error of the disk or the store.
  // After such an error the other reports are kept without a try, unless this is the `last` call.
  absl::Status Record(std::list<Report>& fresh, bool last);

  // Keeps the reports for the next Record. `why` becomes their last error.
  void KeepForNextTry(std::list<Report>& reports, const absl::Status& why);

  // Whether some are kept.
  bool has_unrecorded() const { return !unrecorded_.empty(); }

  // The journal has this evaluation: from another process, or from a try of this one that returned an error.
  void TakeIn(const storage::EvaluationFact& report);

  // After the last Record: resolves the futures of all reports that are left, and warns. If some could not be recorded,
  // the error says how many and why.
  absl::Status RejectUnrecorded();

  // Resolves the report's future with `why`; without a future, warns. Thread-safe.
  void GiveUp(const Report& report, absl::Status why) const;

 private:
  // How many reports, from the first on, are of one step and of different evaluators: they are recorded in one change
  // of the step's record.
  static size_t TogetherWithFirst(const std::list<Report>& reports);
  // After a try to record them, which may have thrown: tells who waits for those that are recorded or will not be, and
  // moves the others to the end of `failed`. Returns the first error of the disk or the store.
  absl::Status Settle(std::list<Report>& together, const absl::Status& thrown, std::list<Report>& failed);
  // Each sets Report::last_try of all that it is given, ok where the report is recorded.
  void RecordOrReplace(std::list<Report>& together);
  void RecordTogether(std::span<Report* const> reports);
  void RecordOn(const StepInfo& info, std::span<Report* const> reports);
  // Why the report is not of what the record is of.
  static absl::Status CheckTarget(const Report& report, const std::optional<storage::StepRecord>& record);
  void WarnIfFailed(const Report& report) const;
  void Recorded(int64_t step, const Evaluation& evaluation);

  const HousekeeperHost& host_;
  PendingReports& pending_;
  RetryWarnings& warnings_;
  const std::function<void()> recorded_;
  std::list<Report> unrecorded_;  // to be tried again, those of steps that have just failed last
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPORT_RECORDER_H_
