#include "examples/char_lm/validation.h"

#include <torch/nn.h>

namespace char_lm {

double HeldOutLoss(const std::vector<Batch>& batches, CharTransformer& model) {
  const torch::NoGradGuard no_gradients;
  double sum = 0;
  int64_t characters = 0;
  for (const Batch& batch : batches) {
    const torch::Tensor logits = model->forward(batch.input);
    const auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    sum += torch::nn::functional::cross_entropy(logits.flatten(0, 1), batch.target.flatten(), options).item<double>();
    characters += batch.target.numel();
  }
  return sum / static_cast<double>(characters);
}

}  // namespace char_lm
