// What is known of a step without reading any tensor: its state, its metrics, and what evaluators said of it.

#ifndef TIDEMARK_STEP_INFO_H_
#define TIDEMARK_STEP_INFO_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace tidemark {

enum class StepState {
  kCommitted,  // survives power loss, and restore finds it
  kDamaged,    // was committed; a read found wrong bytes
  kLost,       // was committed; its files are gone, or a repair has moved them to quarantine
  kFailed,     // a save that did not commit; nothing of it is kept but the reason
  kDeleted,    // was committed; retention or a person let it go. What is known of it stays
  kUnsaved,    // was only evaluated, never to be saved; its metrics are known
};

// "committed", "damaged", "lost", "failed", "deleted", "unsaved"
std::string_view StepStateName(StepState state);

// Which value of a metric is the best.
enum class BestMode { kLowest, kHighest };

// Values by name. NaN and infinities are recorded, and are never best.
using Metrics = std::map<std::string, double>;

// What one evaluator said of one step: a row of its history.
struct Evaluation {
  enum class Outcome {
    kDone,
    kSkipped,  // it was never asked, and never will be
    kFailed,   // it was asked, and returned an error or threw
  };

  std::string evaluator;
  std::string worker;  // who evaluated: "trainer", or process and host
  Outcome outcome = Outcome::kDone;
  std::string reason;     // why it is not kDone, else empty
  Metrics metrics;        // by the evaluator's own names; "loss" of "validation" is StepInfo's "validation/loss"
  std::string unhealthy;  // why the step is not to be trusted; empty: nothing was found
  absl::Time reported;    // by the worker's wall clock
  absl::Duration took;
};

// "done", "skipped", "failed"
std::string_view OutcomeName(Evaluation::Outcome outcome);

struct StepInfo {
  int64_t step = 0;
  StepState state = StepState::kCommitted;
  std::string attempt;  // 32 hexadecimal digits; names the step's folder
  // Grows with every attempt in a store: orders two attempts at the same step. Clocks play no part in it.
  uint64_t sequence = 0;
  absl::Time created;  // wall clock when Save was called
  uint32_t world_size = 1;
  // Given with the save, and, as "evaluator/name", those of the evaluations. An evaluation's value replaces one of the
  // same name.
  Metrics metrics;
  std::vector<Evaluation> evaluations;  // by evaluator; of each the last word
  std::string user_metadata = "{}";     // a JSON object
  uint64_t entry_count = 0;
  uint64_t logical_bytes = 0;  // of all entries, tied ones counted once
  uint64_t stored_bytes = 0;   // of the step's shard files
  uint64_t reused_bytes = 0;   // stored bytes that this step shares with an earlier one
  absl::Duration blocked;      // how long Save held the trainer
  std::string reason;          // why the state is not kCommitted
  bool pinned = false;         // never deleted by retention
  std::string pin_note;        // why, in the words of whoever pinned it
  // Why retention kept the committed step when it last looked at it; empty: it never did. It does not look once it has
  // no rules any more.
  std::string kept;

  // The first verdict of an evaluation that the step is not to be trusted, "evaluator: reason"; empty if there is none.
  std::string unhealthy() const;

  // Whether there is a row by this evaluator, whatever it says.
  bool evaluated_by(std::string_view evaluator) const;
};

}  // namespace tidemark

#endif  // TIDEMARK_STEP_INFO_H_
