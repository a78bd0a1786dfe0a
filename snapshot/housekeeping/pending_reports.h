// PendingReports: evaluations on their way to the journal. Those of a step whose save is in flight wait until it is
// settled.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/pending_save.h"
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

// Why the report says that this step, in this attempt, is not to be trusted, "evaluator: reason"; empty: it does not.
std::string VerdictOn(const StepInfo& info, const Report& report);

// A row of a few hundred bytes in the place of one that cannot be recorded. What made the step unhealthy counts all the
// same.
Evaluation FailedRow(const Evaluation& evaluation, const absl::Status& why);

// Thread-compatible. Reports are not bounded in number: each is a few hundred bytes, and none may be lost. They are in
// lists, because moving them from one list to another needs no memory.
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

  // The steps of which more will be said than is recorded: an evaluator has yet to give its row on a save, be it
  // settled or not (it is committed before it is settled here), or a row of it waits for its save or has not been
  // taken.
  std::set<int64_t> AwaitingRows() const;

  // A note for the line of the save of this number, if it is in flight.
  void NoteOnSave(int64_t number, std::string note);

  // Of the save that it names, or of the newest of its step that is in flight.
  void Add(Report report);

  // Those that can be recorded, in the order in which they came.
  std::list<Report> TakeReady();
  bool has_ready() const { return !ready_.empty(); }
  const std::list<Report>& ready() const { return ready_; }

  // Those that wait for a save.
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
  KnownSave* Find(int64_t number);
  KnownSave* NewestInFlight(int64_t step);
  KnownSave& Know(const std::shared_ptr<const PendingSave>& pending_save);

  std::map<int64_t, KnownSave> saves_;  // by number
  std::set<int64_t> in_flight_;         // numbers of those that are not settled
  size_t forget_at_ = 1;                // at this size, saves that are settled and have no pending save are forgotten
  std::list<Report> ready_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_PENDING_REPORTS_H_
