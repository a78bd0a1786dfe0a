// Averages of a part of the state over its snapshots: exponential (EMA) or uniform (SWA), saved beside the step.
//
//   auto average = tidemark::MakeAverage({.name = "ema", .entries = {"model.*"}, .decay = 0.999});
//   if (!average.ok()) return average.status();
//   absl::Status added = checkpointer.AddCompanion(*average);
//
// The entry model.layers.0.weight has the average ema.model.layers.0.weight in every step from then on. A restore
// brings the average back with the state, and it goes on as if nothing had happened. To evaluate it, have a worker
// (tidemark/worker.h) or a StoreReader read the entries "ema.model.*", and load them with the prefix "ema.model"
// (tidemark/torch.h); in-process evaluators are given the snapshot without averages. To load it into a model, restore
// with {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}. That converts nothing, so it fits models of float32
// and float64. For others see TorchState::set_converts_dtypes.
//
// The value ema.snapshots is the number of snapshots in the average. If a save failed and is repeated, its step comes
// twice in a row; it counts once, as it was the first time. After a restore it counts anew. Memory: that of the
// averaged tensors, and twice that while a restore runs. Tied tensors count once.
//
// Every snapshot counts, also that of a PreemptionGuard's last save, which an uninterrupted run does not make. A run
// that was preempted and resumed then has another average than an uninterrupted run. The state itself is the same. To
// have the same average, set `every_steps` to the interval of the regular saves.
//
// The tensors under the patterns must stay the same. If a snapshot has others, or has one with another shape, dtype or
// tie, its save fails with kFailedPrecondition, which names the first such tensor. To go on with the new tensors, call
// Companion::Reset after WaitUntilCommitted. NaN and infinities are averaged like other numbers. A rollback brings the
// average of the restored step back.

#ifndef TIDEMARK_AVERAGE_H_
#define TIDEMARK_AVERAGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/companion.h"

namespace tidemark {

struct AverageOptions {
  // The prefix of the entries. 1 to 256 bytes without '.', '*', '?' and line ends.
  std::string name = "ema";
  // Entries whose names match one of these patterns ('*' any run of characters, '?' one), each of which must match
  // something. Floating-point and complex tensors are averaged in their own dtype, those of 16 bits and fewer in
  // float32 (complex64); other tensors, float8_e8m0fnu and float4_e2m1fn_x2 among them, are taken as they are in the
  // newest snapshot; values are left out.
  std::vector<std::string> entries = {"model.*"};
  enum class Kind {
    kExponential,  // average += (1 - decay) * (new - average); the first snapshot is the first average
    kUniform,      // the mean of all snapshots since `begin_step`
  };
  Kind kind = Kind::kExponential;
  double decay = 0.999;    // for each snapshot, not each training step. In [0, 1)
  int64_t begin_step = 0;  // snapshots before this step are not taken in
  // Only snapshots of steps divisible by it are taken in; a save of another step repeats the average.
  int64_t every_steps = 1;

  // A period that adapts to the noise of a metric: noisy training is averaged more often, calm training less often. A
  // snapshot is taken in at the first step that is a period or more behind the last one taken in.
  //
  //   d      the differences of successive values x of the metric, over the last `window` values
  //   noise  sqrt(mean(d * d) / 2) / abs(mean(x))
  //   period every_steps_max - (every_steps_max - every_steps_min) * min(1, noise / noise_max), rounded down
  //
  // Half the mean square of successive differences is the variance of values that do not depend on each other, and a
  // slow trend adds little to it (J. von Neumann et al., "The Mean Square Successive Difference", 1941). So a loss that
  // falls smoothly is calm. The period is every_steps_min while fewer than 2 values are known, or if the mean is 0.
  struct Adaptive {
    // Of the metrics that are given with the save. A snapshot without it, or whose value is not finite, adds no value.
    std::string metric = "loss";
    int64_t window = 50;           // 2 to 65536. The default is our choice: its noise is then known to about 10 %
    int64_t every_steps_min = 1;   // 1 or more
    int64_t every_steps_max = 10;  // every_steps_min or more. The default is our choice
    // The noise from which on the period is every_steps_min. More than 0. The default, a tenth of the metric's value,
    // is our choice; `checkpoint-inspect history --plot` shows the noise of a run.
    double noise_max = 0.1;
  };
  // nullopt: a period of 1 step. The values are saved with the average as the entry ema.adaptive, so that a resumed run
  // takes in the same snapshots. After a restore of a step without that entry, or with another window, they begin anew.
  std::optional<Adaptive> adaptive = {};
};

// kInvalidArgument: an option out of its range.
absl::StatusOr<std::shared_ptr<Companion>> MakeAverage(AverageOptions options);

}  // namespace tidemark

#endif  // TIDEMARK_AVERAGE_H_
