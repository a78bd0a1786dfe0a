// StepBacklog: the steps of a store that an evaluator has yet to look at. Remembers how far it has read, so that a
// store of many steps costs no more than the new ones.

#ifndef TIDEMARK_EVAL_STEP_BACKLOG_H_
#define TIDEMARK_EVAL_STEP_BACKLOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/records/step_catalog.h"

namespace tidemark {

// Thread-compatible.
class StepBacklog {
 public:
  struct Filter {
    std::string evaluator;    // a step with a row of its name is done
    int64_t every_steps = 1;  // only steps divisible by it
    int64_t begin_step = 0;   // and from this one on
    // A row that says that it failed does not count.
    bool again_if_failed = false;

    bool IsDone(const StepInfo& info) const;
  };
  explicit StepBacklog(Filter filter) : filter_(std::move(filter)) {}

  // Takes in what the catalog has by now. New attempts are found at once; a step whose record changed without one,
  // as one that was found sound again, when all records are read, which happens every kFullReadInterval at most, and
  // never while nothing changes. `changed`: whether anything may have since the last call. `now`: a monotonic clock.
  static constexpr absl::Duration kFullReadInterval = absl::Minutes(1);
  absl::Status Update(const storage::StepCatalog& catalog, bool changed, absl::Time now);

  struct Step {
    int64_t step = 0;
    storage::AttemptId attempt;
    uint64_t sequence = 0;  // orders attempts by when they were saved
    friend bool operator==(const Step&, const Step&) = default;
  };
  // The first step after this one; nullopt, given or returned: there is none.
  std::optional<Step> FirstAfter(std::optional<int64_t> step) const;

  // It is done, by whomever.
  void Done(const Step& step);

  // It is not to be done: it was deleted, replaced or found damaged since.
  void Drop(const Step& step);

  // The highest step that is known to be done.
  std::optional<int64_t> highest_done() const { return highest_done_; }

  // The highest step of the store, whether it is asked for or not. A save that failed may be repeated, and is none.
  std::optional<int64_t> highest_seen() const { return highest_seen_; }

  // The committed step that was saved last, done or not: of the steps that the options select, and of all steps. After
  // a rollback these are not the highest ones.
  const std::optional<Step>& last_asked_for() const { return last_asked_for_; }
  const std::optional<Step>& last_saved() const { return last_saved_; }

 private:
  void TakeIn(const storage::StepRecord& record);
  absl::Status ReadAll(const storage::StepCatalog& catalog, absl::Time now);

  const Filter filter_;
  std::map<int64_t, Step> steps_;
  std::optional<int64_t> highest_done_;
  std::optional<int64_t> highest_seen_;
  std::optional<Step> last_asked_for_;
  std::optional<Step> last_saved_;

  uint64_t read_sequence_ = 0;          // no attempt up to this one is new
  int64_t read_step_ = -1;              // the highest step that was read
  bool unread_changes_ = false;         // since all records were read
  std::optional<absl::Time> all_read_;  // when that was
};

}  // namespace tidemark

#endif  // TIDEMARK_EVAL_STEP_BACKLOG_H_
