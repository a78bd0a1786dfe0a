// Makes a store as a training run leaves it: a small transformer whose loss falls, with steps that were deleted,
// pinned, distrusted and evaluated in vain. What a test of reports, and whoever looks at one in a browser, needs.
//
//   inspect_make_run DIRECTORY [SAVES [hostile]]
//
// The trainer's statistics for Prometheus are in DIRECTORY.prom.
// `hostile`: names, metadata and reasons are such as a page must not take for its own.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

constexpr int64_t kInterval = 100;  // steps between saves

constexpr const char* kHostile = "<script>alert('x')</script>]]>\"><img src=\"http://example.invalid/\" onerror=x>";

class Transformer : public State {
 public:
  explicit Transformer(bool hostile) {
    Add("model.embedding.weight", {512, 64}, 0.02F, /*frozen=*/true);
    for (int layer = 0; layer < 6; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      for (const char* name : {"query", "key", "value", "out"}) {
        Add(prefix + "attention." + name + ".weight", {64, 64}, 0.12F);
      }
      Add(prefix + "mlp.up.weight", {256, 64}, 0.12F);
      Add(prefix + "mlp.down.weight", {64, 256}, 0.06F);
      Add(prefix + "norm.weight", {64}, 0, false, 1);
    }
    Add("model.head.weight", {64, 512}, 0.05F);
    if (hostile) Add(std::string("model.") + kHostile, {64}, 1);
    const size_t parameters = tensors_.size();
    for (size_t i = 0; i < parameters; ++i) {
      if (tensors_[i]->frozen) continue;
      const std::string name = tensors_[i]->name.substr(6);
      Add("optimizer." + name + ".exp_avg", {static_cast<int64_t>(tensors_[i]->values.size())}, 0);
      Add("optimizer." + name + ".exp_avg_sq", {static_cast<int64_t>(tensors_[i]->values.size())}, 0);
    }
    AddValue("step", &step_);
  }

  // One save's worth of training at this rate; a real one has fewer numbers made up.
  void Train(double rate) {
    step_ += kInterval;
    size_t moment = 0;
    for (const auto& tensor : tensors_) {
      if (tensor->name.starts_with("optimizer.")) continue;
      if (tensor->frozen) continue;
      while (!tensors_[moment]->name.starts_with("optimizer.")) ++moment;
      std::vector<float>& average = tensors_[moment++]->values;
      std::vector<float>& square = tensors_[moment++]->values;
      for (size_t i = 0; i < tensor->values.size(); ++i) {
        const double gradient = normal_(random_) * 0.01;
        average[i] = static_cast<float>(0.5 * average[i] + 0.5 * gradient);
        square[i] = static_cast<float>(0.9 * square[i] + 0.1 * gradient * gradient);
        tensor->values[i] -= static_cast<float>(rate * average[i] / (std::sqrt(square[i]) + 1e-8));
      }
    }
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<float> values;
    bool frozen;
  };

  void Add(std::string name, std::vector<int64_t> shape, float spread, bool frozen = false, float mean = 0) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    tensors_.push_back(std::make_unique<Tensor>(Tensor{name, std::vector<float>(count), frozen}));
    for (float& value : tensors_.back()->values) value = mean + spread * static_cast<float>(normal_(random_));
    AddTensor(std::move(name), Dtype::kFloat32, std::move(shape), tensors_.back()->values.data());
  }

  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  int64_t step_ = 0;
};

double LossAt(double progress, double noise) { return 0.08 + 5.2 * std::exp(-5.5 * progress) + 0.02 * noise; }

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "inspect_make_run: %s\n", status.ToString().c_str());
  return 1;
}

int Run(const std::string& directory, int saves, bool hostile) {
  absl::Time clock = absl::FromUnixSeconds(1'790'000'000);
  CheckpointerOptions options{.directory = directory};
  options.observer = NoWarnings();
  options.metrics_file = options.directory + ".prom";
  options.retention = {
      .max_to_keep = saves / 2, .keep_best = {{"validation/loss"}}, .keep_every_steps = 10 * kInterval};
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer =
      CheckpointerOnFileSystem::OpenWithClock([&clock] { return clock; }, std::move(options));
  if (!checkpointer.ok()) return Fail(checkpointer.status());

  const int64_t spike = (saves * 7 / 10) * kInterval;  // where the run goes astray for a while
  const auto progress = [&](int64_t step) {
    return static_cast<double>(step) / static_cast<double>(saves * kInterval);
  };
  const auto added =
      (*checkpointer)
          ->AddEvaluator(
              {.name = "validation", .when_lagging = WhenLagging::kBlock},
              [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                const int64_t step = snapshot.step();
                if (step == 3 * kInterval) {
                  return absl::UnavailableError(hostile ? kHostile : "no device of the evaluation pool was free");
                }
                std::mt19937 random(static_cast<uint32_t>(step));
                const double noise = std::normal_distribution<double>()(random);
                Verdict verdict;
                verdict.metrics["loss"] = 0.05 + 1.05 * LossAt(progress(step), noise) + (step == spike ? 1.9 : 0);
                verdict.metrics["accuracy"] = 0.93 - 0.8 * std::exp(-4 * progress(step)) + 0.004 * noise;
                if (step == spike)
                  verdict.unhealthy = hostile ? kHostile : "loss 2.14 is 11 standard deviations above its mean";
                return verdict;
              });
  if (!added.ok()) return Fail(added);

  Transformer state(hostile);
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  for (int save = 1; save <= saves; ++save) {
    const int64_t step = save * kInterval;
    const double rate = (0.004 * std::exp(-3 * progress(step)) + 1e-5) * (step == spike ? 30 : 1);
    state.Train(rate);
    clock += absl::Minutes(9);
    SaveOptions with;
    with.metrics["loss"] = LossAt(progress(step), normal(random)) + (step == spike ? 1.7 : 0);
    with.metrics["learning_rate"] = rate;
    with.metrics["gradient_norm"] = step == spike ? std::numeric_limits<double>::quiet_NaN()
                                    : step == spike + kInterval
                                        ? std::numeric_limits<double>::infinity()
                                        : 0.6 + 2.5 * std::exp(-6 * progress(step)) + 0.1 * std::abs(normal(random));
    if (hostile) with.metrics[kHostile] = save;
    with.user_metadata = hostile ? R"({"note": "</pre><script>alert(1)</script>\u001b[31m"})"
                                 : R"({"run": "lm-6x64", "data": "books-v3", "seed": 7})";
    const absl::StatusOr<SaveHandle> handle = (*checkpointer)->Save(step, state, with);
    if (!handle.ok()) return Fail(handle.status());
    if (const absl::Status committed = (*checkpointer)->WaitUntilCommitted(); !committed.ok()) return Fail(committed);
    if (save == saves * 3 / 10 || save == saves * 6 / 10) {
      const absl::Status pinned = (*checkpointer)->Pin(step, hostile ? kHostile : "figure 3 of the paper");
      if (!pinned.ok()) return Fail(pinned);
    }
  }
  if (const absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return Fail(closed);
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int saves = argc > 2 ? std::atoi(argv[2]) : 80;
  return tidemark::Run(argv[1], saves, argc > 3 && std::string(argv[3]) == "hostile");
}
