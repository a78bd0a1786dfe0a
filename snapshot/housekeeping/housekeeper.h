// Housekeeper: the one thread that does what comes after the saves. Its parts record evaluations (ReportRecorder),
// delete steps (StepDeletions), look after the store's files (StoreUpkeep) and write the statistics' file
// (MetricsFile). The trainer never waits for it, unless it asks to.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/consumers/evaluation_sink.h"
#include "snapshot/deadline.h"
#include "snapshot/housekeeping/deletion_gate.h"
#include "snapshot/housekeeping/housekeeper_host.h"
#include "snapshot/housekeeping/metrics_file.h"
#include "snapshot/housekeeping/pending_reports.h"
#include "snapshot/housekeeping/report_recorder.h"
#include "snapshot/housekeeping/retry_warnings.h"
#include "snapshot/housekeeping/step_deletions.h"
#include "snapshot/housekeeping/store_upkeep.h"
#include "snapshot/saves/save_outcome.h"
#include "snapshot/stopwatch.h"
#include "storage/store/store.h"
#include "tidemark/future.h"
#include "tidemark/retention.h"

namespace tidemark {

struct HousekeeperOptions {
  RetentionOptions retention;
  absl::Duration poll_interval = absl::Seconds(1);
  std::string metrics_file;  // empty: none
  // While something changes the file is at most so old. One that is scraped every 15 seconds need not be newer.
  absl::Duration metrics_file_interval = absl::Seconds(5);
};

// Thread-safe. It works in rounds: one when something has come, and one in every poll interval. Work
// that fails because of a full disk or a disk's error is tried again in the next round, and one warning says so until
// it works again. If a round gets no memory, its callers get kResourceExhausted, and the rest is tried again. Callbacks
// run on its thread with no lock held.
class Housekeeper final : public EvaluationSink {
 public:
  // kResourceExhausted: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Housekeeper>> Start(HousekeeperHost host, HousekeeperOptions options);

  // Stops.
  ~Housekeeper() override;

  // A save begins: what is reported of its step waits for its end. `unsaved`: what to keep of a step that is only
  // evaluated, whose rows need not wait; else null.
  void BeginSave(const std::shared_ptr<const PendingSave>& pending_save, std::shared_ptr<const StepInfo> unsaved);

  // For rows about a step that is committed already: what is given with the pending save lands on this attempt, or
  // nowhere.
  std::shared_ptr<const PendingSave> PendingSaveOf(const StepInfo& committed);

  // `outcome.save` has ended, by now for whoever asks. Adds what was noted on it meanwhile to `outcome.notes`.
  void EndSave(SaveOutcome& outcome);

  // Takes a report on a step and returns at once. Resolves when it survives power loss. kNotFound: there is no such
  // step, or its save failed, or the save that it was of has been replaced. kInvalidArgument: see ValidateEvaluation.
  // kFailedPrecondition: after RefuseReports, or the store was moved or replaced, or another process has opened it for
  // writing. The error of its last try if it could not be recorded until Stop.
  Future ReportMetrics(int64_t step, Evaluation evaluation);
  void RefuseReports();

  // The same for evaluators in this process, of whom nobody waits for an answer: what cannot be recorded is a warning.
  // What is about a save that has been replaced or has failed is dropped. A row that is too large for a report becomes
  // one of a failed evaluation.
  void Evaluated(const PendingSave& save, Evaluation evaluation) override;

  // Why a step, in this attempt, is not to be trusted, in what has been reported of it and is not recorded yet: be it
  // that its turn has not come, or that the disk refuses. Empty: nothing was said against it. Blocks for nobody.
  std::string UnrecordedVerdict(const StepInfo& info) const;

  // Blocks until there was a round for everything that had been given and for what workers have left; the first error
  // of recording it. What is reported of saves in flight is not waited for. kFailedPrecondition: on the housekeeping
  // thread (in CheckpointObserver::Evaluated and Deleted, and RetentionOptions::keep), or after Stop.
  absl::Status Flush();

  // The same, with retention and its error; kFailedPrecondition as well where retention ends before it is done, or
  // where the store was moved or replaced.
  absl::Status Tidy();

  // Whether the caller is a callback on the housekeeping thread.
  bool OnOwnThread() const { return std::this_thread::get_id() == thread_id_; }

  // The decisions that retention would take now. kFailedPrecondition: on the housekeeping thread, or after Stop.
  absl::StatusOr<std::vector<RetentionDecision>> Plan();

  // Runs `task` on the housekeeping thread and returns what it returns. kFailedPrecondition: after Stop.
  absl::Status Run(std::function<absl::Status(storage::Store&)> task);

  // See StepDeletions. kFailedPrecondition also after Stop.
  absl::Status Delete(int64_t step, const std::string& reason);
  absl::StatusOr<std::vector<int64_t>> DiscardAfter(int64_t step, const std::string& reason,
                                                    const std::function<void()>& before_files_go);
  absl::Status Tag(int64_t step, std::string_view name);
  absl::Status Untag(std::string_view name);

  // While there is one, nothing is deleted. Its construction waits for a deletion that is going on.
  class RetentionPause {
   public:
    explicit RetentionPause(Housekeeper& keeper);
    ~RetentionPause();
    RetentionPause(const RetentionPause&) = delete;
    RetentionPause& operator=(const RetentionPause&) = delete;

   private:
    Housekeeper& keeper_;
  };

  // Nothing is deleted from now on, but for a deletion that goes on: to be called before evaluators are stopped that
  // have something to say yet. Waits for nothing.
  void EndRetention();

  // Does a last round and ends the thread. Reports that could not be recorded resolve with the reason; a warning, and
  // the error that is returned, have how many they were. To be called by one thread, when no save is in flight and no
  // evaluator runs. Idempotent.
  absl::Status Stop();

 private:
  // A caller of Flush or Tidy.
  struct Request {
    bool with_retention = false;  // Tidy
    std::shared_ptr<Promise> done;
  };
  struct Task {
    std::function<absl::Status(storage::Store&)> run;
    std::shared_ptr<Promise> done;
  };
  struct Round {
    std::list<Task> tasks;
    std::list<Report> reports;
    std::list<Request> requests;
    bool with_retention = false;
    bool save_ended = false;
    bool last = false;
  };

  Housekeeper(HousekeeperHost host, HousekeeperOptions options);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Ask(bool with_retention);
  void Wake();

  // On the housekeeping thread. What throws leaves in the round what is not done.
  void Loop();
  void NextRound(Round& round);
  void Do(Round& round);
  absl::Status TakeInNews();
  // After a round that threw `why`.
  void Fail(Round& round, const absl::Status& why);
  // Leaves those with retention to a later round.
  void AskAgain(std::list<Request>& requests) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after Start.
  const HousekeeperHost host_;
  const absl::Duration poll_interval_;
  const bool is_holder_;  // else of another rank: it records what it is given, and neither deletes nor keeps the store
  std::thread::id thread_id_;

  // Thread-safe.
  PendingReports pending_reports_;
  DeletionGate gate_;

  // Owned by the housekeeping thread, but for what they say of themselves.
  RetryWarnings warnings_;
  StepDeletions deletions_;
  ReportRecorder recorder_;
  StoreUpkeep upkeep_;
  MetricsFile metrics_file_;
  Stopwatch since_poll_;
  absl::Status lost_;  // what the last round could not record; for Stop, once the thread has ended

  // Lock order: mutex_, then the mutex of pending_reports_ or gate_. After a change that makes HasWork true, the caller
  // locks mutex_ and notifies has_work_.
  mutable absl::Mutex mutex_;
  std::list<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::list<Request> requests_ ABSL_GUARDED_BY(mutex_);
  bool save_ended_ ABSL_GUARDED_BY(mutex_) = false;  // since the last round
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;        // for a round, though nothing else asks for one
  bool saving_ ABSL_GUARDED_BY(mutex_) = false;      // the first save that is to be kept has begun
  bool refuse_reports_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar has_work_;  // told by other threads of what HasWork looks at

  std::thread thread_;  // joined by the first Stop
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_
