// Averages of a part of the state over its snapshots: exponential (EMA) or uniform (SWA), saved beside the step.
//
//   checkpointer->AddCompanion(tidemark::MakeAverage({.name = "ema", .entries = {"model.*"}, .decay = 0.999}));
//
// The entry model.layers.0.weight has the average ema.model.layers.0.weight in every step from then on. A restore
// brings the average back with the state. To evaluate it, ask for the entries "ema.model.*"; to load it into a model,
// restore with {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}.

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
  // The prefix of the entries. 1 to 256 bytes without '.'.
  std::string name = "ema";
  // Entries whose names match one of these patterns. Floating-point tensors are averaged in their own dtype (16-bit
  // ones and smaller in float32); other tensors are taken as they are in the newest snapshot; values are left out.
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
