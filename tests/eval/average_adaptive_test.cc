// Averages whose period adapts to the noise of a metric.

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::Each;
using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;

using Adaptive = AverageOptions::Adaptive;

// An average that tells a test which steps it takes in.
class AdaptiveAverage {
 public:
  explicit AdaptiveAverage(std::optional<Adaptive> adaptive, int64_t every_steps = 1)
      : average(*MakeAverage({.decay = 0.5, .every_steps = every_steps, .adaptive = std::move(adaptive)})) {}

  // Whether the snapshot of this step was taken in.
  bool Takes(int64_t step, std::map<std::string, double> metrics) {
    const int64_t before = Snapshots();
    TestSnapshot snapshot(step, std::move(metrics));
    snapshot.Add("model.weight", std::vector<float>{static_cast<float>(step)});
    EXPECT_THAT(average->Update(snapshot), IsOk());
    return Snapshots() > before;
  }

  // The steps up to `end` that it takes in.
  template <typename Loss>
  std::vector<int64_t> TakenSteps(int64_t begin, int64_t end, Loss loss) {
    std::vector<int64_t> taken;
    for (int64_t step = begin; step < end; ++step) {
      if (Takes(step, {{"loss", loss(step)}})) taken.push_back(step);
    }
    return taken;
  }

  int64_t Snapshots() const { return *reinterpret_cast<const int64_t*>(Bytes("ema.snapshots").data()); }

  std::string Bytes(const std::string& name) const {
    EXPECT_THAT(average->state().Refresh(), IsOk());
    for (const State::Entry& entry : average->state().entries()) {
      if (entry.spec.name == name) return {reinterpret_cast<const char*>(entry.host), entry.bytes};
    }
    return "";
  }

  const std::shared_ptr<Companion> average;
};

std::vector<int64_t> Distances(const std::vector<int64_t>& steps) {
  std::vector<int64_t> distances;
  for (size_t i = 1; i < steps.size(); ++i) distances.push_back(steps[i] - steps[i - 1]);
  return distances;
}

TEST(AdaptiveAverage, IsRareWhereTheMetricIsConstant) {
  AdaptiveAverage average(Adaptive{.every_steps_max = 7});
  // The first two values say nothing yet.
  EXPECT_THAT(average.TakenSteps(0, 24, [](int64_t) { return 2.0; }), ElementsAre(0, 7, 14, 21));
}

TEST(AdaptiveAverage, IsAsFrequentAsTheFormulaSays) {
  // Values m and m + d in turns: the mean square of the differences is d * d, so the noise is d / sqrt(2) / mean.
  for (const auto& [noise, period] : {std::pair(0.025, 8), {0.05, 6}, {0.075, 3}, {0.1, 1}, {0.5, 1}}) {
    SCOPED_TRACE(noise);
    const double difference = noise * std::sqrt(2.0);
    AdaptiveAverage average(Adaptive{.window = 2, .every_steps_min = 1, .every_steps_max = 11});
    const std::vector<int64_t> taken =
        average.TakenSteps(0, 100, [&](int64_t step) { return 1 + (step % 2 == 0 ? difference : -difference) / 2; });
    // Rounded down: 11 - 10 * share, less one where the square root is not exact.
    for (const int64_t distance : Distances(taken)) {
      EXPECT_GE(distance, period - 1);
      EXPECT_LE(distance, period + 1);
    }
  }
}

TEST(AdaptiveAverage, ATrendIsNoNoise) {
  AdaptiveAverage average(Adaptive{.every_steps_max = 10});
  // Falls by 0.1 % from step to step: by 5 % in the window.
  const std::vector<int64_t> taken = average.TakenSteps(0, 200, [](int64_t step) { return std::pow(0.999, step); });
  EXPECT_THAT(Distances(taken), Each(Eq(9)));  // its noise is 0.0007: just not none at all
}

TEST(AdaptiveAverage, FollowsANoisyMetricThatCalmsDown) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal;
  AdaptiveAverage average(Adaptive{.window = 20, .every_steps_min = 2, .every_steps_max = 20});
  const auto noisy = average.TakenSteps(0, 400, [&](int64_t) { return 3 + 0.9 * normal(random); });
  const auto calm = average.TakenSteps(400, 800, [&](int64_t) { return 3 + 0.003 * normal(random); });
  EXPECT_GE(noisy.size(), 180u);  // each second step
  EXPECT_LE(calm.size(), 40u);    // each twentieth, once the noisy values have left the window
  EXPECT_GE(calm.size(), 20u);
}

TEST(AdaptiveAverage, TakesNothingFromSnapshotsWithoutTheMetric) {
  AdaptiveAverage average(Adaptive{.metric = "validation", .window = 4, .every_steps_max = 5});
  EXPECT_TRUE(average.Takes(0, {}));
  EXPECT_TRUE(average.Takes(1, {{"validation", 1}}));
  EXPECT_TRUE(average.Takes(2, {{"validation", NAN}})) << "one value is known, and says nothing";
  EXPECT_FALSE(average.Takes(3, {{"validation", 1}}));
  EXPECT_FALSE(average.Takes(4, {}));
  EXPECT_FALSE(average.Takes(6, {{"validation", INFINITY}}));
  EXPECT_TRUE(average.Takes(7, {}));
}

TEST(AdaptiveAverage, KeepsToStepsDivisibleByEverySteps) {
  AdaptiveAverage average(Adaptive{.every_steps_max = 5}, /*every_steps=*/4);
  EXPECT_THAT(average.TakenSteps(1, 30, [](int64_t) { return 1.0; }), ElementsAre(4, 12, 20, 28));
}

TEST(AdaptiveAverage, GivesAStepThatIsRepeatedTheSameAnswer) {
  AdaptiveAverage average(Adaptive{.window = 3, .every_steps_max = 3});
  average.TakenSteps(0, 10, [](int64_t) { return 1.0; });
  const std::string before = average.Bytes("ema.adaptive");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(average.Takes(9, {{"loss", 50}}));
  EXPECT_EQ(average.Bytes("ema.adaptive"), before);
}

TEST(AdaptiveAverage, RefusesOptionsOutOfTheirRange) {
  const auto refused = [](Adaptive adaptive, const std::string& what) {
    EXPECT_THAT(MakeAverage({.adaptive = std::move(adaptive)}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refused({.window = 1}, "adaptive.window: expected 2 to 65536, found 1");
  refused({.every_steps_min = 0}, "adaptive.every_steps_min: expected 1 or more, found 0");
  refused({.every_steps_min = 3, .every_steps_max = 2},
          "adaptive.every_steps_max: expected every_steps_min (3) or more, found 2");
  refused({.noise_max = 0}, "adaptive.noise_max: expected more than 0, found 0");
  AdaptiveAverage average(Adaptive{});
  TestSnapshot snapshot;
  snapshot.Add("adaptive", std::vector<float>{1});
  EXPECT_THAT((*MakeAverage({.entries = {"*"}}))->Update(snapshot),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is reserved for the adaptive period")));
}

class AdaptiveAverageInAStore : public testing::Test {
 protected:
  // Trains the steps [begin, end), after a restore if there is something to restore. The average's bytes at the end.
  std::string Run(const std::string& store, int64_t begin, int64_t end, std::optional<Adaptive> adaptive) {
    AdaptiveAverage average(std::move(adaptive));
    auto opened = AsyncCheckpointer::Open({.directory = directory_ / store});
    EXPECT_THAT(opened, IsOk());
    EXPECT_THAT((*opened)->AddCompanion(average.average), IsOk());
    TestTrainer trainer(100);
    const auto next = (*opened)->Resume(trainer.state);
    EXPECT_THAT(next, IsOk());
    EXPECT_EQ(*next, begin);
    for (int64_t step = begin; step < end; ++step) {
      trainer.SetTo(step);
      const double loss = 2 + 0.05 * ((step * 7919) % 13) * (step < 30 ? 1 : 0.1);
      EXPECT_THAT((*opened)->Save(step, trainer.state, {.metrics = {{"loss", loss}}}), IsOk());
    }
    EXPECT_THAT((*opened)->Close(), IsOk());
    return average.Bytes("ema.snapshots") + average.Bytes("ema.model.weight") + average.Bytes("ema.adaptive");
  }

  storage::TestDirectory directory_;
};

TEST_F(AdaptiveAverageInAStore, IsTheSameAfterAResumeAsWithoutAnInterruption) {
  const Adaptive adaptive{.window = 8, .every_steps_max = 6};
  const std::string whole = Run("whole", 0, 60, adaptive);
  for (const auto& [begin, end] : {std::pair(0, 11), {11, 34}, {34, 35}}) Run("parts", begin, end, adaptive);
  EXPECT_EQ(Run("parts", 35, 60, adaptive), whole);
}

TEST_F(AdaptiveAverageInAStore, CanBeTurnedOnAndOffBetweenRuns) {
  Run("store", 0, 5, std::nullopt);
  Run("store", 5, 10, Adaptive{.window = 8});
  Run("store", 10, 15, Adaptive{.window = 4});
  const std::string last = Run("store", 15, 20, std::nullopt);
  EXPECT_EQ(last.size(), sizeof(int64_t) + 100 * sizeof(float)) << "the entry of the period has gone";
}

}  // namespace
}  // namespace tidemark
