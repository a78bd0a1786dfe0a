// ReportBook: evaluations on their way to the manifest. Those of a step whose save is in flight wait until it is
// settled.

#ifndef TIDEMARK_SNAPSHOT_REPORT_BOOK_H_
#define TIDEMARK_SNAPSHOT_REPORT_BOOK_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/future.h"
#include "tidemark/step_info.h"

namespace tidemark {

// One evaluation of a step, and whoever waits for it to be recorded.
struct Report {
  int64_t step = 0;
  Evaluation evaluation;
  std::string attempt;                      // which it is of; empty: whichever the step has
  std::shared_ptr<const StepInfo> unsaved;  // of a step that was not to be saved: what is known of it
  std::shared_ptr<Promise> recorded;        // null: nobody waits
};

// Why the report says that this step, in this attempt, is not to be trusted, "evaluator: reason"; empty: it does not.
std::string VerdictOn(const StepInfo& info, const Report& report);

// Thread-compatible. Reports are not bounded in number: each is a few hundred bytes, and none may be lost.
class ReportBook {
 public:
  // A save of the step begins. `unsaved`: what to record of one that is not to be saved; else null.
  void BeginSave(int64_t step, std::shared_ptr<const StepInfo> unsaved);

  // The oldest one of the step, `persist` or not, is settled. What waited for it can be recorded now, as of `attempt`;
  // if it failed it is returned, to be told so. `*notes` gets what was noted on the save.
  std::vector<Report> EndSave(int64_t step, bool persist, const absl::Status& status, const std::string& attempt,
                              std::vector<std::string>* notes);

  // A note for the line of the save of the step, if one is in flight.
  void NoteOnSave(int64_t step, std::string note);

  void Add(Report report);

  // Those that can be recorded, in the order in which they came.
  std::deque<Report> TakeReady();
  bool has_ready() const { return !ready_.empty(); }
  const std::deque<Report>& ready() const { return ready_; }

  // Those that wait for a save.
  std::vector<Report> TakeHeld();

 private:
  struct OpenSave {
    int64_t step = 0;
    std::shared_ptr<const StepInfo> unsaved;
    std::vector<Report> held;
    std::vector<std::string> notes;
  };
  OpenSave* Newest(int64_t step);

  std::vector<OpenSave> saves_;  // in flight, in order
  std::deque<Report> ready_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_REPORT_BOOK_H_
