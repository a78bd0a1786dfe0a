#include "snapshot/housekeeping/housekeeper.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/failing_save.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// One tensor, which arrives when the test lets it: until then its save is in flight.
class LateState final : public State {
 public:
  LateState() { SetDerivedEntries({Entry{.spec = {.name = "late", .dtype = Dtype::kInt32}, .bytes = 4}}); }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    gate.WaitForNotification();
    std::memset(requests[0].destination, 7, 4);
    return absl::OkStatus();
  }
  absl::Status Receive(size_t, std::span<const std::byte>) override { return absl::OkStatus(); }
  absl::Notification gate;
};

TEST_F(HousekeeperTest, RecordsAReportSoThatItSurvives) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1, {{"loss", 2.0}}), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}, {"odd", std::nan("")}}).Wait(), IsOk());
  const StepInfo info = Info(*checkpointer, 1);
  ASSERT_THAT(info.evaluations, SizeIs(1));
  EXPECT_EQ(info.evaluations[0].evaluator, "validation");
  EXPECT_EQ(info.evaluations[0].worker, "trainer");
  EXPECT_EQ(info.metrics.at("loss"), 2.0);
  EXPECT_EQ(info.metrics.at("validation/loss"), 0.5);
  EXPECT_TRUE(std::isnan(info.metrics.at("validation/odd")));
  EXPECT_EQ(checkpointer->BestStep("validation/loss", BestMode::kLowest)->step, 1);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_EQ(Info(*Open(), 1).metrics.at("validation/loss"), 0.5);
}

TEST_F(HousekeeperTest, ALaterReportTakesThePlaceOfAnEarlierOne) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.25}}).Wait(), IsOk());
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, SizeIs(1));
  EXPECT_EQ(Info(*checkpointer, 1).metrics.at("validation/loss"), 0.25);
}

TEST_F(HousekeeperTest, RefusesAReportOnAStepThatThereIsNoneOf) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  EXPECT_THAT(checkpointer->ReportMetrics(2, "validation", {{"loss", 0.5}}).Wait(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no step 2")));
  EXPECT_THAT(*checkpointer->Steps(), SizeIs(1));
  EXPECT_EQ(checkpointer->statistics().reports_rejected, 1u);
}

TEST_F(HousekeeperTest, RefusesNamesThatAreNone) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  for (const char* name : {"", "a/b"}) {
    EXPECT_THAT(checkpointer->ReportMetrics(1, name, {{"loss", 0.5}}).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("evaluator")));
  }
  EXPECT_THAT(checkpointer->ReportMetrics(1, "a", {{"", 0.5}}).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metric")));
}

TEST_F(HousekeeperTest, HoldsAReportUntilTheStepIsCommitted) {
  LateState state;
  auto checkpointer = Open({.staging = Staging::kOverlapped});
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  const Future recorded = checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}});
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_FALSE(recorded.ready());
  state.gate.Notify();
  EXPECT_THAT(recorded.Wait(), IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).metrics.at("validation/loss"), 0.5);
}

TEST_F(HousekeeperTest, RefusesAHeldReportIfTheSaveFails) {
  auto checkpointer = Open();
  files_.SetRule([this](const FailingFileSystem::Call& call) {
    if (call.operation != "Create" || !call.path.ends_with(".tmk")) return absl::OkStatus();
    release_.WaitForNotification();
    return absl::ResourceExhaustedError("ENOSPC");
  });
  auto save = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(save, IsOk());
  const Future recorded = checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}});
  release_.Notify();
  EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_THAT(recorded.Wait(),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("its save failed"), HasSubstr("ENOSPC"))));
  EXPECT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}}).Wait(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("its save failed")));
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, IsEmpty());
}

TEST_F(HousekeeperTest, RecordsAReportOnADamagedStep) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  FlipBit(ShardPath(store_, 2), 4096);
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  ASSERT_EQ(Info(*checkpointer, 2).state, StepState::kDamaged);
  EXPECT_THAT(checkpointer->ReportMetrics(2, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 2).metrics.at("validation/loss"), 0.5);
  EXPECT_EQ(other_.Find(2)->metrics.at("validation/loss"), 0.5);
}

TEST_F(HousekeeperTest, KeepsReportsWhileTheDiskIsFullAndSaysSoOnce) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  FillDisk();
  std::vector<Future> recorded;
  for (int i = 0; i < 5; ++i) {
    recorded.push_back(checkpointer->ReportMetrics(1, "e" + std::to_string(i), {{"loss", i}}));
    EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  }
  EXPECT_THAT(SaveStep(*checkpointer, 2), IsOk()) << "the training goes on";
  for (const Future& future : recorded) EXPECT_FALSE(future.ready());
  EXPECT_EQ(warnings_.Count("ENOSPC"), 1) << testing::PrintToString(warnings_.Get());
  files_.Reset();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  for (const Future& future : recorded) EXPECT_THAT(future.Wait(), IsOk());
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, SizeIs(5));
  FillDisk();
  const Future again = checkpointer->ReportMetrics(2, "e", {{"loss", 1}});
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_EQ(warnings_.Count("ENOSPC"), 2) << "it had worked again in between";
  files_.Reset();
  EXPECT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(again.Wait(), IsOk());
}

TEST_F(HousekeeperTest, ResolvesWhatCannotBeRecordedWithTheReasonWhenItCloses) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  FillDisk();
  const Future recorded = checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}});
  EXPECT_THAT(checkpointer->Close(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1 evaluations could not be recorded, and may be lost"), HasSubstr("ENOSPC"))));
  EXPECT_THAT(checkpointer->Close(), IsOk()) << "it has been told, and closed it is";
  EXPECT_THAT(recorded.Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_EQ(warnings_.Count("1 evaluations could not be recorded"), 1);
  EXPECT_THAT(checkpointer->ReportMetrics(1, "validation", {}).Wait(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(checkpointer->RetentionPlan(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

// A row whose entry gets no name at first, or whose entry may be there all the same, because syncs have failed: its
// own, and those of three entries that were to settle it. What is tried next works.
class RefusedRowTest : public HousekeeperTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    checkpointer_ = Open({}, {.evaluated = [this](int64_t step, const Evaluation& evaluation) {
                           told_.Add(fmt::format("step {} {}", step, evaluation.evaluator));
                         }});
    ASSERT_THAT(SaveStep(*checkpointer_, 1), IsOk());
    ASSERT_THAT(checkpointer_->Tidy(), IsOk());
    const int refusals = GetParam() == std::string_view("Sync") ? 4 : 1;
    files_.SetRule([this, refusals](const FailingFileSystem::Call& call) {
      const bool refused = GetParam() == std::string_view("Sync") ? IsSyncOfEntry(call.operation, call.path)
                                                                  : IsNamingOfEntry(call.operation, call.path);
      return refused && refused_++ < refusals ? absl::ResourceExhaustedError("ENOSPC") : absl::OkStatus();
    });
    recorded_ = checkpointer_->ReportMetrics(1, "validation", {{"loss", 0.5}});
  }

  Lines told_;
  std::atomic<int> refused_ = 0;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;  // whose threads use what is above
  std::optional<Future> recorded_;
};

TEST_P(RefusedRowTest, IsToldOfOnce) {
  checkpointer_->Tidy().IgnoreError();  // ok where the report has woken the housekeeper before, and was refused then
  EXPECT_GE(refused_, 1);
  EXPECT_EQ(warnings_.Count("ENOSPC"), 1);
  EXPECT_THAT(checkpointer_->Tidy(), IsOk());
  EXPECT_THAT(recorded_->Wait(), IsOk());
  EXPECT_THAT(Info(*checkpointer_, 1).evaluations, SizeIs(1));
  EXPECT_EQ(checkpointer_->statistics().reports_recorded, 1u);
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  EXPECT_THAT(told_.Get(), ElementsAre("step 1 validation"));
}

// Of the second one nothing was tried while the first one was refused, and it says nothing new.
TEST_P(RefusedRowTest, IsToldOfOnceWhereAnotherOneSaysTheSame) {
  const Future again = checkpointer_->ReportMetrics(1, "validation", {{"loss", 0.5}});
  checkpointer_->Tidy().IgnoreError();
  EXPECT_THAT(checkpointer_->Tidy(), IsOk());
  EXPECT_THAT(recorded_->Wait(), IsOk());
  EXPECT_THAT(again.Wait(), IsOk());
  EXPECT_EQ(checkpointer_->statistics().reports_recorded, 1u);
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  EXPECT_THAT(told_.Get(), ElementsAre("step 1 validation"));
}

TEST_P(RefusedRowTest, IsNotCalledLostByAClose) {
  EXPECT_THAT(checkpointer_->Close(), IsOk());
  EXPECT_GE(refused_, 1);
  EXPECT_THAT(recorded_->Wait(), IsOk());
  EXPECT_THAT(told_.Get(), ElementsAre("step 1 validation"));
  EXPECT_EQ(warnings_.Count("could not be recorded"), 0);
}

INSTANTIATE_TEST_SUITE_P(Calls, RefusedRowTest, testing::Values("Naming", "Sync"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(HousekeeperTest, RecordsAnEvaluationOfASnapshotThatIsNotSaved) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation"},
                                         [](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           return Verdict(Metrics{{"loss", 0.5}});
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  trainer_.SetTo(2);
  auto save = checkpointer->Evaluate(2, trainer_.state, {.metrics = {{"loss", 3}}});
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  const StepInfo info = Info(*checkpointer, 2);
  EXPECT_EQ(info.state, StepState::kUnsaved);
  EXPECT_THAT(info.metrics, UnorderedElementsAre(Pair("loss", 3), Pair("validation/loss", 0.5)));
  EXPECT_EQ(checkpointer->LatestStep()->step, 1);
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_THAT(report->passed_over, IsEmpty());
  EXPECT_THAT(checkpointer->Restore(2, trainer_.state),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("not committed"), HasSubstr("unsaved"))));
  EXPECT_EQ(checkpointer->statistics().saves_committed, 1u);
  EXPECT_EQ(checkpointer->statistics().in_flight, 0);
  EXPECT_EQ(save_lines_.Count("step 2 not saved, only evaluated"), 1);
}

TEST_F(HousekeeperTest, RefusesToEvaluateAStepThatIsCommitted) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  EXPECT_THAT(checkpointer->Evaluate(1, trainer_.state),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step 1")));
}

TEST_F(HousekeeperTest, AnEvaluationIsNoSaveToTheIntervalInSeconds) {
  absl::Time now = absl::UnixEpoch();
  now_ = [&] { return now; };
  auto checkpointer = Open({.save_interval_seconds = 10});
  now += absl::Seconds(10);
  auto evaluation = checkpointer->Evaluate(1, trainer_.state);
  ASSERT_THAT(evaluation, IsOk());
  ASSERT_THAT(evaluation->committed().Wait(), IsOk());
  EXPECT_TRUE(checkpointer->ShouldSave(2));
}

TEST_F(HousekeeperTest, MakesARowAndAWarningOfAnEvaluatorThatFailsOrThrows) {
  Lines evaluated;
  auto checkpointer =
      Open({}, {.evaluated = [&](int64_t step, const Evaluation& row) {
             evaluated.Add(std::to_string(step) + " " + row.evaluator + " " + std::string(OutcomeName(row.outcome)));
           }});
  ASSERT_THAT(
      checkpointer->AddEvaluator(
          {.name = "fails"}, [](const Snapshot&) -> absl::StatusOr<Verdict> { return absl::InternalError("no data"); }),
      IsOk());
  ASSERT_THAT(checkpointer->AddEvaluator(
                  {.name = "throws"},
                  [](const Snapshot&) -> absl::StatusOr<Verdict> { throw std::runtime_error("out of range"); }),
              IsOk());
  EXPECT_THAT(checkpointer->AddEvaluator({.name = "fails"}, [](const Snapshot&) { return Verdict(); }),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("fails")));
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(evaluated.Get(), UnorderedElementsAre("1 fails failed", "1 throws failed"));
  EXPECT_EQ(warnings_.Count("evaluator 'fails' failed at step 1: "), 1);
  EXPECT_EQ(warnings_.Count("no data"), 1);
  EXPECT_EQ(warnings_.Count("out of range"), 1);
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, SizeIs(2));
  EXPECT_EQ(checkpointer->statistics().background.at("evaluate").count, 2u);
}

TEST_F(HousekeeperTest, TellsOfCommitsAndFailures) {
  Lines calls;
  auto checkpointer =
      Open({}, {.committed =
                    [&](const StepInfo& info) {
                      calls.Add("committed " + std::to_string(info.step) + " " + std::to_string(info.attempt.size()));
                    },
                .failed =
                    [&](int64_t step, const absl::Status& status) {
                      calls.Add("failed " + std::to_string(step) + " " + std::string(status.message()));
                    }});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  FailSave(files_, "Create", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(SaveStep(*checkpointer, 2), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  files_.Reset();
  EXPECT_THAT(calls.Get(), ElementsAre("committed 1 32", AllOf(HasSubstr("failed 2"), HasSubstr("ENOSPC"))));
  EXPECT_THAT(save_lines_.Get(), ElementsAre(HasSubstr("step 1 committed: blocked"), HasSubstr("step 2 failed: ")));
  const CheckpointerStatistics statistics = checkpointer->statistics();
  EXPECT_EQ(statistics.saves_committed, 1u);
  EXPECT_EQ(statistics.saves_failed, 1u);
  EXPECT_EQ(statistics.last_committed_step, 1);
  EXPECT_EQ(statistics.blocked.at("copy").count, 2u);
  EXPECT_EQ(statistics.background.at("commit").count, 1u);
  EXPECT_GT(statistics.staging_bytes_max, 0u);
}

TEST_F(HousekeeperTest, WarnsOfCallbacksThatThrowAndGoesOn) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1, .keep = [](const StepInfo&) -> bool { throw 3; }}},
                           {.committed = [](const StepInfo&) { throw std::runtime_error("first"); },
                            .evaluated = [](int64_t, const Evaluation&) { throw std::runtime_error("second"); },
                            .save_line = [](std::string_view) { throw std::runtime_error("third"); }});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 1}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(warnings_.Count("CheckpointObserver::Committed threw: first"), 2);
  EXPECT_EQ(warnings_.Count("CheckpointObserver::Evaluated threw: second"), 1);
  EXPECT_EQ(warnings_.Count("CheckpointObserver::SaveLine threw: third"), 2);
  EXPECT_GE(warnings_.Count("RetentionOptions::keep threw something"), 1);
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2)) << "what is asked and does not answer stays";
}

TEST_F(HousekeeperTest, ACallbackOnItsThreadMayPinAndIsRefusedToWaitForItself) {
  absl::Status pinned = absl::UnknownError("not called");
  absl::Status tidied;
  AsyncCheckpointer* raw = nullptr;
  auto checkpointer = Open({}, {.evaluated = [&](int64_t step, const Evaluation&) {
                             pinned = raw->Pin(step);
                             tidied = raw->Tidy();
                           }});
  raw = checkpointer.get();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 1}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(pinned, IsOk());
  EXPECT_THAT(tidied, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("housekeeping thread")));
}

TEST_F(HousekeeperTest, ReplacesTheStatisticsFileAfterASaveAndWarnsOnceIfItCannot) {
  const std::string path = directory_ / "tidemark.prom";
  auto checkpointer = Open({.metrics_file = path});
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    return call.path.starts_with(path) ? absl::ResourceExhaustedError("no room for statistics") : absl::OkStatus();
  });
  for (int64_t step : {1, 2}) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
  }
  EXPECT_EQ(warnings_.Count("no room for statistics"), 1);
  files_.Reset();
  ASSERT_THAT(SaveStep(*checkpointer, 3), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  auto text = storage::ReadSmallFile(storage::PosixFileSystem(), path, 1 << 20);
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text,
              AllOf(HasSubstr("tidemark_saves_committed_total 3\n"), HasSubstr("tidemark_last_committed_step 3\n")));
}

TEST_F(HousekeeperTest, PassesOverUnhealthySteps) {
  absl::Notification go_on;  // outlives the evaluator's thread
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health", .when_lagging = WhenLagging::kBlock},
                                         [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           if (snapshot.step() < 2) return Verdict();
                                           go_on.WaitForNotification();
                                           return Verdict(Metrics{}, "3 NaN in model.weight");
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  go_on.Notify();  // the restore has to wait for what comes of it
  auto report = checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(trainer_.IsAt(1));
  EXPECT_THAT(report->passed_over, ElementsAre(Pair(2, "unhealthy: health: 3 NaN in model.weight")));
  EXPECT_THAT(checkpointer->Restore(2, trainer_.state, {.healthy_only = true}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("unhealthy")));
  EXPECT_EQ(checkpointer->RestoreLatest(trainer_.state)->step, 2);
}

TEST_F(HousekeeperTest, LooksForReportsInEveryInterval) {
  absl::Notification told;
  auto checkpointer = Open({.tuning = {.poll_interval = absl::Milliseconds(1)}},
                           {.evaluated = [&](int64_t, const Evaluation&) { told.Notify(); }});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(other_.Report(1, {.evaluator = "validation"}), IsOk());
  told.WaitForNotification();  // no call asks for a round
}

TEST_F(HousekeeperTest, CountsAStepOnceThatTwoWorkersOfOneNameHaveEvaluated) {
  std::atomic<int> told = 0;
  auto checkpointer = Open({}, {.evaluated = [&](int64_t, const Evaluation&) { ++told; }});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  Evaluation evaluation{.evaluator = "validation", .metrics = {{"loss", 3}}};
  for (const char* worker : {"one", "two"}) {
    evaluation.worker = worker;
    evaluation.took += absl::Seconds(1);
    ASSERT_THAT(other_.Report(1, evaluation), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    EXPECT_EQ(checkpointer->statistics().reports_recorded, 1u);
    EXPECT_EQ(told, 1);
  }
  EXPECT_EQ(Info(*checkpointer, 1).evaluations.at(0).worker, "one");
}

TEST_F(HousekeeperTest, WarnsOfAnEvaluationOfAWorkerThatFailed) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(other_.Report(1, {.evaluator = "validation",
                                .worker = "pid 7 on node-3",
                                .outcome = Evaluation::Outcome::kFailed,
                                .reason = "no data"}),
              IsOk());
  for (int i = 0; i < 2; ++i) ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(warnings_.Count("evaluator 'validation' of pid 7 on node-3 failed at step 1: no data"), 1);
}

// A reader has what a worker reports at once; the trainer says once that it cannot read it, and takes it in later.
TEST_F(HousekeeperTest, SaysThatTheReportsOfWorkersCannotBeRead) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(other_.Report(1, {.evaluator = "validation", .metrics = {{"loss", 3}}}), IsOk());
  files_.SetRule([](const FailingFileSystem::Call& call) {
    const bool read = call.operation == "OpenForRead" && IsInJournal(call.path);
    return read ? absl::InternalError("EIO") : absl::OkStatus();
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
    EXPECT_THAT(checkpointer->WaitUntilEvaluated(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
  EXPECT_EQ(checkpointer->statistics().reports_recorded, 0u);
  EXPECT_EQ(warnings_.Count("what other processes have recorded cannot be read"), 1)
      << testing::PrintToString(warnings_.Get());
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(checkpointer->statistics().reports_recorded, 1u);
  EXPECT_EQ(Info(*checkpointer, 1).metrics.at("validation/loss"), 3);
}

TEST_F(HousekeeperTest, SaysInTheSavesLineWhichEvaluatorWasLeftOut) {
  absl::Notification gate;  // outlives the evaluator's thread
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kSkip},
                                         [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           gate.WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  gate.Notify();
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_EQ(save_lines_.Count("step 2 committed"), 1);
  EXPECT_EQ(save_lines_.Count("; validation skipped: "), 1) << testing::PrintToString(save_lines_.Get());
  EXPECT_THAT(checkpointer->statistics().skipped, Contains(Key(HasSubstr("evaluator validation: "))));
  EXPECT_EQ(Info(*checkpointer, 2).evaluations.at(0).outcome, Evaluation::Outcome::kSkipped);
}

}  // namespace
}  // namespace tidemark
