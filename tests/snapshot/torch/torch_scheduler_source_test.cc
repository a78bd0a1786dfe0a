// Learning rate schedulers in a TorchState.

#include <cstring>
#include <functional>
#include <limits>

#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;

constexpr int kSaveAt = 4;
constexpr int kSteps = 13;

// One parameter, its optimizer, and what changes the rate.
struct RateTrainer {
  at::Tensor weight = torch::ones({1}, at::TensorOptions().requires_grad(true));
  torch::optim::SGD optimizer{{weight}, torch::optim::SGDOptions(0.1)};
  TorchState state;

  RateTrainer() {
    state.AddTensor("weight", weight);
    state.AddOptimizer("optimizer", optimizer);
  }
  double rate() { return optimizer.param_groups()[0].options().get_lr(); }
};

MemoryCheckpoint MustSaveRates(State& state) {
  auto saved = SaveToMemory(state);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return saved.ok() ? *std::move(saved) : MemoryCheckpoint();
}

// The rates of the steps after kSaveAt: of an uninterrupted run, and of one resumed from what that run saved.
template <typename Scheduler>
void ExpectTheSameRates(const std::function<Scheduler(torch::optim::Optimizer&)>& make,
                        const std::function<void(Scheduler&, int)>& step, int distinct_min) {
  RateTrainer whole;
  Scheduler whole_scheduler = make(whole.optimizer);
  whole.state.AddScheduler("scheduler", whole_scheduler);
  MemoryCheckpoint saved;
  std::vector<double> rates;
  for (int i = 0; i < kSteps; ++i) {
    step(whole_scheduler, i);
    if (i == kSaveAt) saved = MustSaveRates(whole.state);
    if (i > kSaveAt) rates.push_back(whole.rate());
  }
  RateTrainer resumed;
  Scheduler resumed_scheduler = make(resumed.optimizer);
  resumed.state.AddScheduler("scheduler", resumed_scheduler);
  const absl::Status restored = RestoreFromMemory(resumed.state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  std::vector<double> resumed_rates;
  for (int i = kSaveAt + 1; i < kSteps; ++i) {
    step(resumed_scheduler, i);
    resumed_rates.push_back(resumed.rate());
  }
  EXPECT_EQ(resumed_rates, rates);
  EXPECT_GE(std::set<double>(rates.begin(), rates.end()).size(), static_cast<size_t>(distinct_min));
}

TEST(TorchScheduler, StepLRDecaysAtTheSameStepsAfterAResume) {
  ExpectTheSameRates<torch::optim::StepLR>(
      [](torch::optim::Optimizer& optimizer) {
        return torch::optim::StepLR(optimizer, /*step_size=*/3, /*gamma=*/0.3);
      },
      [](torch::optim::StepLR& scheduler, int) { scheduler.step(); }, /*distinct_min=*/3);
}

#if TIDEMARK_HAS_PLATEAU_SCHEDULER
TEST(TorchScheduler, ReduceLROnPlateauWaitsAsLongAfterAResume) {
  using torch::optim::ReduceLROnPlateauScheduler;
  ExpectTheSameRates<ReduceLROnPlateauScheduler>(
      [](torch::optim::Optimizer& optimizer) {
        return ReduceLROnPlateauScheduler(optimizer, ReduceLROnPlateauScheduler::min, /*factor=*/0.3F, /*patience=*/2,
                                          /*threshold=*/1e-4, ReduceLROnPlateauScheduler::rel, /*cooldown=*/1);
      },
      // The best is seen before the save and never again.
      [](ReduceLROnPlateauScheduler& scheduler, int i) { scheduler.step(i < 2 ? 1.0F : 2.0F); }, /*distinct_min=*/3);
}
#endif

TEST(TorchScheduler, RefusesACountOfStepsThatIsNone) {
  RateTrainer trainer;
  torch::optim::StepLR scheduler(trainer.optimizer, 3);
  trainer.state.AddScheduler("scheduler", scheduler);
  for (const int64_t count : {int64_t{-1}, int64_t{std::numeric_limits<unsigned>::max()} + 1}) {
    MemoryCheckpoint saved = MustSaveRates(trainer.state);
    EXPECT_EQ(saved.Value<int64_t>("scheduler.step_count"), 0);
    std::memcpy(saved.items.at("scheduler.step_count").bytes.data(), &count, sizeof(count));
    const absl::Status restored = RestoreFromMemory(trainer.state, saved);
    EXPECT_EQ(restored.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(restored.message()), HasSubstr("entry 'scheduler.step_count': the step count is"));
  }
}

}  // namespace
}  // namespace tidemark
