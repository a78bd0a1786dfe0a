// What the changes of a store are as facts: each function reads what is recorded and says which facts make the change
// true. No fact: nothing has to change. An error: the change is refused, and nothing may be appended.
//
// The caller appends the facts right behind the entries that the catalog knows (StoreJournal::Change), so that what was
// checked here still holds.

#ifndef TIDEMARK_STORAGE_STORE_STEP_CHANGES_H_
#define TIDEMARK_STORAGE_STORE_STEP_CHANGES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/records/fact.h"
#include "storage/records/metric_report.h"
#include "storage/records/step_catalog.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

using Facts = std::vector<Fact>;

inline constexpr size_t kStepNoteBytesMax = kFactNoteBytesMax;  // of a pin's note, and of the reason of a deletion

// `record` is committed. It takes over the pin and the tags of the record that it replaces: a step stays pinned when it
// is saved again. Of more tags than a step may have, those of the replaced record come first, with a warning.
absl::StatusOr<Facts> CommitFacts(const StepCatalog& catalog, StepRecord record, const PhasesRecord* phases,
                                  const std::function<void(std::string_view)>& warn);

// Whether removing garbage leaves every file that the record refers to, if it is committed next: a step has the file's
// attempt, or refers to it. kNotFound: it does not; the message names the attempt.
absl::Status CheckReferencesAreKept(const StepCatalog& catalog, const StepRecord& record);

// A save failed. No fact if more is known of the step: it has a record of something else than an earlier failure, that
// is, of one with a lower sequence number.
absl::StatusOr<Facts> FailureFacts(const StepCatalog& catalog, int64_t step, uint64_t sequence, absl::Time created,
                                   std::string_view why);

// A step was evaluated without being saved. No fact if the step has a record.
absl::StatusOr<Facts> UnsavedFacts(const StepCatalog& catalog, const StepInfo& info);

// Pins keep retention from deleting a step; a tag names a step and pins it. Pin keeps the step's tags and replaces its
// note. Unpin removes note and tags. Untag leaves the step pinned. Errors of all four:
// - kNotFound: the step is not committed (Unpin and Untag: it has no attempt), or has another one than `attempt`.
// - kInvalidArgument: the note is longer than kStepNoteBytesMax, or the name is no tag (CheckTag).
// - kOutOfRange: the step has kTagsPerStepMax other tags.
// - kAlreadyExists: another step has the tag. With kMove that one loses it, in the same entry.
absl::StatusOr<Facts> PinFacts(const StepCatalog& catalog, int64_t step, std::string_view note,
                               std::optional<AttemptId> attempt);
absl::StatusOr<Facts> UnpinFacts(const StepCatalog& catalog, int64_t step, std::optional<AttemptId> attempt);
enum class TakenTag { kRefuse, kMove };
absl::StatusOr<Facts> TagFacts(const StepCatalog& catalog, int64_t step, std::string_view name,
                               std::optional<AttemptId> attempt, TakenTag taken = TakenTag::kRefuse);
absl::StatusOr<Facts> UntagFacts(const StepCatalog& catalog, int64_t step, std::string_view name,
                                 std::optional<AttemptId> attempt);

// Something was found out about a committed step. kNotFound: its record is not of that attempt any more, or the step
// was deleted.
absl::StatusOr<Facts> MarkFacts(const StepCatalog& catalog, int64_t step, const std::string& attempt, StepState state,
                                std::string_view reason);

// What becomes of one report.
struct ReportOutcome {
  // kNotFound: the step has no record of that attempt. kAlreadyExists: the evaluator has reported more before
  // (IsOutranked). kInvalidArgument: as of ValidateEvaluation.
  absl::Status status;
  bool is_news = false;  // a fact says it; else the same is recorded already
};

// Evaluators have reported. `outcomes` gets one for each report, in their order. An error is the catalog's.
absl::StatusOr<Facts> ReportFacts(const StepCatalog& catalog, std::span<const EvaluationFact> reports,
                                  std::vector<ReportOutcome>& outcomes);

// Records modes that differ from those that are recorded.
absl::StatusOr<Facts> BestModesFacts(const StepCatalog& catalog, const BestModes& modes);

// What retention decided about a step.
struct StepNote {
  int64_t step = 0;
  std::string attempt;
  bool deleted = false;
  std::string reason;  // why it is deleted, or kept
};

struct NotedSteps {
  std::set<int64_t> deleted;     // their files are garbage once the facts are established
  size_t notes = 0;              // the number of notes that were handled, from the first on
  std::optional<int64_t> stays;  // of `discard_after`: it is pinned
};

// Deletes committed steps with these reasons, and notes on others why they stay; of the notes the first ones, so that
// the facts take `bytes_max` or little more. A step that is not committed any more, or of another attempt, is left as
// it is; so is one that is to be deleted and is pinned, or is the latest committed one.
//
// With `discard_after` the notes are deletions of steps behind that one, the highest first, and the latest one is
// deleted too. It ends before the first step that is pinned, and has that step in `stays`. So what is deleted is the
// end of the history, whatever happens. kFailedPrecondition: no step up to `discard_after` is committed.
absl::StatusOr<Facts> NoteFacts(const StepCatalog& catalog, std::span<const StepNote> notes,
                                std::optional<int64_t> discard_after, size_t bytes_max, NotedSteps& noted);

// Whether the step is deleted, and was of this attempt.
absl::StatusOr<bool> IsDeleted(const StepCatalog& catalog, int64_t step, const std::string& attempt);

// A person asks that the step be deleted. kNotFound: it is not committed, or has another attempt.
absl::StatusOr<Facts> DeletionRequestFacts(const StepCatalog& catalog, const DeletionRequestFact& request);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STEP_CHANGES_H_
