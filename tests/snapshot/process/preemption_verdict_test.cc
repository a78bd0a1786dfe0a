// What the last save does to what evaluators have said of the step.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;

class PreemptionVerdictTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open() {
    auto checkpointer = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  // An evaluator's function that calls a step unhealthy as long as `unhealthy_` says so.
  EvaluatorFunction UnhealthyWhileSo() {
    return [unhealthy = unhealthy_](const Snapshot&) -> absl::StatusOr<Verdict> {
      return Verdict({}, *unhealthy ? "NaN in weight" : "");
    };
  }
  // Step 5 is healthy, 6 and 7 are not. From then on what is saved is healthy.
  void SaveHealthyAndUnhealthy(AsyncCheckpointer& checkpointer) {
    ASSERT_THAT(checkpointer.AddEvaluator({.name = "health"}, UnhealthyWhileSo()), IsOk());
    for (int64_t step = 5; step <= 7; ++step) {
      *unhealthy_ = step > 5;
      ASSERT_THAT(checkpointer.Save(step, trainer_.state), IsOk());
      ASSERT_THAT(checkpointer.WaitUntilEvaluated(), IsOk());
    }
    *unhealthy_ = false;
  }
  StepInfo Latest() {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto latest = (*reader)->LatestStep();
    EXPECT_THAT(latest, IsOk());
    return latest.ok() ? *latest : StepInfo{};
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  int64_t added_ = 0;
  TestTrainer trainer_{1000};
  const std::shared_ptr<std::atomic<bool>> unhealthy_ = std::make_shared<std::atomic<bool>>(false);
};

TEST_F(PreemptionVerdictTest, LeavesTheVerdictOnAStepThatWasCalledUnhealthy) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health"}, UnhealthyWhileSo()), IsOk());
  *unhealthy_ = true;
  ASSERT_THAT(checkpointer->Save(7, trainer_.state), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  *unhealthy_ = false;
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, IsOk());
  EXPECT_EQ(Latest().sequence, 1u);
  EXPECT_EQ(Latest().unhealthy(), "health: NaN in weight");
}

TEST_F(PreemptionVerdictTest, SavesAnewAnUnhealthyStepThatTheRunHasComeBackToAfterARollback) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  SaveHealthyAndUnhealthy(*checkpointer);
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true}), IsOk());
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_EQ(Latest().sequence, 4u);
  EXPECT_EQ(Latest().unhealthy(), "");
}

TEST_F(PreemptionVerdictTest, LeavesTheVerdictWhereTheStateWasNotRolledBackToAHealthyStepBefore) {
  TestTrainer other{1000};
  const RestoreOptions healthy = {.healthy_only = true};
  RestoreOptions part = healthy;
  part.only = {"model.*"};
  using Restore = std::function<void(AsyncCheckpointer&)>;
  const std::vector<std::pair<std::string, Restore>> cases = {
      {"another state", [&](AsyncCheckpointer& all) { EXPECT_THAT(all.RestoreLatest(other.state, healthy), IsOk()); }},
      {"a part", [&](AsyncCheckpointer& all) { EXPECT_THAT(all.RestoreLatest(trainer_.state, part), IsOk()); }},
      {"the step itself", [&](AsyncCheckpointer& all) { EXPECT_THAT(all.Restore(7, trainer_.state), IsOk()); }},
      {"an unhealthy step", [&](AsyncCheckpointer& all) { EXPECT_THAT(all.Restore(6, trainer_.state), IsOk()); }},
      {"an unhealthy step after a healthy one",
       [&](AsyncCheckpointer& all) {
         EXPECT_THAT(all.Restore(5, trainer_.state), IsOk());
         EXPECT_THAT(all.Restore(6, trainer_.state), IsOk());
       }},
      {"unhealthy again",
       [&](AsyncCheckpointer& all) {
         EXPECT_THAT(all.RestoreLatest(trainer_.state, healthy), IsOk());
         *unhealthy_ = true;
         EXPECT_THAT(all.Save(7, trainer_.state), IsOk());
         EXPECT_THAT(all.WaitUntilEvaluated(), IsOk());
         *unhealthy_ = false;
       }},
      {"all that the step has, but not all of the state",
       [&](AsyncCheckpointer& all) {
         trainer_.state.AddValue("added", &added_);
         RestoreOptions missing = healthy;
         missing.allow_missing = true;
         EXPECT_THAT(all.RestoreLatest(trainer_.state, missing), IsOk());
       }},
  };
  for (const auto& [name, restore] : cases) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(store_);
    auto guard = PreemptionGuard::Install({});
    ASSERT_THAT(guard, IsOk());
    auto checkpointer = Open();
    SaveHealthyAndUnhealthy(*checkpointer);
    restore(*checkpointer);
    const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
    EXPECT_THAT(report.save, IsOk());
    EXPECT_EQ(Latest().step, 7);
    EXPECT_EQ(Latest().unhealthy(), "health: NaN in weight");
  }
}

TEST_F(PreemptionVerdictTest, SavesAnewAnUnhealthyStepWhereTheOptionsSayOverwrite) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  SaveHealthyAndUnhealthy(*checkpointer);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {.overwrite = true});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_EQ(Latest().sequence, 4u);
}

}  // namespace
}  // namespace tidemark
