// What the code samples that need LibTorch take as given. See documentation_samples.py.

#ifndef TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_TORCH_SAMPLES_H_
#define TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_TORCH_SAMPLES_H_

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cstdint>

#include "tidemark/torch.h"
#include "tidemark/torch_file.h"

#define SAMPLE_PARAMETERS                                                                                      \
  [[maybe_unused]] tidemark::AsyncCheckpointer &checkpointer, [[maybe_unused]] Net &model,                     \
      [[maybe_unused]] torch::optim::AdamW &optimizer, [[maybe_unused]] torch::optim::StepLR &scheduler,       \
      [[maybe_unused]] tidemark::TorchState &state, [[maybe_unused]] Net &actor, [[maybe_unused]] Net &critic, \
      [[maybe_unused]] torch::Tensor &log_alpha, [[maybe_unused]] torch::optim::AdamW &alpha_optimizer,        \
      [[maybe_unused]] int64_t epoch

#include "tests/repository/documentation_samples.h"

namespace tidemark_samples {

using Net = torch::nn::Linear;

inline double Loss(Net& model) { return model->weight.norm().item<double>(); }

inline double TrainStep(Net& model, torch::optim::AdamW& optimizer) {
  optimizer.zero_grad();
  const torch::Tensor loss = model->forward(torch::ones({2, 8})).square().sum();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

}  // namespace tidemark_samples

#endif  // TIDEMARK_TESTS_REPOSITORY_DOCUMENTATION_TORCH_SAMPLES_H_
