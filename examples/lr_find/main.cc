// Finds a learning rate by a range test, and then trains with it. The test trains the model itself, with rates that
// grow step by step, and goes back to a copy of the state in memory: a rollback without the disk.
//
//   lr_find [RATE]
//
// With RATE it trains at once. Weights, moments, dropout and batches are those of a run without a range test, so both
// runs print the same loss to the last digit. Exit status: 0 done, 1 an error, 2 wrong usage.

#include <ATen/CPUGeneratorImpl.h>
#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/capture.h"
#include "tidemark/torch.h"

namespace {

namespace nn = torch::nn;

constexpr int64_t kTrainSteps = 200;
constexpr int64_t kBatch = 32;

// The range test of L. N. Smith, "Cyclical Learning Rates for Training Neural Networks" (2017), with the constants of
// PyTorch Lightning's lr_find: 100 rates, the loss smoothed by 0.98, an end where it is 4 times the best.
constexpr int kRates = 100;
constexpr double kRateMin = 1e-6;
constexpr double kRateMax = 10;
constexpr double kSmoothing = 0.98;
constexpr double kLossRatioMax = 4;
// Losses at the begin that the suggestion leaves out: their average is over too few.
constexpr size_t kSkipBegin = 10;

void SetLearningRate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

// One step on a random batch of y = sin(x).
double TrainStep(nn::Sequential& model, torch::optim::Adam& optimizer) {
  const torch::Tensor x = torch::rand({kBatch, 1}) * 6 - 3;
  optimizer.zero_grad();
  const torch::Tensor loss = nn::functional::mse_loss(model->forward(x), torch::sin(x));
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// The rate at which the smoothed loss falls fastest, per step of the test.
double Suggest(const std::vector<double>& rates, const std::vector<double>& losses) {
  size_t steepest = kSkipBegin;
  const auto slope = [&](size_t i) { return losses[i + 1] - losses[i - 1]; };
  for (size_t i = kSkipBegin; i + 1 < losses.size(); ++i) {
    if (slope(i) < slope(steepest)) steepest = i;
  }
  return rates[steepest];
}

// Returns a learning rate for `state`, which holds the model, its optimizer and the generator. Afterwards all of it is
// as it was before.
absl::StatusOr<double> FindLearningRate(tidemark::TorchState& state, nn::Sequential& model,
                                        torch::optim::Adam& optimizer) {
  const absl::StatusOr<std::shared_ptr<const tidemark::Snapshot>> before = tidemark::Capture(state);
  if (!before.ok()) return before.status();
  std::vector<double> rates;
  std::vector<double> losses;  // smoothed
  double average = 0;
  double best = INFINITY;
  for (int i = 0; i < kRates; ++i) {
    const double rate = kRateMin * std::pow(kRateMax / kRateMin, static_cast<double>(i) / (kRates - 1));
    SetLearningRate(optimizer, rate);
    const double loss = TrainStep(model, optimizer);
    average = kSmoothing * average + (1 - kSmoothing) * loss;
    const double smoothed = average / (1 - std::pow(kSmoothing, i + 1));
    if (!(smoothed <= kLossRatioMax * best) && i > 0) break;
    rates.push_back(rate);
    losses.push_back(smoothed);
    best = std::min(best, smoothed);
  }
  if (absl::Status back = tidemark::RestoreFrom(**before, state); !back.ok()) return back;
  if (losses.size() < kSkipBegin + 2) return absl::FailedPreconditionError("the loss grows at every learning rate");
  return Suggest(rates, losses);
}

absl::Status Train(std::optional<double> rate) {
  torch::manual_seed(1);
  nn::Sequential model(nn::Linear(1, 64), nn::Tanh(), nn::Dropout(0.05), nn::Linear(64, 1));
  torch::optim::Adam optimizer(model->parameters());
  tidemark::TorchState state;
  state.AddModule("model", *model);
  state.AddOptimizer("optimizer", optimizer, *model);
  state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
  if (!rate) {
    const absl::StatusOr<double> found = FindLearningRate(state, model, optimizer);
    if (!found.ok()) return found.status();
    rate = *found;
    fmt::print("suggested learning rate {}\n", *rate);
  }
  SetLearningRate(optimizer, *rate);
  double loss = 0;
  for (int64_t step = 0; step < kTrainSteps; ++step) {
    loss = TrainStep(model, optimizer);
    if (step == 0) fmt::print("first loss {}\n", loss);
  }
  fmt::print("last loss {}\n", loss);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  double rate = 0;
  if (argc > 2 || (argc == 2 && !(absl::SimpleAtod(argv[1], &rate) && rate > 0))) {
    fmt::print(stderr, "usage: lr_find [RATE]\n");
    return 2;
  }
  absl::Status trained;
  try {
    trained = Train(argc == 2 ? std::optional(rate) : std::nullopt);
  } catch (const std::exception& error) {
    trained = absl::InternalError(error.what());
  }
  if (trained.ok()) return 0;
  fmt::print(stderr, "lr_find: {}\n", trained.ToString());
  return 1;
}
