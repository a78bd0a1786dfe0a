// Reports that wait for the housekeeper together.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class WaitingReportsTest : public HousekeeperTest {
 protected:
  void SetUp() override {
    checkpointer_ = Open({}, {.evaluated = [this](int64_t step, const Evaluation& evaluation) {
                           if (evaluation.evaluator == "own") return;
                           told_.Add(fmt::format("step {} {}", step, evaluation.evaluator));
                           if (evaluation.evaluator == "first") std::exchange(when_first_, [] {})();
                         }});
    ASSERT_THAT(SaveStep(*checkpointer_, 1), IsOk());
    ASSERT_THAT(checkpointer_->AddEvaluator({.name = "own"}, [](const Snapshot&) { return Metrics{}; }), IsOk());
    ASSERT_THAT(checkpointer_->Evaluate(2, trainer_.state), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
  }

  void Report(int64_t step, const std::string& evaluator, double loss) {
    recorded_.push_back(checkpointer_->ReportMetrics(step, evaluator, {{"loss", loss}}));
  }

  // What `report` reports waits until the round is over in which it is called. So the next one takes all of it.
  void ReportDuringARound(std::function<void()> report) {
    when_first_ = [this, report = std::move(report)] {
      report();
      files_.Reset();
    };
    EXPECT_THAT(checkpointer_->ReportMetrics(1, "first", {}).Wait(), IsOk());
  }

  int64_t ManifestSyncs() const {
    const std::vector<FailingFileSystem::Call> calls = files_.calls();
    return std::count_if(calls.begin(), calls.end(), [](const FailingFileSystem::Call& call) {
      return call.operation == "SyncData" && call.path.find("/manifest/") != std::string::npos;
    });
  }

  Lines told_;
  std::function<void()> when_first_ = [] {};
  std::vector<Future> recorded_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;  // whose thread uses what is above
};

class WaitingReportsOfAStepTest : public WaitingReportsTest, public testing::WithParamInterface<int64_t> {};

TEST_P(WaitingReportsOfAStepTest, AreRecordedInOneChangeOfItsRecord) {
  ReportDuringARound([this] {
    for (const char* evaluator : {"c", "a", "b"}) Report(GetParam(), evaluator, 0.5);
  });
  for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
  EXPECT_EQ(ManifestSyncs(), 1);
  for (const char* evaluator : {"a", "b", "c"}) {
    EXPECT_EQ(Info(*checkpointer_, GetParam()).metrics.at(fmt::format("{}/loss", evaluator)), 0.5);
  }
  EXPECT_THAT(checkpointer_->Close(), IsOk());
  const std::string step = fmt::format("step {} ", GetParam());
  EXPECT_THAT(told_.Get(), ElementsAre("step 1 first", step + "c", step + "a", step + "b"))
      << "in the order in which they came";
}

INSTANTIATE_TEST_SUITE_P(Of, WaitingReportsOfAStepTest, testing::Values(1, 2),
                         [](const auto& info) { return info.param == 1 ? "ASavedStep" : "AStepThatWasOnlyEvaluated"; });

TEST_F(WaitingReportsTest, OfOneEvaluatorAreRecordedOneAfterTheOther) {
  ReportDuringARound([this] {
    Report(1, "a", 1);
    Report(1, "b", 2);
    Report(1, "a", 3);
  });
  for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
  EXPECT_EQ(ManifestSyncs(), 2);
  EXPECT_EQ(Info(*checkpointer_, 1).metrics.at("a/loss"), 3);
  EXPECT_THAT(checkpointer_->Close(), IsOk());
  EXPECT_THAT(told_.Get(), ElementsAre("step 1 first", "step 1 a", "step 1 b", "step 1 a"));
}

TEST_F(WaitingReportsTest, OfAStepThatThereIsNoneOfAreRefusedAndHoldUpNoOthers) {
  ReportDuringARound([this] {
    Report(3, "a", 1);
    Report(3, "b", 2);
    Report(1, "a", 3);
  });
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(recorded_[i].Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is no step 3")));
  }
  EXPECT_THAT(recorded_[2].Wait(), IsOk());
}

TEST_F(WaitingReportsTest, BehindOneThatTheDiskRefusesAreRecordedOnceItTakesThem) {
  ReportDuringARound([this] {
    for (const char* evaluator : {"a", "b", "c"}) Report(1, evaluator, 0.5);
  });
  for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
  recorded_.clear();
  when_first_ = [this] {
    for (const char* evaluator : {"a", "b", "c"}) Report(1, evaluator, 0.25);
    FillDisk();
  };
  EXPECT_THAT(checkpointer_->ReportMetrics(1, "first", {{"again", 1}}).Wait(), IsOk());
  EXPECT_THAT(checkpointer_->Tidy(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  for (const Future& future : recorded_) EXPECT_FALSE(future.ready());
  files_.Reset();
  EXPECT_THAT(checkpointer_->Tidy(), IsOk());
  for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
  EXPECT_EQ(ManifestSyncs(), 1);
  EXPECT_EQ(checkpointer_->statistics().reports_recorded, 9u) << "with that of step 2";
}

}  // namespace
}  // namespace tidemark
