// Housekeeper: the one thread that does what comes after the saves: records evaluations, takes in what workers have
// reported, deletes steps, and writes the statistics' file. The trainer never waits for it, unless it asks to.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
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
#include "snapshot/housekeeping/metrics_file.h"
#include "snapshot/housekeeping/pending_reports.h"
#include "snapshot/housekeeping/repeated_warnings.h"
#include "snapshot/listeners.h"
#include "snapshot/save_outcome.h"
#include "snapshot/statistics_collector.h"
#include "snapshot/stopwatch.h"
#include "storage/io/file_system.h"
#include "storage/records/fact.h"
#include "storage/retention/retention.h"
#include "storage/store/store.h"
#include "tidemark/future.h"
#include "tidemark/retention.h"
#include "tidemark/statistics.h"

namespace tidemark {

// What a checkpointer, and its housekeeper, answer once they are closed.
absl::Status ClosedError();
// Of a line that the store warns of on this thread: whether it is of a task that a housekeeper does again, and the last
// try has said it.
bool IsRepeatedWarning(std::string_view line);
// Of a report on a step whose save failed.
absl::Status NoStepFor(int64_t step, const absl::Status& failure);

struct HousekeeperOptions {
  RetentionOptions retention;
  absl::Duration poll_interval = absl::Seconds(1);
  std::string metrics_file;  // empty: none
  // While something changes the file is at most so old. One that is scraped every 15 seconds need not be newer.
  absl::Duration metrics_file_interval = absl::Seconds(5);
};

// What a housekeeper works with and for. Not owned, and used until Stop has returned.
struct HousekeeperHost {
  storage::FileSystem& files;
  storage::Store& store;
  const Listeners& listeners;
  StatisticsCollector& statistics;
  std::function<CheckpointerStatistics()> read_statistics;  // all of them
  std::function<storage::Claims()> claims;                  // this process's own, on steps that it has yet to read
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

  // See AsyncCheckpointer. kFailedPrecondition also after Stop. kDataLoss: the step's record names no attempt.
  absl::Status Delete(int64_t step, std::string reason);
  // `before_files_go` is called on the housekeeping thread once steps may be marked as deleted, before any of their
  // files is removed. Not if the discard is refused, or if there is nothing to discard. Must not throw.
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
  // Somebody waits for a round.
  struct Request {
    bool everything = false;  // with retention
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
    bool everything = false;
    bool save_ended = false;
    bool last = false;
  };

  Housekeeper(HousekeeperHost host, HousekeeperOptions options);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The steps of which more may be said than is recorded.
  std::set<int64_t> Unjudged() const;
  // The same for who is about to delete; nullopt: retention has ended.
  std::optional<std::set<int64_t>> UnjudgedUnlessEnded() const;
  bool RetentionHasEnded() const;
  void NoteVerdicts(const std::list<Report>& unrecorded) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Ask(bool everything);

  // On the housekeeping thread. What throws leaves in the round what is not done.
  void Loop();
  void NextRound(Round& round);
  void Do(Round& round);
  // After a round that threw `why`.
  void Fail(Round& round, const absl::Status& why);
  // After the last round.
  void SettleTheRest();
  // Between these two no restore begins. An error says `what` and why: retention has ended, a restore is running, or
  // the caller is a callback of another deletion. Then there is no deletion to end.
  absl::Status BeginDeletion(std::string_view what);
  void EndDeletion();
  // Takes the reports. `last`: there will be no other try.
  absl::Status RecordReports(std::list<Report>& fresh, bool last);
  void AskAgain(std::list<Request>& requests);
  // How many reports, from the first on, are of one step and of different evaluators: they are recorded in one change
  // of the step's record.
  static size_t TogetherWithFirst(const std::list<Report>& reports);
  // After a try to record them, which may have thrown: tells who waits for those that are recorded or will not be, and
  // moves the others to the end of `failed`. Returns the first error of the disk or the store.
  absl::Status Settle(std::list<Report>& together, const absl::Status& thrown, std::list<Report>& failed);
  // Each sets Report::last_try of all that it is given, ok where the report is recorded.
  void RecordOrReplace(std::list<Report>& together);
  void Record(std::span<Report* const> reports);
  void RecordOn(const StepInfo& info, std::span<Report* const> reports);
  // Why the report is not of what the record is of.
  static absl::Status CheckTarget(const Report& report, const std::optional<storage::StepRecord>& record);
  void WarnIfFailed(const Report& report);
  absl::Status TakeInNews();
  void TakeInReport(const storage::EvaluationFact& report);
  absl::Status CarryOutRequests();
  // Answers each request that it deletes or refuses; those that the bound leaves stay open.
  absl::Status Delete(const std::vector<storage::DeletionRequestFact>& requests);
  absl::Status ApplyRetention();
  void KeepStore(bool last);
  void Recorded(int64_t step, const Evaluation& evaluation);
  void GiveUp(const Report& report, absl::Status why);
  // Warns of trouble of this kind unless it has, and it has not gone since.
  void Note(std::string_view kind, const absl::Status& status);

  // Constant after Start.
  const HousekeeperHost host_;
  const HousekeeperOptions options_;
  const bool is_holder_;  // else of another rank: it records what it is given, and neither deletes nor keeps the store
  std::thread::id thread_id_;

  // Owned by the housekeeping thread.
  RepeatedWarnings retention_warnings_;
  RepeatedWarnings sweep_warnings_;
  storage::Retention retention_;
  std::list<Report> unrecorded_;  // to be tried again, those of steps that have just failed last
  absl::Status lost_;             // what the last round could not record; for Stop, once the thread has ended
  std::set<std::string, std::less<>> troubles_;
  Stopwatch since_poll_;
  bool swept_ = false;          // what earlier processes left of unfinished saves
  bool more_requests_ = false;  // the last look at them did only a part of what there was
  MetricsFile metrics_file_;

  mutable absl::Mutex mutex_;
  PendingReports pending_reports_ ABSL_GUARDED_BY(mutex_);
  std::list<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::list<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::list<Report> unrecorded_verdicts_ ABSL_GUARDED_BY(mutex_);  // of reports that are out of the book
  bool save_ended_ ABSL_GUARDED_BY(mutex_) = false;                // since the last round
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;                      // for a round, though nothing else asks for one
  bool retention_due_ ABSL_GUARDED_BY(mutex_) = false;             // something changed that it depends on
  bool saving_ ABSL_GUARDED_BY(mutex_) = false;                    // the first save that is to be kept has begun
  int64_t pauses_ ABSL_GUARDED_BY(mutex_) = 0;
  bool retention_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool deleting_ ABSL_GUARDED_BY(mutex_) = false;
  // The last pass of retention did only a part of what it had to do.
  bool retention_unfinished_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuse_reports_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar has_work_;  // told by other threads of what HasWork looks at

  std::thread thread_;  // joined by the first Stop
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_H_
