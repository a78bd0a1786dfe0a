// States of any size with the statistics of really trained ones.

#ifndef TIDEMARK_BENCH_TRAINING_STATE_H_
#define TIDEMARK_BENCH_TRAINING_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "bench/trained_model.h"
#include "tidemark/torch.h"

namespace tidemark::bench {

// Tensors of a state of the full size: a model's some 100 with Adam's two moments.
inline constexpr size_t kTensorCount = 300;

// Thread-compatible. Owns its tensors, in host memory that has been written to.
class TrainingState {
 public:
  // `tensor_count` tensors of one size, `bytes` in all (rounded down), by turns parameters and Adam's m and v. Each is
  // made from one trained matrix, over and over from a random place on, every number times a random factor in [0.75,
  // 1.25): exponents keep their distribution, and no bytes repeat. `dtype` is fp32 or bf16. The same arguments give the
  // same numbers. Precondition: every kind of `values` has a matrix.
  TrainingState(const TrainedValues& values, at::ScalarType dtype, uint64_t bytes, size_t tensor_count, uint64_t seed);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  uint64_t bytes() const { return bytes_; }
  at::ScalarType dtype() const { return dtype_; }

  std::span<const std::byte> bytes_of(size_t tensor) const;

  // Adds every tensor, named as a module's parameters and its optimizer's state are.
  void AddTo(TorchState& state) const;

  // Makes other numbers of every `stride`th tensor, beginning with the first.
  void Change(size_t stride);

  // The least that any code can take which stores signs and mantissas as they are and gives each exponent of a tensor
  // as many bits as its frequency in that tensor asks for, in bytes.
  double OrderZeroBoundBytes() const;

 private:
  const at::ScalarType dtype_;
  std::vector<at::Tensor> tensors_;
  uint64_t bytes_ = 0;
};

// Adds `count` tensors of random fp32, which are made in less time than a TrainingState; `bytes` in all, rounded down.
void AddRandomTensors(TorchState& state, uint64_t bytes, size_t count);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_TRAINING_STATE_H_
