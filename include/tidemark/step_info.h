// The record of a step: its state, metrics and evaluations. No tensor is read for it.

#ifndef TIDEMARK_STEP_INFO_H_
#define TIDEMARK_STEP_INFO_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace tidemark {

enum class StepState {
  kCommitted,  // survives power loss, and restore finds it
  kDamaged,    // was committed; a read found wrong bytes
  kLost,       // was committed; its files are gone, or a repair has moved them to quarantine
  kFailed,     // a save that did not commit; only the reason is kept
  kDeleted,    // was committed; retention or a person deleted its files. Record and metrics stay
  kUnsaved,    // was only evaluated, not saved; its metrics are kept
};

// "committed", "damaged", "lost", "failed", "deleted", "unsaved"
std::string_view StepStateName(StepState state);

// Which value of a metric is the best.
enum class BestMode { kLowest, kHighest };

// "lowest", "highest"
std::string_view BestModeName(BestMode mode);

// The mode that the name of a metric gives. Only the part behind the last '/' or '.' counts, and in it the last of
// these words, in upper or lower case ("val_loss", "valLoss", "mIoU"):
//   lowest: bpb, bpc, brier, cer, divergence, ece, err, error, fid, kl, loss, losses, mae, mape, mse, nll, perplexity,
//           ppl, regret, rmse, wer
//   highest: acc, acc1, acc5, accuracy, auc, auroc, bleu, correct, dice, f1, iou, map, miou, ndcg, precision, psnr, r2,
//            recall, return, reward, rouge, score, ssim, success, top1, top5
// nullopt: the name has none of them.
std::optional<BestMode> BestModeOfName(std::string_view metric);

// Values by name. NaN and infinities are recorded, and are never best.
using Metrics = std::map<std::string, double>;

// The evaluation record of one evaluator and one step.
struct Evaluation {
  enum class Outcome {
    kDone,
    kSkipped,  // the evaluator was not called for this step, and will not be
    kFailed,   // the evaluator returned an error or threw
  };

  std::string evaluator;
  std::string worker;  // where it ran: "trainer", or process and host
  Outcome outcome = Outcome::kDone;
  std::string reason;     // why it is not kDone, else empty
  Metrics metrics;        // by the evaluator's own names; "loss" of "validation" is StepInfo's "validation/loss"
  std::string unhealthy;  // why the step is not to be trusted; empty: healthy
  absl::Time reported;    // by the worker's wall clock
  absl::Duration took;
};

// "done", "skipped", "failed"
std::string_view OutcomeName(Evaluation::Outcome outcome);

// A phase of a save: one thread's work or wait, without longer pauses. Not part of StepInfo, because every listing
// reads that; see StoreReader::Phases.
//
// Names, in the order in which they begin. A phase that did not happen is absent:
//   "earlier save"  waiting until an earlier save had copied the state
//   "consumers"     waiting for a blocking evaluator
//   "refresh"       finding changes of the state's entries
//   "room"          waiting for staging memory
//   "values"        copying what the next forward pass changes
//   "digest"        reading the tensors for Tuning::check_overlapped_saves
//   "copy"          copying the tensors
//   "queue"         waiting until the persister had finished earlier saves
//   "companions"    updating averages, including the wait for the copy
//   "open"          planning the shard and creating its file
//   "write"         from waiting for the first chunk to the end of the last write; contains the next three
//   "encode"        hashing and compressing, on each codec thread; `bytes` are those before compression
//   "disk wait"     the persister waits for a write, or for its turn under write_bytes_per_second_max
//   "encoder wait"  the persister waits for chunks, with no write in flight
//   "sync"          header and fdatasync
//   "commit"        syncing the folders, appending the journal's entry, then removing the replaced attempt; in a job of
//                   several ranks it contains the next one
//   "vote"          rank 0 waits until another rank has written its shard; for the 8 slowest ranks
struct SavePhase {
  std::string name;
  // The time line, on which no two phases overlap: "trainer", "staging", "persister", "codec 1" and so on. The
  // persister's waits, which are parts of its "write", are on "persister: disk" and "persister: encoders". The wait
  // for each rank is on "rank 1" and so on.
  std::string lane;
  absl::Duration begin;     // since Save was called, by the monotonic clock; whole microseconds
  absl::Duration duration;  // from begin to end
  absl::Duration busy;      // the part without short pauses
  uint64_t bytes = 0;       // handled in this phase; 0 if that has no meaning
};

struct StepInfo {
  int64_t step = 0;
  StepState state = StepState::kCommitted;
  std::string attempt;  // 32 hexadecimal digits; names the step's folder
  // Grows with every attempt in a store, and orders two attempts at the same step. Independent of clocks.
  uint64_t sequence = 0;
  absl::Time created;  // wall clock when Save was called
  uint32_t world_size = 1;
  // Metrics given with the save, and those of the evaluations as "evaluator/name". A value of an evaluation replaces a
  // value of the same name.
  Metrics metrics;
  std::vector<Evaluation> evaluations;  // the latest one of each evaluator, ordered by its name
  std::string user_metadata = "{}";     // a JSON object
  uint64_t entry_count = 0;             // of the shards: a box that is stored in tiles counts as these
  uint64_t logical_bytes = 0;           // of all entries, tied ones counted once
  uint64_t stored_bytes = 0;            // of the step's shard files
  uint64_t reused_bytes = 0;            // stored bytes that this step shares with an earlier one
  absl::Duration blocked;               // the time that Save blocked the trainer
  std::string reason;                   // why the state is not kCommitted
  bool pinned = false;                  // never deleted by retention
  std::string pin_note;                 // given with the pin
  // Names given to the step, sorted and unique: at most 64, each of 1 to 128 of the bytes A-Z a-z 0-9 . _ / -
  // A step with a tag is pinned.
  std::vector<std::string> tags;
  // Why retention kept the committed step when it last ran; empty: it has not run. Without rules it does not run.
  std::string kept;

  // The first verdict that the step is not to be trusted, "evaluator: reason"; empty if there is none.
  std::string unhealthy() const;

  // Whether there is an evaluation record of this evaluator, whatever its outcome.
  bool evaluated_by(std::string_view evaluator) const;
};

}  // namespace tidemark

#endif  // TIDEMARK_STEP_INFO_H_
