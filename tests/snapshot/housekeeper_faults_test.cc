// Metrics, workers' reports, retention and pins under every single fault of the disk: each is done or says what failed,
// steps that are to stay stay, and once the disk is healthy again what was to be done is done.

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/faulty_store.h"
#include "tests/snapshot/other_process.h"

namespace tidemark {
namespace {

using storage::FaultsToRun;
using storage::InjectedFault;
using storage::IsOk;
using storage::SweepFaults;

class HousekeeperFaultsTest : public FaultyStoreTest {
 protected:
  void MakeStore(int64_t steps) {
    auto checkpointer = Open();
    for (int64_t step = 1; step <= steps; ++step) ASSERT_THAT(Save(*checkpointer, step, step), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    Keep();
  }

  std::optional<StepInfo> Find(AsyncCheckpointer& checkpointer, int64_t step) {
    auto steps = checkpointer.Steps();
    EXPECT_THAT(steps, IsOk());
    for (StepInfo& info : *steps) {
      if (info.step == step) return std::move(info);
    }
    return std::nullopt;
  }

  const OtherProcess other_{store_};  // on a disk without faults

  // The metric of step 1, and no more than one row, now and when the store has been opened anew.
  void ExpectMetric(double value) {
    ASSERT_NO_FATAL_FAILURE(ExpectRow(value));
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_ = Open();
    ASSERT_NE(checkpointer_, nullptr);
    ASSERT_NO_FATAL_FAILURE(ExpectRow(value));
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
  }

 private:
  void ExpectRow(double value) {
    const auto info = Find(*checkpointer_, 1);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->evaluations.size(), 1u);
    EXPECT_THAT(info->metrics, testing::Contains(testing::Pair("validation/loss", value)));
    ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}}));
  }
};

TEST_F(HousekeeperFaultsTest, AMetricIsRecordedOnceTheDiskTakesIt) {
  MakeStore(1);
  std::optional<Future> recorded;
  const auto figures = SweepFaults(files_,
                                   {.name = "metric arrival",
                                    .prepare =
                                        [&] {
                                          UseKept();
                                          checkpointer_ = OpenAtRest();
                                        },
                                    .act =
                                        [&] {
                                          recorded = checkpointer_->ReportMetrics(1, "validation", {{"loss", 0.25}});
                                          return checkpointer_->WaitUntilEvaluated();
                                        },
                                    .check =
                                        [&](const absl::Status& status, const InjectedFault& fault) {
                                          EXPECT_TRUE(IsTold(status, fault)) << status;
                                          EXPECT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
                                          EXPECT_THAT(recorded->Wait(), IsOk());
                                          recorded.reset();
                                          ExpectMetric(0.25);
                                        }},
                                   FaultsToRun(1));
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(HousekeeperFaultsTest, AMetricIsLostOnAFailingDiskOnlyIfThatIsSaid) {
  MakeStore(1);
  std::optional<Future> recorded;
  SweepFaults(files_,
              {.name = "metric arrival and close",
               .prepare =
                   [&] {
                     UseKept();
                     checkpointer_ = OpenAtRest();
                   },
               .act =
                   [&] {
                     recorded = checkpointer_->ReportMetrics(1, "validation", {{"loss", 0.25}});
                     const absl::Status status = checkpointer_->Close();
                     checkpointer_.reset();
                     return status;
                   },
               .check =
                   [&](const absl::Status& status, const InjectedFault& fault) {
                     EXPECT_TRUE(IsTold(status, fault)) << status;
                     const absl::Status said = recorded->Wait();
                     recorded.reset();
                     checkpointer_ = Open();
                     ASSERT_NE(checkpointer_, nullptr);
                     ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}}));
                     const auto info = Find(*checkpointer_, 1);
                     ASSERT_TRUE(info);
                     if (said.ok()) {
                       EXPECT_EQ(info->evaluations.size(), 1u);
                     } else {
                       EXPECT_TRUE(IsTold(said, fault)) << said;
                     }
                     EXPECT_THAT(checkpointer_->Close(), IsOk());
                     checkpointer_.reset();
                   }},
              FaultsToRun(2));
}

// While the trainer holds the store: it hears of the report, and tells of it once.
TEST_F(HousekeeperFaultsTest, AWorkersReportIsTakenInOnceTheDiskGivesItOut) {
  MakeStore(1);
  std::atomic<int> told = 0;
  const auto figures = SweepFaults(
      files_,
      {.name = "worker's report",
       .prepare =
           [&] {
             UseKept();
             CheckpointerOptions options = Options();
             options.observer =
                 ObserverOf({.evaluated = [&](int64_t, const Evaluation&) { ++told; }, .warning = [](auto) {}});
             checkpointer_ = Open(std::move(options));
             ASSERT_THAT(checkpointer_->Tidy(), IsOk());
             ASSERT_THAT(other_.Report(1, {.evaluator = "validation", .metrics = {{"loss", 0.5}}}), IsOk());
             told = 0;
           },
       .act = [&] { return checkpointer_->WaitUntilEvaluated(); },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             EXPECT_TRUE(IsTold(status, fault)) << status;
             EXPECT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
             EXPECT_EQ(told, 1);
             ExpectMetric(0.5);
           }},
      FaultsToRun(1));
  EXPECT_TRUE(figures.any_reported());
}

// Of four steps the last two stay, and the first, which is pinned.
TEST_F(HousekeeperFaultsTest, RetentionTakesNothingThatIsToStay) {
  MakeStore(4);
  const auto figures = SweepFaults(
      files_,
      {.name = "pin, retention and deletion",
       .prepare =
           [&] {
             UseKept();
             CheckpointerOptions options = Options();
             options.retention.max_to_keep = 2;
             options.reuse = false;
             checkpointer_ = Open(std::move(options));
           },
       .act =
           [&] {
             absl::Status status = checkpointer_->Pin(1, "a person's");
             if (status.ok()) status = checkpointer_->Tidy();
             return status;
           },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             EXPECT_TRUE(IsTold(status, fault)) << status;
             ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}, {2, {2, kNothing}}, {3, {3}}, {4, {4}}}));
             ASSERT_THAT(checkpointer_->Pin(1, "a person's"), IsOk());
             ASSERT_THAT(checkpointer_->Tidy(), IsOk());
             ASSERT_THAT(checkpointer_->Close(), IsOk());
             checkpointer_.reset();
             ExpectStepsReopened({{1, {1}}, {2, {kNothing}}, {3, {3}}, {4, {4}}});
             const auto end = std::filesystem::directory_iterator();
             EXPECT_EQ(std::distance(std::filesystem::directory_iterator(store_ + "/steps"), end), 3);
           }},
      FaultsToRun(2));
  EXPECT_TRUE(figures.any_reported());
}

// Other processes pin the first of four steps and unpin the second, and ask for the deletion of that and, in vain, of
// the last.
TEST_F(HousekeeperFaultsTest, RequestsAreCarriedOutOnceTheDiskGivesThemOut) {
  {
    auto checkpointer = Open();
    for (int64_t step = 1; step <= 4; ++step) ASSERT_THAT(Save(*checkpointer, step, step), IsOk());
    ASSERT_THAT(checkpointer->Pin(2, ""), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    ASSERT_THAT(other_.Pin(1, "asked for"), IsOk());
    ASSERT_THAT(other_.Unpin(2), IsOk());
    ASSERT_THAT(other_.AskToDelete(2, "asked for"), IsOk());
    ASSERT_THAT(other_.AskToDelete(4, "asked for"), IsOk());
    Keep();
  }
  const auto figures = SweepFaults(
      files_,
      {.name = "requests",
       .prepare =
           [&] {
             UseKept();
             checkpointer_ = OpenAtRest();
           },
       .act = [&] { return checkpointer_->Tidy(); },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             EXPECT_TRUE(IsTold(status, fault)) << status;
             ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}, {2, {2, kNothing}}, {3, {3}}, {4, {4}}}));
             ASSERT_THAT(checkpointer_->Tidy(), IsOk());
             EXPECT_TRUE(Find(*checkpointer_, 1)->pinned);
             EXPECT_EQ(Find(*checkpointer_, 2)->state, StepState::kDeleted);
             EXPECT_EQ(other_.OpenRequests(), 0u);
             ASSERT_THAT(checkpointer_->Close(), IsOk());
             checkpointer_.reset();
             ExpectStepsReopened({{1, {1}}, {2, {kNothing}}, {3, {3}}, {4, {4}}});
           }},
      FaultsToRun(2));
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark
