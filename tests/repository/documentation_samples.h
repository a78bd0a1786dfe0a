// What the code samples of documents and public headers take as given: names that a trainer has. See
// documentation_samples.py.

#ifndef TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_SAMPLES_H_
#define TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_SAMPLES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/best_file.h"
#include "tidemark/capture.h"
#include "tidemark/export.h"
#include "tidemark/health_monitor.h"
#include "tidemark/layouts.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"

namespace tidemark_samples {

// A model in plain memory.
struct Model {
  std::vector<float> weight = std::vector<float>(512 * 128);
  double TrainStep(int64_t step) { return 1.0 / static_cast<double>(step + 1); }
};

inline double Loss(const tidemark::Snapshot& snapshot) { return static_cast<double>(snapshot.step()); }
inline double Loss(const float* weight, const std::vector<int64_t>& shape) { return shape.empty() ? 0 : *weight; }

}  // namespace tidemark_samples

// Of the function whose body is a sample. A sample may declare a variable of the same name.
#ifndef SAMPLE_PARAMETERS
#define SAMPLE_PARAMETERS                                                                                         \
  [[maybe_unused]] tidemark::AsyncCheckpointer &checkpointer, [[maybe_unused]] tidemark::State &state,            \
      [[maybe_unused]] std::vector<float>&weight, [[maybe_unused]] int64_t epoch, [[maybe_unused]] int64_t first, \
      [[maybe_unused]] int64_t steps
#endif

#endif  // TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_SAMPLES_H_
