// Averages of a part of the state over its snapshots: exponential (EMA) or uniform (SWA), saved beside the step.
//
//   checkpointer->AddCompanion(tidemark::MakeAverage({.name = "ema", .entries = {"model.*"}, .decay = 0.999}));
//
// The entry model.layers.0.weight has the average ema.model.layers.0.weight in every step from then on. A restore
// brings the average back with the state, and it goes on as if nothing had happened. To evaluate it, have a worker
// (tidemark/worker.h) or a StoreReader read the entries "ema.model.*", and load them with the prefix "ema.model"
// (tidemark/torch.h); in-process evaluators are given the snapshot without averages. To load it into a model, restore
// with {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}, which converts nothing, and so fits models of
// float32 and float64.
//
// The value ema.snapshots is how many snapshots have been taken in. A step that comes twice in a row, because its save
// failed and is repeated, counts once, as it was the first time; after a restore it is taken in anew. Memory: that of
// the averaged tensors, and twice that while a restore runs; tied tensors once.
//
// An average is one of the same tensors all along: a save whose snapshot has others under the patterns, or has them in
// another shape or dtype or tied otherwise, fails with kFailedPrecondition, which names the first. To go on with the
// new tensors, call Companion::Reset after WaitUntilCommitted. NaN and infinities are taken in like other numbers; a
// rollback brings the average of the restored step back.

#ifndef TIDEMARK_AVERAGE_H_
#define TIDEMARK_AVERAGE_H_

#include <cstdint>
#include <memory>
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
  double decay = 0.999;     // for each snapshot, not each training step. In [0, 1)
  int64_t begin_step = 0;   // snapshots before this step are not taken in
  int64_t every_steps = 1;  // only snapshots of steps divisible by it are taken in; the others repeat the average
};

// kInvalidArgument: an option out of its range.
absl::StatusOr<std::shared_ptr<Companion>> MakeAverage(AverageOptions options);

}  // namespace tidemark

#endif  // TIDEMARK_AVERAGE_H_
