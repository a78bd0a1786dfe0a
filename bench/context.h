// What the rows share: where they work, how large things are, and the data.

#ifndef TIDEMARK_BENCH_CONTEXT_H_
#define TIDEMARK_BENCH_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "bench/measure.h"
#include "bench/progress.h"
#include "bench/row.h"
#include "bench/trained_model.h"
#include "bench/training_state.h"

namespace tidemark::bench {

struct Settings {
  int pairs = 5;
  uint64_t size_mib = 1024;  // that stand for a GiB: every size and count of a row shrinks or grows with it
  uint64_t seed = 20260101;
};

// Wall and CPU time of a save, which two rows look at.
struct SaveCost {
  double wall_seconds = 0;
  double cpu_seconds = 0;
};

// Thread-compatible.
class Context {
 public:
  // `folder` and `progress` are not owned.
  Context(Settings settings, std::string folder, Progress& progress);

  const Settings& settings() const { return settings_; }
  const std::string& folder() const { return folder_; }
  Progress& progress() { return progress_; }

  // A path in the folder at which there is nothing yet.
  std::string NewPath(std::string_view name);

  uint64_t Bytes(double gib) const;
  // As many things as `full` at the full size, at least one.
  size_t Count(size_t full) const;

  // Trained once, when it is first asked for.
  absl::StatusOr<TrainedModel*> Model();

  // A state of 300 tensors scaled up from the model's values. Kept until another one is asked for.
  absl::StatusOr<TrainingState*> State(at::ScalarType dtype, uint64_t bytes);

  // Why fio cannot be used, or nothing; tried once.
  const std::string& FioProblem();

  // `times` as many pairs as were asked for, of whatever costs little.
  absl::StatusOr<Measurement> Compare(Unit unit, const std::function<absl::StatusOr<double>()>& numerator,
                                      const std::function<absl::StatusOr<double>()>& denominator, int times = 1);
  template <typename T>
  absl::StatusOr<Pairs<T>> MeasurePairs(const std::function<absl::StatusOr<T>()>& numerator,
                                        const std::function<absl::StatusOr<T>()>& denominator, int times = 1) {
    const int pairs = settings_.pairs * times;
    return bench::MeasurePairs<T>(
        pairs, [&](int pair) { progress_.Pair(pair, pairs); }, numerator, denominator);
  }

 private:
  const Settings settings_;
  const std::string folder_;
  Progress& progress_;
  int paths_ = 0;
  std::unique_ptr<TrainedModel> model_;
  std::optional<TrainedValues> values_;
  std::unique_ptr<TrainingState> state_;
  uint64_t state_bytes_asked_ = 0;
  std::optional<std::string> fio_problem_;
};

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_CONTEXT_H_
