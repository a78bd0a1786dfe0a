// Workers that do not evaluate every step, do not report, or whose functions throw.

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/eval/following_store.h"
#include "tests/snapshot/test_trainer.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class WorkerPolicyTest : public FollowingStore {
 protected:
  void SetUp() override {
    FollowingStore::SetUp();
    Observe({.evaluated = [this](int64_t step, const Evaluation& row) { told_[step] = row.reason; }});
  }
  // Everything in the store's folder, with the time of its last change.
  std::map<std::string, std::chrono::nanoseconds> Files() const {
    std::map<std::string, std::chrono::nanoseconds> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.directory)) {
      files[entry.path()] = entry.last_write_time().time_since_epoch();
    }
    return files;
  }

  std::map<int64_t, std::string> told_;  // reasons by step
};

TEST_F(WorkerPolicyTest, LatestEvaluatesTheStepThatWasSavedLastAndSkipsEarlierOnes) {
  OpenStore();
  for (int64_t step : {10, 20, 40, 30}) CommitStep(step);  // 30 after a rollback
  options_.when_lagging = WhenLagging::kLatest;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(asked_, ElementsAre(30));
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_EQ(report->skipped, 3);
  EXPECT_EQ(report->last_step, 30);
  const std::string why = "lagging: step 30 was saved later";
  EXPECT_THAT(told_, ElementsAre(Pair(10, why), Pair(20, why), Pair(30, ""), Pair(40, why)));
  const Evaluation row = RowOf(20);
  EXPECT_EQ(row.outcome, Evaluation::Outcome::kSkipped);
  EXPECT_EQ(row.reason, why);
  EXPECT_EQ(RowOf(30).outcome, Evaluation::Outcome::kDone);
  EXPECT_EQ(Run()->skipped, 0) << "each step is skipped once";
}

TEST_F(WorkerPolicyTest, LatestLooksOnlyAtStepsThatAreAskedFor) {
  OpenStore();
  for (int64_t step : {10, 20, 25}) CommitStep(step);
  options_.when_lagging = WhenLagging::kLatest;
  options_.every_steps = 10;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(20)) << "25 is newer, and not asked for";
}

TEST_F(WorkerPolicyTest, LatestTakesAStepThatIsCommittedWhileAnotherIsEvaluated) {
  OpenStore();
  CommitStep(10);
  during_ = [this](int64_t step) {
    if (step == 10) {
      for (int64_t later : {20, 30}) CommitStep(later);
    }
  };
  options_.when_lagging = WhenLagging::kLatest;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 30));
}

TEST_F(WorkerPolicyTest, AStaleStepIsSkippedAndSaysHowFarBehindItIs) {
  OpenStore();
  for (int64_t step : {10, 20, 30, 40, 50}) CommitStep(step);
  options_.staleness_max = 20;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(asked_, ElementsAre(30, 40, 50));
  EXPECT_EQ(report->skipped, 2);
  EXPECT_EQ(RowOf(10).reason, "stale: 40 steps behind step 50");
  EXPECT_EQ(RowOf(20).reason, "stale: 30 steps behind step 50");
}

TEST_F(WorkerPolicyTest, StalenessIsCountedFromTheStepThatWasSavedLast) {
  OpenStore();
  for (int64_t step : {900, 100}) CommitStep(step);  // the run went back
  options_.staleness_max = 50;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(100, 900));
}

TEST_F(WorkerPolicyTest, WithoutReportsNothingIsWritten) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  const auto before = Files();
  options_.report = false;
  options_.evaluator.clear();
  options_.when_lagging = WhenLagging::kLatest;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_THAT(asked_, ElementsAre(20));
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(Run()->evaluated, 1) << "another call knows nothing of this one";
}

TEST_F(WorkerPolicyTest, WithoutReportsAStepIsEvaluatedOnceInACall) {
  OpenStore();
  CommitStep(10);
  options_.report = false;
  options_.idle_timeout = absl::Minutes(5);
  on_wait_ = [this](size_t count) {
    if (count == 90) CommitStep(20);  // by then all records are read again
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 20));
}

TEST_F(WorkerPolicyTest, OptionsOutOfTheirRangeAreRefused) {
  options_.staleness_max = -1;
  EXPECT_THAT(Run(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("staleness_max is -1: 0 or more")));
  options_.staleness_max = 0;
  for (const WhenLagging policy : {WhenLagging::kBlock, WhenLagging::kSkip}) {
    options_.when_lagging = policy;
    EXPECT_THAT(Run(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("when_lagging")));
  }
  options_.when_lagging = WhenLagging::kQueue;
  options_.evaluator.clear();
  EXPECT_THAT(Run(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("evaluator")));
}

TEST_F(WorkerPolicyTest, AnExceptionOfACallbackIsAnErrorAndDeliveredReportsStay) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  Observe({.evaluated = [](int64_t, const Evaluation&) { throw std::runtime_error("told"); }});
  EXPECT_THAT(Run(), StatusIs(StatusCode::kInternal, HasSubstr("a callback of WorkerOptions threw: told")));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory + "/leases")) << "the lease is released";
  EXPECT_EQ(RowOf(10).outcome, Evaluation::Outcome::kDone) << "the report was delivered";
  Observe({});
  options_.stop = []() -> bool { throw std::logic_error("asked"); };
  EXPECT_THAT(Run(), StatusIs(StatusCode::kInternal, HasSubstr("threw: asked")));
  options_.stop = []() -> bool { throw 3; };
  EXPECT_THAT(Run(), StatusIs(StatusCode::kInternal, HasSubstr("other than a std::exception")));
  options_.stop = nullptr;
  EXPECT_EQ(Run()->evaluated, 1);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
}

TEST(Worker, HandsOverHalfPrecisionIfAsked) {
  storage::TestDirectory directory;
  TestTrainer trainer;
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(checkpointer, IsOk());
  ASSERT_THAT((*checkpointer)->Save(1, trainer.state), IsOk());
  ASSERT_THAT((*checkpointer)->WaitUntilCommitted(), IsOk());
  for (const HalfPrecision precision : {HalfPrecision::kNone, HalfPrecision::kBfloat16, HalfPrecision::kFloat16}) {
    std::set<Dtype> seen;
    auto report = FollowStore({.directory = directory / "store",
                               .evaluator = "e" + std::to_string(static_cast<int>(precision)),
                               .entries = {"model.weight"},
                               .half_precision = precision,
                               .idle_timeout = absl::ZeroDuration()},
                              [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                for (const EntrySpec& spec : snapshot.entries()) seen.insert(spec.dtype);
                                return Metrics{};
                              });
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->evaluated, 1);
    EXPECT_THAT(seen, ElementsAre(precision == HalfPrecision::kNone       ? Dtype::kFloat32
                                  : precision == HalfPrecision::kBfloat16 ? Dtype::kBfloat16
                                                                          : Dtype::kFloat16));
  }
}

}  // namespace
}  // namespace tidemark
