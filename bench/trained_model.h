// The example's model, really trained: where the bench's numbers come from, and what a training step costs.

#ifndef TIDEMARK_BENCH_TRAINED_MODEL_H_
#define TIDEMARK_BENCH_TRAINED_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "tidemark/torch.h"

namespace tidemark::bench {

// Numbers to scale up from, by the part that they play in training: each a matrix, flat and fp32. Vectors, which are
// less than one part in a hundred of a model, are left out.
struct TrainedValues {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> first_moments;   // Adam's m
  std::vector<at::Tensor> second_moments;  // Adam's v

  std::array<const std::vector<at::Tensor>*, 3> kinds() const { return {&parameters, &first_moments, &second_moments}; }
};

// A model and optimizer like those of examples/char_lm with its default options, in this process. Thread-compatible;
// sets LibTorch's number of threads to the example's.
class TrainedModel {
 public:
  // Trains for `steps` steps on the example's text. kNotFound: there is no such text here.
  static absl::StatusOr<std::unique_ptr<TrainedModel>> Train(int64_t steps, uint64_t seed);
  ~TrainedModel();

  // One step of the optimizer on one random batch; returns the loss.
  double Step();

  // Adds what the example saves. The state must not outlive the model.
  void AddTo(TorchState& state);

  // Copies.
  TrainedValues Values() const;

 private:
  TrainedModel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_TRAINED_MODEL_H_
