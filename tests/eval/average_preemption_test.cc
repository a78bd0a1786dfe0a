// Averages and the last save of a preempted trainer, which an uninterrupted run does not make.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/preemption_guard.h"

namespace tidemark {
namespace {

using storage::IsOk;

constexpr int64_t kInterval = 10;
constexpr int64_t kPreemptedAt = 37;
constexpr int64_t kLastStep = 60;

class AveragePreemptionTest : public testing::Test {
 protected:
  // Trains up to kLastStep from the latest step of the store, or is preempted by a signal at `preempted_at`. The
  // average's entries at the end.
  std::vector<std::string> Run(const std::string& store, int64_t every_steps, int64_t preempted_at = -1) {
    auto guard = PreemptionGuard::Install({});
    EXPECT_THAT(guard, IsOk());
    auto average = *MakeAverage({.decay = 0.75, .every_steps = every_steps});
    auto checkpointer = AsyncCheckpointer::Open({.directory = store, .save_interval_steps = kInterval});
    EXPECT_THAT(checkpointer, IsOk());
    EXPECT_THAT((*checkpointer)->AddCompanion(average), IsOk());
    TestTrainer trainer(1000);
    auto restored = (*checkpointer)->RestoreLatest(trainer.state);
    for (int64_t step = restored.ok() ? restored->step + 1 : 0; step <= kLastStep; ++step) {
      trainer.SetTo(step);
      if (step == preempted_at) raise(SIGTERM);
      if ((*guard)->preempted()) {
        EXPECT_TRUE((*guard)->SaveAndClose(**checkpointer, step, trainer.state, {}).committed());
        return {};
      }
      if ((*checkpointer)->ShouldSave(step)) {
        EXPECT_THAT((*checkpointer)->Save(step, trainer.state), IsOk());
      }
    }
    EXPECT_THAT((*checkpointer)->Close(), IsOk());
    EXPECT_THAT(average->state().Refresh(), IsOk());
    std::vector<std::string> contents;
    for (const State::Entry& entry : average->state().entries()) {
      contents.push_back(entry.spec.name + "=" + std::string(reinterpret_cast<const char*>(entry.host), entry.bytes));
    }
    std::sort(contents.begin(), contents.end());
    return contents;
  }

  std::vector<std::string> RunPreempted(int64_t every_steps) {
    const std::string store = directory_ / "preempted";
    Run(store, every_steps, kPreemptedAt);
    return Run(store, every_steps);
  }

  storage::TestDirectory directory_;
};

TEST_F(AveragePreemptionTest, TakesTheLastSaveInAndThenDiffersFromAnUninterruptedRun) {
  EXPECT_NE(RunPreempted(1), Run(directory_ / "whole", 1));
}

TEST_F(AveragePreemptionTest, IsThatOfAnUninterruptedRunWhereItTakesInTheRegularSavesOnly) {
  EXPECT_EQ(RunPreempted(kInterval), Run(directory_ / "whole", kInterval));
}

}  // namespace
}  // namespace tidemark
