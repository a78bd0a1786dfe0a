// A run that diverges, is told so, and goes back: HealthMonitor, averages and restores through AsyncCheckpointer.

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/health_monitor.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kDivergesAt = 4;
constexpr int64_t kSteps = 7;

class HealthRollbackTest : public testing::Test {
 protected:
  void SetUp() override { Open(); }

  void Open() {
    checkpointer_.reset();
    auto opened = AsyncCheckpointer::Open({.directory = directory_ / "store"});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
    auto monitor = HealthMonitor::Create({.entries = {"model.*"}, .loss_metric = "loss"});
    ASSERT_THAT(monitor, IsOk());
    monitor_ = *std::move(monitor);
    auto judge = [this, health = monitor_->function()](const Snapshot& snapshot) {
      if (before_verdict_) before_verdict_(snapshot.step());
      return health(snapshot);
    };
    ASSERT_THAT(checkpointer_->AddEvaluator(monitor_->evaluator_options(), judge), IsOk());
    auto mean = MakeAverage({.name = "mean", .kind = AverageOptions::Kind::kUniform});
    ASSERT_THAT(mean, IsOk());
    mean_ = *std::move(mean);
    ASSERT_THAT(checkpointer_->AddCompanion(mean_), IsOk());
  }

  // Trains and saves one step. A weight that is no number stays one until something is restored. The loss of diverged
  // steps is the lowest of all, so that it would be the best.
  void Train(int64_t step) {
    trainer_.SetTo(step);
    if (diverged_ || (step == kDivergesAt && diverges_)) {
      diverged_ = true;
      trainer_.weight[7] = std::nanf("");
    }
    const double loss = diverged_ ? 0.001 : 1 / static_cast<double>(step);
    ASSERT_THAT(checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", loss}}, .overwrite = !diverges_}),
                IsOk());
  }

  void AwaitVerdicts() {
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
  }

  // Goes back; from then on the run does not diverge.
  RestoreReport RollBack() {
    auto restored = checkpointer_->RestoreLatest(trainer_.state, {.healthy_only = true});
    EXPECT_THAT(restored, IsOk());
    diverged_ = diverges_ = false;
    return restored.ok() ? *std::move(restored) : RestoreReport{};
  }

  int64_t BestStep() {
    auto best = checkpointer_->BestStep("loss", BestMode::kLowest);
    EXPECT_THAT(best, IsOk());
    return best.ok() ? best->step : -1;
  }

  // The mean of a bias that is `step` after step `step`, and whether that of all weights is a number.
  double MeanBias() { return MeanOf<double>("mean.model.bias").at(0); }
  bool MeanWeightIsFinite() { return std::isfinite(MeanOf<float>("mean.model.weight").at(7)); }

  template <typename T>
  std::vector<T> MeanOf(const std::string& name) {
    EXPECT_THAT(mean_->state().Refresh(), IsOk());
    for (const State::Entry& entry : mean_->state().entries()) {
      if (entry.spec.name != name) continue;
      std::vector<T> values(entry.bytes / sizeof(T));
      std::memcpy(values.data(), entry.host, entry.bytes);
      return values;
    }
    ADD_FAILURE() << "no entry " << name;
    return std::vector<T>(8);
  }

  storage::TestDirectory directory_;
  TestTrainer trainer_{1000};
  bool diverges_ = true;
  bool diverged_ = false;
  std::function<void(int64_t step)> before_verdict_;  // called by the evaluator's thread
  std::shared_ptr<Companion> mean_;
  std::unique_ptr<HealthMonitor> monitor_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(HealthRollbackTest, GoesOnFromTheLastHealthyStepAsIfNothingHadHappened) {
  int divergences = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    Train(step);
    AwaitVerdicts();
    const std::optional<Divergence> divergence = monitor_->TakeDivergence();
    ASSERT_EQ(divergence.has_value(), diverged_) << "step " << step;
    if (!divergence) {
      EXPECT_EQ(BestStep(), step);
      continue;
    }
    ++divergences;
    EXPECT_EQ(divergence->step, kDivergesAt);
    EXPECT_THAT(divergence->reason, HasSubstr("1 NaN and 0 infinite: 'model.weight' (1 NaN, 0 infinite)"));
    EXPECT_EQ(BestStep(), kDivergesAt - 1) << "although its loss was higher";
    EXPECT_FALSE(MeanWeightIsFinite());
    const RestoreReport restored = RollBack();
    EXPECT_EQ(restored.step, kDivergesAt - 1);
    ASSERT_THAT(restored.passed_over, SizeIs(1));
    EXPECT_EQ(restored.passed_over[0].first, kDivergesAt);
    EXPECT_THAT(restored.passed_over[0].second, AllOf(HasSubstr("unhealthy: health: "), HasSubstr("'model.weight'")));
    EXPECT_TRUE(trainer_.IsAt(kDivergesAt - 1));
    EXPECT_TRUE(MeanWeightIsFinite());
    EXPECT_EQ(MeanBias(), 2) << "of 1, 2 and 3";
    step = restored.step;
  }
  EXPECT_EQ(divergences, 1);
  EXPECT_EQ(MeanBias(), 4) << "of 1 to 7, each once";
  auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_THAT(*steps, SizeIs(kSteps));
  for (const StepInfo& info : *steps) EXPECT_EQ(info.unhealthy(), "") << "step " << info.step;
  EXPECT_THAT(checkpointer_->Close(), IsOk());
}

TEST_F(HealthRollbackTest, FindsTheSameDivergenceAgainAfterTheRollback) {
  for (int64_t step = 1; step < kDivergesAt; ++step) Train(step);
  diverges_ = false;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    SCOPED_TRACE(attempt);
    trainer_.SetTo(kDivergesAt);
    for (float& weight : trainer_.weight) weight *= 1000;
    ASSERT_THAT(checkpointer_->Save(kDivergesAt, trainer_.state, {.metrics = {{"loss", 1}}}), IsOk());
    AwaitVerdicts();
    const std::optional<Divergence> divergence = monitor_->TakeDivergence();
    ASSERT_TRUE(divergence.has_value());
    EXPECT_THAT(divergence->reason, HasSubstr("norms jumped: 'model.weight'"));
    EXPECT_EQ(BestStep(), kDivergesAt - 1);
    EXPECT_EQ(RollBack().step, kDivergesAt - 1);
  }
  Train(kDivergesAt);
  AwaitVerdicts();
  EXPECT_FALSE(monitor_->TakeDivergence().has_value());
  EXPECT_EQ(RollBack().step, kDivergesAt);
}

TEST_F(HealthRollbackTest, SavesMoreOftenWhereTheLossIsErratic) {
  auto monitor =
      HealthMonitor::Create({.name = "loss", .loss_metric = "loss", .loss_window = 8, .loss_variance_jump_max = 4});
  ASSERT_THAT(monitor, IsOk());
  ASSERT_THAT(checkpointer_->AddEvaluator((*monitor)->evaluator_options(), (*monitor)->function()), IsOk());
  ASSERT_THAT(checkpointer_->SetSaveInterval(100), IsOk());
  std::optional<Divergence> divergence;
  for (int64_t step = 1; step <= 8; ++step) {
    EXPECT_FALSE(checkpointer_->ShouldSave(step + 9));
    const double loss = step <= 4 ? 1 : 1 + 0.05 * static_cast<double>(step % 2);
    ASSERT_THAT(checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", loss}}}), IsOk());
    AwaitVerdicts();
    divergence = (*monitor)->TakeDivergence();
    if (!divergence) continue;
    ASSERT_EQ(divergence->remediation, Remediation::kSaveMoreOften);
    ASSERT_THAT(checkpointer_->SetSaveInterval(10), IsOk());
    break;
  }
  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(checkpointer_->LatestStep()->unhealthy(), "");
  EXPECT_TRUE(checkpointer_->ShouldSave(20));
  EXPECT_FALSE(checkpointer_->ShouldSave(25));
}

TEST_F(HealthRollbackTest, RollsBackOnceWhereMoreIsFoundWhileItRestores) {
  const auto taken = std::make_shared<absl::Notification>();
  before_verdict_ = [taken](int64_t step) {
    if (step == kDivergesAt + 1) taken->WaitForNotification();
  };
  for (int64_t step = 1; step <= kDivergesAt; ++step) Train(step);
  AwaitVerdicts();
  Train(kDivergesAt + 1);
  EXPECT_EQ(monitor_->TakeDivergence()->step, kDivergesAt);
  taken->Notify();
  const RestoreReport restored = RollBack();
  EXPECT_EQ(restored.step, kDivergesAt - 1);
  EXPECT_EQ(monitor_->TakeDivergence()->step, kDivergesAt + 1) << "what the header's loop drops";
  for (int64_t step = restored.step + 1; step <= kSteps; ++step) {
    EXPECT_FALSE(monitor_->TakeDivergence().has_value()) << "before step " << step;
    Train(step);
  }
  AwaitVerdicts();
  EXPECT_FALSE(monitor_->TakeDivergence().has_value());
}

TEST_F(HealthRollbackTest, PassesOverEveryStepSinceTheDivergenceInAnotherProcessToo) {
  for (int64_t step = 1; step <= kDivergesAt + 2; ++step) Train(step);
  AwaitVerdicts();
  EXPECT_EQ(monitor_->TakeDivergence()->step, kDivergesAt) << "the first of three";
  EXPECT_EQ(BestStep(), kDivergesAt - 1);
  ASSERT_THAT(checkpointer_->Close(), IsOk());

  Open();
  EXPECT_EQ(BestStep(), kDivergesAt - 1);
  const RestoreReport restored = RollBack();
  EXPECT_EQ(restored.step, kDivergesAt - 1);
  ASSERT_THAT(restored.passed_over, SizeIs(3));
  EXPECT_EQ(restored.passed_over[0].first, kDivergesAt + 2);
  EXPECT_TRUE(trainer_.IsAt(kDivergesAt - 1));
  EXPECT_EQ(MeanBias(), 2);
  for (int64_t step = restored.step + 1; step <= kSteps; ++step) Train(step);
  AwaitVerdicts();
  EXPECT_FALSE(monitor_->TakeDivergence().has_value());
  EXPECT_EQ(BestStep(), kSteps);
  EXPECT_EQ(MeanBias(), 4);
}

}  // namespace
}  // namespace tidemark
