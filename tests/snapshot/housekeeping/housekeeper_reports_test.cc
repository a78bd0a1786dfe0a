// Reports that wait for the housekeeper together.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
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
#include "tests/storage/store/test_store.h"

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

  // As in ReportDuringARound, on a disk on which only the second of the next entries gets a name, until files_ is
  // reset.
  void ReportToADiskThatRefuses(const absl::Status& why, std::function<void()> report) {
    when_first_ = [this, why, report = std::move(report)] {
      report();
      files_.SetRule([why, count = 0](const FailingFileSystem::Call& call) mutable {
        return IsNamingOfEntry(call.operation, call.path) && ++count != 2 ? why : absl::OkStatus();
      });
    };
    EXPECT_THAT(checkpointer_->ReportMetrics(1, "first", {{std::string(why.message()), 1}}).Wait(), IsOk());
  }

  int64_t Appends() const {
    const std::vector<FailingFileSystem::Call> calls = files_.calls();
    return std::count_if(calls.begin(), calls.end(), [](const FailingFileSystem::Call& call) {
      return IsNamingOfEntry(call.operation, call.path);
    });
  }

  Lines told_;
  std::function<void()> when_first_ = [] {};
  std::vector<Future> recorded_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;  // whose thread uses what is above
};

class WaitingReportsOfAStepTest : public WaitingReportsTest, public testing::WithParamInterface<int64_t> {};

TEST_P(WaitingReportsOfAStepTest, AreRecordedInOneEntry) {
  ReportDuringARound([this] {
    for (const char* evaluator : {"c", "a", "b"}) Report(GetParam(), evaluator, 0.5);
  });
  for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
  EXPECT_EQ(Appends(), 1);
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
  EXPECT_EQ(Appends(), 2);
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
  EXPECT_EQ(Appends(), 1);
  EXPECT_EQ(checkpointer_->statistics().reports_recorded, 9u) << "with that of step 2";
}

// A spare is written and synced, gets its number, and the folder is synced; the index is not. What is read is the
// entry, once it has its name: no record and no file of the step. It was 6 syncs and 8 reads while reports were files.
TEST_F(WaitingReportsTest, CostTwoSyncsAndOneRead) {
  ASSERT_THAT(checkpointer_->Tidy(), IsOk());  // a spare is there, and the thread is at rest
  std::vector<FailingFileSystem::Call> calls;
  when_first_ = [&] { calls = files_.calls(); };
  files_.Reset();
  EXPECT_THAT(checkpointer_->ReportMetrics(1, "first", {{"loss", 0.5}}).Wait(), IsOk());
  std::map<std::string, int> counts;
  for (const FailingFileSystem::Call& call : calls) {
    ++counts[call.operation.starts_with("Sync") ? "syncs" : call.operation];
    EXPECT_EQ(call.path.find("/steps/"), std::string::npos) << call.operation << " " << call.path;
  }
  EXPECT_EQ(counts["syncs"], 2) << testing::PrintToString(counts);
  EXPECT_EQ(counts["ReadAt"], 1) << testing::PrintToString(counts);
  EXPECT_EQ(counts["Create"], 0) << testing::PrintToString(counts);
}

// Step 1 is refused first. After an error of the disk as a whole the other step is first when it is tried again.
TEST_F(WaitingReportsTest, OfAnotherStepAreRecordedWhereOneRefuses) {
  for (const absl::Status& why : {absl::PermissionDeniedError("EACCES"), absl::InternalError("EIO")}) {
    SCOPED_TRACE(why.ToString());
    recorded_.clear();
    ReportToADiskThatRefuses(why, [this] {
      Report(1, "a", 1);
      Report(1, "a", 2);
      Report(2, "a", 3);
    });
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(checkpointer_->Tidy(), StatusIs(why.code(), HasSubstr(std::string(why.message()))));
    }
    EXPECT_THAT(recorded_[2].Wait(), IsOk());
    EXPECT_FALSE(recorded_[0].ready());
    EXPECT_FALSE(recorded_[1].ready());
    files_.Reset();
    EXPECT_THAT(checkpointer_->Tidy(), IsOk());
    for (const Future& future : recorded_) EXPECT_THAT(future.Wait(), IsOk());
    EXPECT_EQ(Info(*checkpointer_, 1).metrics.at("a/loss"), 2) << "in the order in which they came";
    ASSERT_THAT(checkpointer_->ReportMetrics(1, "a", {{"loss", 0}}).Wait(), IsOk());
    ASSERT_THAT(checkpointer_->ReportMetrics(2, "a", {{"loss", 0}}).Wait(), IsOk());
  }
}

TEST_F(WaitingReportsTest, AreEachToldWhyTheyWereNotRecordedAndAllTriedBeforeItCloses) {
  ReportToADiskThatRefuses(absl::ResourceExhaustedError("ENOSPC"), [this] {
    Report(1, "a", 1);
    Report(2, "a", 3);
  });
  checkpointer_->Close().IgnoreError();
  EXPECT_THAT(recorded_[0].Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_THAT(recorded_[1].Wait(), IsOk());
}

class ReportsOfAnOldHolderTest : public HousekeeperTest {
 protected:
  // Another process opens the store for writing, because the lock does not reach it.
  void OpenElsewhere() {
    const std::string lock = store_ + "/LOCK";
    std::filesystem::rename(lock, lock + ".own");
    std::string warnings;
    EXPECT_THAT(storage::OpenStore(store_, &warnings), IsOk());
    std::filesystem::rename(lock + ".own", lock);
  }
};

TEST_F(ReportsOfAnOldHolderTest, AreRefusedAndNotTriedForEver) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  OpenElsewhere();
  const auto refused =
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process has opened the store"));
  for (const int64_t step : {1, 2}) {
    const Future report = checkpointer->ReportMetrics(step, "validation", {{"loss", 0.5}});
    checkpointer->WaitUntilEvaluated().IgnoreError();  // for a round
    ASSERT_TRUE(report.ready()) << "step " << step;
    EXPECT_THAT(report.Wait(), refused);
  }
  EXPECT_THAT(checkpointer->Close(), IsOk()) << "nothing was lost that was not told";
}

TEST_F(ReportsOfAnOldHolderTest, AreRefusedBehindTheRowOfAnEvaluatorThatIsKept) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "own"},
                                         [this](const Snapshot&) {
                                           release_.WaitForNotification();
                                           return Metrics{};
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  OpenElsewhere();
  release_.Notify();
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  const Future report = checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}});
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  ASSERT_TRUE(report.ready());
  EXPECT_THAT(report.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
  EXPECT_EQ(warnings_.Count("evaluations cannot be recorded"), 1) << testing::PrintToString(warnings_.Get());
}

// The commit's entry is there, but no sync says that it survives.
class ReportsOfAnUnknownCommitTest : public HousekeeperTest {
 protected:
  void FailSyncs() {
    files_.SetRule([](const FailingFileSystem::Call& call) {
      return IsSyncOfEntry(call.operation, call.path) ? absl::ResourceExhaustedError("ENOSPC") : absl::OkStatus();
    });
  }
};

TEST_F(ReportsOfAnUnknownCommitTest, CountWhereTheStepTurnsOutCommitted) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health"},
                                         [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           Verdict verdict;
                                           if (snapshot.step() == 2) verdict.unhealthy = "diverged";
                                           return verdict;
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  FailSyncs();
  EXPECT_THAT(SaveStep(*checkpointer, 2), StatusIs(absl::StatusCode::kUnknown, HasSubstr("not known whether step 2")));
  const Future report = checkpointer->ReportMetrics(2, "validation", {{"loss", 0.5}});
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_FALSE(report.ready());
  files_.Reset();
  auto restored = checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true});
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ(restored->step, 1);
  EXPECT_THAT(report.Wait(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 2).unhealthy(), "health: diverged");
  EXPECT_EQ(warnings_.Count("is dropped"), 0) << testing::PrintToString(warnings_.Get());
}

TEST_F(ReportsOfAnUnknownCommitTest, CountAlsoWhereTheyCameBeforeItsEnd) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  std::vector<Future> reports;
  FailSyncs();
  files_.SetGate([&](const std::string& operation, const std::string& path) {
    if (!IsNamingOfEntry(operation, path) || !reports.empty()) return;
    reports.push_back(checkpointer->ReportMetrics(2, "validation", {{"loss", 0.5}}));
  });
  EXPECT_THAT(SaveStep(*checkpointer, 2), StatusIs(absl::StatusCode::kUnknown, HasSubstr("not known whether step 2")));
  files_.SetGate(nullptr);
  files_.Reset();
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].Wait(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 2).metrics.at("validation/loss"), 0.5);
}

}  // namespace
}  // namespace tidemark
