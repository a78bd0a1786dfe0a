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

// A part of a save: what one thread did, or waited for, without a pause that would be worth telling. Not part of
// StepInfo, which every listing of steps reads; see StoreReader::Phases.
//
// Names, in the order in which they begin, each only where it happened:
//   "earlier save"  until an earlier save had copied the state
//   "consumers"     until an evaluator that holds up the trainer had room
//   "refresh"       looking for what has changed about the state's entries
//   "room"          for staging memory
//   "values"        copying what the next forward pass changes
//   "copy"          of the tensors
//   "queue"         until the persister had done with what came before
//   "companions"    updating averages and their like; the copying that this waits for included
//   "open"          planning the shard and making its file
//   "write"         from the first chunk that is awaited to the end of the last write, with the three that follow in it
//   "encode"        hashing and compressing, on each codec thread; `bytes` are those before compression
//   "disk wait"     the persister, for a write to end, or for its turn under write_bytes_per_second_max
//   "encoder wait"  the persister, for chunks, with no write in flight
//   "sync"          header and fdatasync
//   "commit"        syncing the folders, and the manifest's batch; after that, removing what the step replaced
struct SavePhase {
  std::string name;
  // Whose time line it is on, where nothing overlaps anything else: "trainer", "staging", "persister", "codec 1" and so
  // on; the persister's waits, which are parts of its "write", are on "persister: disk" and "persister: encoders".
  std::string lane;
  absl::Duration begin;     // since Save was called, by a clock that nobody sets; in whole microseconds
  absl::Duration duration;  // to the end of it
  absl::Duration busy;      // of that; less where it stands for several parts with short pauses between them
  uint64_t bytes = 0;       // that it handled; 0 where none are
};

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
  // Names that people have given to the step, sorted, each once, at most 64 of 1 to 128 of the bytes A-Z a-z 0-9 . _ /
  // - (docs/format.md, Pins). A step that has one is pinned.
  std::vector<std::string> tags;
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
