// The options and the report of a restore, for AsyncCheckpointer and StoreReader.

#ifndef TIDEMARK_RESTORE_OPTIONS_H_
#define TIDEMARK_RESTORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark {

// How far the tensors of a step have been read. Bytes that several tensors share count once.
struct RestoreProgress {
  int64_t step = 0;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};

struct RestoreOptions {
  // Passes over steps that an evaluator has called unhealthy, recorded or not. AsyncCheckpointer::RestoreLatest first
  // waits for evaluations in flight, for at most evaluations_timeout. It then warns of evaluations that have not ended;
  // their verdicts do not count.
  bool healthy_only = false;
  absl::Duration evaluations_timeout = absl::Minutes(5);

  // Restores only steps for which this returns true. Null: any committed step. Called on the restoring thread, while
  // retention is paused: it must not call Tidy, which would wait for it. An exception becomes kInternal with its
  // message, or kDataLoss if tensors already hold parts of a damaged step.
  std::function<bool(const StepInfo&)> accept = {};

  // Partial restore: only entries of the state whose names match one of these patterns, where '*' stands for any run of
  // characters and '?' for one. The other entries keep their values. A pattern without a match among the restored
  // entries is kInvalidArgument. A companion is restored if every one of its entries matches; else it does not change.
  //
  // Empty: all entries. Everything in the checkpoint must then be wanted, except entries of companions.
  std::vector<std::string> only = {};

  // {name in the checkpoint, name in the state}. A rule applies to names that are equal to the first, or continue it
  // with a dot: {"model.encoder", "model.backbone"} maps model.encoder.weight to model.backbone.weight. The first rule
  // that applies counts. A rule that applies to no entry of the checkpoint is kInvalidArgument.
  //
  // A renamed entry takes the place of an entry that has the new name already. That entry is then unexpected. So an
  // average is loaded into the model by {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}. A companion keeps
  // its entries under their own names, unless the new names are under its prefix too.
  std::vector<std::pair<std::string, std::string>> renames = {};

  bool allow_missing = false;     // entries of the state that the checkpoint lacks keep their values
  bool allow_unexpected = false;  // entries of the checkpoint that the state lacks are left out

  // Called on the restoring thread when the first tensors have been read, then at most every 100 ms, and when all have
  // been; not at all if the state has none. A damaged step may be followed by another one, which begins anew. An exception ends the restore with
  // kInternal and its message; tensors may hold parts of the step then. May be null.
  std::function<void(const RestoreProgress&)> progress = {};
};

struct RestoreReport {
  int64_t step = 0;
  StepInfo info;
  // Steps that would have been taken before this one, in that order, each with the reason why it was not.
  std::vector<std::pair<int64_t, std::string>> passed_over;
  std::vector<std::string> missing;  // entries of the state that kept their values
  // Entries of the checkpoint that were not restored, including those of companions.
  std::vector<std::string> unexpected;
  uint64_t bytes = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_RESTORE_OPTIONS_H_
