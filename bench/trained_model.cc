#include "bench/trained_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <utility>

#include "examples/char_lm/model.h"
#include "examples/char_lm/schedule.h"
#include "examples/char_lm/text.h"

namespace tidemark::bench {
namespace {

constexpr const char* kTextPath = "/usr/share/common-licenses/GPL-3";
constexpr int64_t kBatch = 8;

at::Tensor FlatCopy(const at::Tensor& tensor) { return tensor.detach().to(at::kFloat).flatten().clone(); }

}  // namespace

struct TrainedModel::Impl {
  Impl(char_lm::Text the_text, const char_lm::ModelConfig& the_config)
      : text(std::move(the_text)),
        config(the_config),
        model(config),
        optimizer(model->parameters(), torch::optim::AdamWOptions(char_lm::Schedule().peak).weight_decay(0.1)) {}

  const char_lm::Text text;
  const char_lm::ModelConfig config;
  char_lm::CharTransformer model;
  torch::optim::AdamW optimizer;
};

TrainedModel::TrainedModel() = default;
TrainedModel::~TrainedModel() = default;

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Train(int64_t steps, uint64_t seed) {
  char_lm::ModelConfig config;
  absl::StatusOr<char_lm::Text> text = char_lm::Text::Read(kTextPath, char_lm::TextPart::kTraining, config.context + 1);
  if (!text.ok()) return text.status();
  config.vocabulary = static_cast<int64_t>(text->vocabulary().size());
  at::set_num_threads(1);
  torch::manual_seed(seed);
  std::unique_ptr<TrainedModel> trained(new TrainedModel());
  trained->impl_ = std::make_unique<Impl>(*std::move(text), config);
  for (int64_t step = 0; step < steps; ++step) trained->Step();
  return trained;
}

double TrainedModel::Step() {
  const char_lm::Batch batch = impl_->text.Draw(kBatch, impl_->config.context);
  const torch::Tensor logits = impl_->model->forward(batch.input);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), batch.target.flatten());
  impl_->optimizer.zero_grad();
  loss.backward();
  impl_->optimizer.step();
  return loss.item<double>();
}

void TrainedModel::AddTo(TorchState& state) {
  state.AddModule("model", *impl_->model);
  state.AddOptimizer("optimizer", impl_->optimizer, *impl_->model);
  state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
}

TrainedValues TrainedModel::Values() const {
  TrainedValues values;
  for (const at::Tensor& parameter : impl_->model->parameters()) {
    if (parameter.dim() >= 2) values.parameters.push_back(FlatCopy(parameter));
  }
  for (const auto& [key, state] : impl_->optimizer.state()) {
    const auto& adam = static_cast<const torch::optim::AdamWParamState&>(*state);
    if (adam.exp_avg().dim() < 2) continue;
    values.first_moments.push_back(FlatCopy(adam.exp_avg()));
    values.second_moments.push_back(FlatCopy(adam.exp_avg_sq()));
  }
  return values;
}

}  // namespace tidemark::bench
