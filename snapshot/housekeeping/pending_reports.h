// PendingReports: evaluations on their way to the journal. Those of a step whose save is in flight wait until it is
// settled.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/saves/pending_save.h"
#include "tidemark/future.h"
#include "tidemark/step_info.h"

namespace tidemark {

// One evaluation of a step, and whoever waits for it to be recorded.
struct Report {
  int64_t step = 0;
  Evaluation evaluation;
  int64_t save = 0;                          // PendingSave::number of the one it is of; 0: the step's newest
  std::string attempt;                       // which it is of; empty: whichever the step has
  std::shared_ptr<const StepInfo> unsaved;   // of a step that was not to be saved: what is known of it
  absl::Status failure = absl::OkStatus();   // of the save that it is of
  std::shared_ptr<Promise> recorded;         // null: nobody waits
  absl::Status last_try = absl::OkStatus();  // why it could not be recorded
  bool tried = false;                        // to record it, without success: it may have reached the disk all the same
  bool told = false;                         // whoever listens knows that it is recorded, whatever the last try said
};

// A row of a few hundred bytes in the place of one that cannot be recorded. What made the step unhealthy counts all the
// same.
Evaluation FailedRow(const Evaluation& evaluation, const absl::Status& why);

// Thread-safe. Reports are not bounded in number: each is a few hundred bytes, and none may be lost. They are in lists,
// because moving them from one list to another needs no memory.
class PendingReports {
 public:
  // A save begins. `unsaved`: the record of a save that is only evaluated; else null. The save is known here until it
  // is settled and its pending save has no holder.
  void BeginSave(const std::shared_ptr<const PendingSave>& pending_save, std::shared_ptr<const StepInfo> unsaved);

  // The save of this number has ended. Reports that waited for it, and later ones, can be recorded now, as reports on
  // `attempt`; also if it ended in kUnknown and has an attempt, because the step may be committed. If the save failed,
  // the reports that waited for it are returned, so that they can be given up. `*notes` gets the notes on the save.
  std::list<Report> EndSave(int64_t number, const absl::Status& status, const std::string& attempt,
                            std::vector<std::string>* notes);

  // A step that is committed already, as if its save had just been settled.
  std::shared_ptr<const PendingSave> AddCommitted(const StepInfo& committed);

  // Steps with an evaluation that is expected or was not taken yet, or with an unrecorded one that calls the step
  // unhealthy. A save is committed before it is settled here, so it does not matter whether it is.
  std::set<int64_t> Unjudged() const;

  // Why a step, in this attempt, is not to be trusted, "evaluator: reason", in what can be recorded and is not yet, be
  // it taken or not. Empty: nothing says so.
  std::string VerdictOn(const StepInfo& info) const;

  // A note for the line of the save of this number, if it is in flight.
  void NoteOnSave(int64_t number, std::string note);

  // Of the save that it names, or of the newest of its step that is in flight.
  void Add(Report report);

  // Those that can be recorded, in the order in which they came. `keep_verdicts`: VerdictOn and Unjudged know their
  // verdicts until SetUnrecorded. Throws std::bad_alloc, and then none is taken.
  std::list<Report> TakeReady(bool keep_verdicts);
  bool has_ready() const;

  // Replaces the verdicts of the reports that were taken by those of `unrecorded`. Throws std::bad_alloc without a
  // change.
  void SetUnrecorded(const std::list<Report>& unrecorded);

  // Those that wait for a save, when no other will come.
  std::list<Report> TakeHeld();

 private:
  struct KnownSave {
    int64_t step = 0;
    std::weak_ptr<const PendingSave> pending_save;
    std::shared_ptr<const StepInfo> unsaved;
    std::list<Report> held;
    std::vector<std::string> notes;
    absl::Status status;  // when it is settled: why it failed, and
    std::string attempt;
  };
  KnownSave* Find(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  KnownSave* NewestInFlight(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  KnownSave& Know(const std::shared_ptr<const PendingSave>& pending_save) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<int64_t, KnownSave> saves_ ABSL_GUARDED_BY(mutex_);  // by number
  std::set<int64_t> in_flight_ ABSL_GUARDED_BY(mutex_);         // numbers of those that are not settled
  // At this size, saves that are settled and have no pending save are forgotten.
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 1;
  std::list<Report> ready_ ABSL_GUARDED_BY(mutex_);
  std::list<Report> verdicts_ ABSL_GUARDED_BY(mutex_);  // copies of those that were taken and may not be recorded
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_
