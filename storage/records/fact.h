// Facts: what an entry of a store's journal says. Each fact assigns one thing, and the last fact about it counts. So a
// replay of the journal is a plain loop, and every version of the library that reads the same entries knows the same.
// The writer of a fact has read all entries before it (the journal's check), so no fact undoes what its writer had not
// seen.
//
// Pure: structs, their bytes, and what a fact makes of a step's record. No I/O.

#ifndef TIDEMARK_STORAGE_RECORDS_FACT_H_
#define TIDEMARK_STORAGE_RECORDS_FACT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/records/best_modes.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// The longest note of a pin, and reason of a request.
inline constexpr size_t kFactNoteBytesMax = 64 << 10;
inline constexpr size_t kFactAskerBytesMax = 1024;

// The facts that have `step` and `attempt` change the record of that step, and only while it is of that attempt. An
// attempt is 32 hexadecimal digits, or empty for a step that was only evaluated.

// The step has this record, whatever there was: an attempt was committed, or a save failed, or a step was evaluated
// without being saved.
struct StepFact {
  StepRecord record;
};

// The state has changed. kDeleted: as MakeDeleted. kCommitted: there is no reason any more. Any state but kCommitted:
// nothing is kept for a reason any more. A deleted step stays deleted, until a StepFact replaces it.
struct StateFact {
  int64_t step = 0;
  std::string attempt;
  StepState state = StepState::kCommitted;
  std::string reason;
};

// An evaluator has reported. Applied as ApplyEvaluation, in every state.
struct EvaluationFact {
  int64_t step = 0;
  std::string attempt;
  Evaluation evaluation;
};

// The step is pinned or not, and has these names. Unpinned: no note and no tags. Changes no deleted step.
struct PinFact {
  int64_t step = 0;
  std::string attempt;
  bool pinned = false;
  std::string note;
  std::vector<std::string> tags;  // sorted, unique
};

// Why retention keeps the step. Changes only committed steps.
struct KeptFact {
  int64_t step = 0;
  std::string attempt;
  std::string reason;
};

// The phases of the save that made the attempt. They follow the StepFact of the attempt.
struct PhasesFact {
  PhasesRecord record;
};

// The best mode of each of these metrics; other metrics keep theirs.
struct BestModesFact {
  BestModes modes;
};

// A person asks that the step be deleted. The process that holds the store deletes it, or answers why it stays. `id`
// names the request until it is answered.
struct DeletionRequestFact {
  std::string id;  // 32 hexadecimal digits
  int64_t step = 0;
  std::string attempt;  // not empty
  std::string reason;   // for the step's record
  std::string asker;    // for people: process, host and user
  absl::Time asked;     // by the asker's wall clock
};

// The request is answered: the step was deleted (`refused` is empty), or stays.
struct AnswerFact {
  std::string id;
  std::string refused;
};

// The store whose journal this is. In each entry that begins an epoch, so a journal of another store is not believed.
struct StoreFact {
  StoreId store;
};

using Fact = std::variant<StepFact, StateFact, EvaluationFact, PinFact, KeptFact, PhasesFact, BestModesFact,
                          DeletionRequestFact, AnswerFact, StoreFact>;

// kInvalidArgument: a reader would refuse the bytes, or read another fact; the message says which field is wrong. Text
// for people that is not UTF-8 is replaced.
absl::StatusOr<std::string> EncodeFact(const Fact& fact);

// kDataLoss: not such a fact; the message says what is wrong, and at what offset. kUnimplemented: of a newer version.
// Takes no more memory than a small multiple of `bytes`.
absl::StatusOr<Fact> DecodeFact(std::string_view bytes);

// The step whose record a fact may change; nullopt: none.
std::optional<int64_t> StepOfFact(const Fact& fact);

// What the fact makes of the record of StepOfFact (nullopt: there is none). Returns the record of the attempt that
// was the step's and whose files are not needed any more because of this fact.
std::optional<DeletionRecord> ApplyToStep(const Fact& fact, std::optional<StepRecord>& record);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_FACT_H_
