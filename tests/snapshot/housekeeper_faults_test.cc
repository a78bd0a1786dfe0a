// Metrics, workers' reports, retention and pins under every single fault of the disk: each is done or says what failed,
// steps that are to stay stay, and once the disk is healthy again what was to be done is done.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/request_inbox.h"
#include "tests/snapshot/faulty_store.h"

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
                                          checkpointer_ = Open();
                                        },
                                    .act =
                                        [&] {
                                          recorded = checkpointer_->ReportMetrics(1, "validation", {{"loss", 0.25}});
                                          return checkpointer_->WaitUntilEvaluated();
                                        },
                                    .check =
                                        [&](const absl::Status& status, const InjectedFault& fault) {
                                          EXPECT_TRUE(status.ok() || fault.Explains(status));
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
                     checkpointer_ = Open();
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
                     EXPECT_TRUE(status.ok() || fault.Explains(status));
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
                       EXPECT_TRUE(fault.Explains(said)) << said;
                     }
                     EXPECT_THAT(checkpointer_->Close(), IsOk());
                     checkpointer_.reset();
                   }},
              FaultsToRun(2));
}

TEST_F(HousekeeperFaultsTest, AWorkersReportIsTakenInOnceTheDiskGivesItOut) {
  {
    auto checkpointer = Open();
    ASSERT_THAT(Save(*checkpointer, 1, 1), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    std::string warnings;
    auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
    ASSERT_THAT(store, IsOk());
    auto record = (*store)->manifest().Find(1);
    ASSERT_THAT(record, IsOk());
    storage::MetricReport report;
    report.store = (*store)->id();
    report.step = 1;
    report.attempt = storage::AttemptId{*storage::FromHex((*record)->info.attempt)};
    report.evaluation.evaluator = "validation";
    report.evaluation.metrics = {{"loss", 0.5}};
    ASSERT_THAT(storage::DeliverReport(files_, (*store)->layout(), report), IsOk());
    store->reset();
    Keep();
  }
  const auto figures = SweepFaults(files_,
                                   {.name = "worker's report",
                                    .prepare =
                                        [&] {
                                          UseKept();
                                          checkpointer_ = Open();
                                        },
                                    .act = [&] { return checkpointer_->WaitUntilEvaluated(); },
                                    .check =
                                        [&](const absl::Status& status, const InjectedFault& fault) {
                                          EXPECT_TRUE(status.ok() || fault.Explains(status));
                                          EXPECT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
                                          ExpectMetric(0.5);
                                          EXPECT_FALSE(std::filesystem::exists(store_ + "/quarantine"));
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
             EXPECT_TRUE(status.ok() || fault.Explains(status));
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

// To pin the first of four steps, to unpin the second, and to delete that and, in vain, the last.
TEST_F(HousekeeperFaultsTest, RequestsAreCarriedOutOnceTheDiskGivesThemOut) {
  {
    auto checkpointer = Open();
    for (int64_t step = 1; step <= 4; ++step) ASSERT_THAT(Save(*checkpointer, step, step), IsOk());
    ASSERT_THAT(checkpointer->Pin(2, ""), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
    ASSERT_THAT(store, IsOk());
    int64_t asked = 0;
    const auto ask = [&](storage::StoreRequest::Kind kind, int64_t step) {
      const auto record = (*store)->manifest().Find(step);
      ASSERT_THAT(record, IsOk());
      const storage::StoreRequest request{.kind = kind,
                                          .store = (*store)->id(),
                                          .step = step,
                                          .attempt = storage::AttemptId{*storage::FromHex((*record)->info.attempt)},
                                          .text = "asked for",
                                          .asker = "somebody",
                                          .asked = absl::FromUnixSeconds(++asked)};
      ASSERT_THAT(storage::DeliverRequest(files_, (*store)->layout(), request), IsOk());
    };
    ask(storage::StoreRequest::Kind::kPin, 1);
    ask(storage::StoreRequest::Kind::kUnpin, 2);
    ask(storage::StoreRequest::Kind::kDelete, 2);
    ask(storage::StoreRequest::Kind::kDelete, 4);
    store->reset();
    Keep();
  }
  const auto figures = SweepFaults(
      files_,
      {.name = "requests",
       .prepare =
           [&] {
             UseKept();
             checkpointer_ = Open();
           },
       .act = [&] { return checkpointer_->Tidy(); },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             EXPECT_TRUE(status.ok() || fault.Explains(status));
             ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}, {2, {2, kNothing}}, {3, {3}}, {4, {4}}}));
             ASSERT_THAT(checkpointer_->Tidy(), IsOk());
             EXPECT_TRUE(Find(*checkpointer_, 1)->pinned);
             EXPECT_EQ(Find(*checkpointer_, 2)->state, StepState::kDeleted);
             EXPECT_TRUE(std::filesystem::is_empty(store_ + "/inbox"));
             ASSERT_THAT(checkpointer_->Close(), IsOk());
             checkpointer_.reset();
             ExpectStepsReopened({{1, {1}}, {2, {kNothing}}, {3, {3}}, {4, {4}}});
           }},
      FaultsToRun(2));
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark
