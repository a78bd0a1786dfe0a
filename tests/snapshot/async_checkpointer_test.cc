#include "tidemark/async_checkpointer.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class AsyncCheckpointerTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {},
                                          std::function<absl::Time()> now = absl::Now) {
    options.directory = store_;
    options.observer = ObserverOf({.warning = [this](std::string_view line) {
      std::lock_guard lock(warnings_mutex_);
      warnings_ += std::string(line) + "\n";
    }});
    auto checkpointer = CheckpointerOnFileSystem::OpenWithClock(std::move(now), std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  void SaveStep(AsyncCheckpointer& checkpointer, TestTrainer& trainer, int64_t step, SaveOptions options = {}) {
    trainer.SetTo(step);
    auto save = checkpointer.Save(step, trainer.state, std::move(options));
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "run/ckpt";
  std::mutex warnings_mutex_;
  std::string warnings_;
};

TEST_F(AsyncCheckpointerTest, SaysWhenAStepIsCommitted) {
  auto checkpointer = Open();
  TestTrainer trainer;
  EXPECT_THAT(checkpointer->Committed(10).Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 10")));
  ASSERT_THAT(checkpointer->Save(10, trainer.state), IsOk());
  EXPECT_THAT(checkpointer->Committed(10).Wait(), IsOk()) << "in flight, or committed by now";
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_TRUE(checkpointer->Committed(10).ready());
  EXPECT_THAT(checkpointer->Committed(10).Wait(), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->Committed(10).Wait(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("close")));
}

TEST_F(AsyncCheckpointerTest, RestoresExactlyWhatWasSaved) {
  {
    auto checkpointer = Open();
    TestTrainer trainer;
    EXPECT_THAT(checkpointer->RestoreLatest(trainer.state),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("no step")));
    for (int64_t step : {10, 20, 30}) SaveStep(*checkpointer, trainer, step);
    EXPECT_THAT(checkpointer->Close(), IsOk());
  }
  auto checkpointer = Open();
  TestTrainer trainer;
  auto report = checkpointer->RestoreLatest(trainer.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 30);
  EXPECT_THAT(report->passed_over, IsEmpty());
  EXPECT_TRUE(trainer.IsAt(30));
  ASSERT_THAT(checkpointer->Restore(10, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(10));
  EXPECT_THAT(warnings_, Not(HasSubstr("step")));
}

TEST_F(AsyncCheckpointerTest, LetsTheTrainerChangeItsTensorsOnceStaged) {
  auto checkpointer = Open();
  TestTrainer trainer;
  trainer.SetTo(1);
  auto save = checkpointer->Save(1, trainer.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_TRUE(save->staged().ready());
  trainer.SetTo(2);
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer->Restore(1, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(1));
}

TEST_F(AsyncCheckpointerTest, StagesBehindTheTrainerWhenOverlapped) {
  GatedState state;
  auto checkpointer = Open();
  auto save = checkpointer->Save(1, state, {.staging = Staging::kOverlapped});
  ASSERT_THAT(save, IsOk());
  EXPECT_FALSE(save->staged().ready());
  EXPECT_FALSE(save->committed().ready());
  state.gate.Notify();
  ASSERT_THAT(checkpointer->WaitUntilStaged(), IsOk());
  EXPECT_TRUE(save->staged().ready());
  state.late = 8;
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
  EXPECT_EQ(state.late, 7);
}

TEST_F(AsyncCheckpointerTest, WaitsForAnOverlappedSaveBeforeTheNext) {
  // Notes whether Save looks at the second state while the first is still being copied.
  class NotingState final : public State {
   public:
    absl::Status Refresh() override {
      first_was_staged = first.staged().ready();
      refreshed = true;
      return State::Refresh();
    }
    SaveHandle first;
    bool first_was_staged = false;
    std::atomic<bool> refreshed = false;
  } second;
  GatedState gated;
  auto checkpointer = Open({.staging = Staging::kOverlapped});
  auto first = checkpointer->Save(1, gated);
  ASSERT_THAT(first, IsOk());
  second.first = *first;
  absl::Status saved;
  std::thread saver([&] { saved = checkpointer->Save(2, second).status(); });
  // Gives a Save that does not wait the time to show it; one that does never gets here before the gate opens.
  for (int i = 0; i < 100'000 && !second.refreshed; ++i) std::this_thread::yield();
  gated.gate.Notify();
  saver.join();
  ASSERT_THAT(saved, IsOk());
  EXPECT_TRUE(second.first_was_staged);
  EXPECT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_EQ(checkpointer->Steps()->size(), 2u);
}

TEST_F(AsyncCheckpointerTest, ReportsACopyThatFailsBehindTheTrainer) {
  for (bool look : {true, false}) {
    GatedState state;
    state.copy_status = absl::InternalError("device on fire");
    state.gate.Notify();
    auto checkpointer = Open({.staging = Staging::kOverlapped});
    auto save = checkpointer->Save(1, state);
    ASSERT_THAT(save, IsOk());
    const auto on_fire = StatusIs(absl::StatusCode::kInternal, HasSubstr("on fire"));
    if (look) {
      EXPECT_THAT(checkpointer->WaitUntilStaged(), on_fire);
      EXPECT_THAT(checkpointer->Close(), IsOk());
    } else {
      EXPECT_THAT(checkpointer->Close(), on_fire);
    }
    EXPECT_THAT(save->committed().Wait(), on_fire);
  }
  TestTrainer trainer;
  EXPECT_THAT(Open()->RestoreLatest(trainer.state), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no step")));
}

TEST_F(AsyncCheckpointerTest, ABlockingSaveWhoseCopyFailsIsWhatWaitUntilStagedReports) {
  absl::Time now = absl::UnixEpoch();
  auto checkpointer = Open({.save_interval_seconds = 3600}, [&] { return now; });
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1);
  GatedState state;
  state.copy_status = absl::InternalError("device on fire");
  state.gate.Notify();
  now += absl::Hours(2);
  const auto on_fire = StatusIs(absl::StatusCode::kInternal, HasSubstr("on fire"));
  EXPECT_THAT(checkpointer->Save(2, state), on_fire);
  EXPECT_THAT(checkpointer->WaitUntilStaged(), on_fire);
  EXPECT_THAT(checkpointer->WaitUntilStaged("late"), on_fire);
  EXPECT_TRUE(checkpointer->ShouldSave(3));  // a save that failed is none
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(AsyncCheckpointerTest, RefusesAStepThatExistsUnlessAskedToReplaceIt) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 5);
  const std::string old_shard = ShardPath(store_, 5);
  EXPECT_THAT(checkpointer->Save(5, trainer.state),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step 5 is committed")));
  trainer.SetTo(99);
  auto save = checkpointer->Save(5, trainer.state, {.overwrite = true});
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  trainer.SetTo(0);
  ASSERT_THAT(checkpointer->Restore(5, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(99));
  EXPECT_FALSE(std::filesystem::exists(old_shard));
  EXPECT_EQ(checkpointer->Steps()->size(), 1u);
}

TEST_F(AsyncCheckpointerTest, KeepsMetricsAndMetadata) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1,
           {.metrics = {{"loss", 0.25}, {"bad", std::numeric_limits<double>::quiet_NaN()}},
            .user_metadata = R"({"run": "a"})"});
  auto steps = checkpointer->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_EQ(steps->size(), 1u);
  EXPECT_EQ(steps->front().metrics.at("loss"), 0.25);
  EXPECT_TRUE(std::isnan(steps->front().metrics.at("bad")));
  EXPECT_EQ(steps->front().user_metadata, R"({"run": "a"})");
  EXPECT_EQ(steps->front().state, StepState::kCommitted);
  EXPECT_GT(steps->front().blocked, absl::ZeroDuration());
  EXPECT_EQ(steps->front().logical_bytes, 300'000 * 4 + 17 * 8 + 8 + trainer.note.size());
}

TEST_F(AsyncCheckpointerTest, FindsTheLatestAndTheBestStep) {
  TestTrainer trainer;
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->LatestStep(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no step is committed")));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [step, loss] : std::vector<std::pair<int64_t, double>>{{1, 0.5}, {2, 0.25}, {3, 0.75}, {4, nan}}) {
    auto save = checkpointer->Save(step, trainer.state, {.metrics = {{"loss", loss}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  EXPECT_EQ(checkpointer->LatestStep()->step, 4);
  EXPECT_EQ(checkpointer->BestStep("loss", BestMode::kLowest)->step, 2);
  EXPECT_EQ(checkpointer->BestStep("loss", BestMode::kHighest)->step, 3);
  EXPECT_THAT(checkpointer->BestStep("accuracy", BestMode::kHighest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("that is healthy has a finite metric 'accuracy'")));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->LatestStep(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(checkpointer->BestStep("loss", BestMode::kLowest),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(AsyncCheckpointerTest, RemembersWhichValueOfAMetricIsTheBest) {
  TestTrainer trainer;
  const auto best = [&](AsyncCheckpointer& checkpointer, std::string_view metric) -> int64_t {
    auto step = checkpointer.BestStep(metric);
    return step.ok() ? step->step : -1;
  };
  {
    auto checkpointer = Open({.retention = {.keep_best = {{.metric = "x", .mode = BestMode::kHighest}}}});
    const auto evaluate = [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
      return Metrics{{"y", static_cast<double>(snapshot.step())}};
    };
    ASSERT_THAT(checkpointer->AddEvaluator(
                    {.name = "v", .when_lagging = WhenLagging::kBlock, .best = {{"y", BestMode::kHighest}}}, evaluate),
                IsOk());
    for (const int64_t step : {1, 2, 3}) {
      SaveStep(*checkpointer, trainer, step, {.metrics = {{"x", -step}, {"accuracy", step}, {"z", step}}});
    }
    ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
    EXPECT_EQ(best(*checkpointer, "x"), 1);
  }
  auto checkpointer = Open();
  EXPECT_EQ(best(*checkpointer, "x"), 1);
  EXPECT_EQ(best(*checkpointer, "v/y"), 3);
  EXPECT_EQ(best(*checkpointer, "accuracy"), 3) << "by its name";
  EXPECT_THAT(checkpointer->BestStep("z"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'z'")));
}

TEST_F(AsyncCheckpointerTest, RefusesAKeepBestOfWhichNothingTellsTheEnd) {
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_, .retention = {.keep_best = {{.metric = "x"}}}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keep_best[0].mode is not set")));
}

// The name 'score_gap' says that the highest is the best; the evaluator, which is added after Open, says the lowest.
TEST_F(AsyncCheckpointerTest, KeepsTheBestStepsInTheModeThatAnEvaluatorRecords) {
  TestTrainer trainer;
  auto checkpointer = Open({.retention = {.max_to_keep = 1, .keep_best = {{.metric = "probe/score_gap", .count = 1}}}});
  const auto evaluate = [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    return Metrics{{"score_gap", static_cast<double>(snapshot.step())}};
  };
  ASSERT_THAT(
      checkpointer->AddEvaluator(
          {.name = "probe", .when_lagging = WhenLagging::kBlock, .best = {{"score_gap", BestMode::kLowest}}}, evaluate),
      IsOk());
  for (const int64_t step : {1, 2, 3, 4}) {
    SaveStep(*checkpointer, trainer, step);
    ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  }
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(checkpointer->BestStep("probe/score_gap")->step, 1);
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(AsyncCheckpointerTest, RefusesAnEvaluatorWhoseBestContradictsKeepBest) {
  auto checkpointer = Open({.retention = {.keep_best = {{.metric = "v/y", .mode = BestMode::kLowest}}}});
  const auto evaluate = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Metrics{}; };
  EXPECT_THAT(checkpointer->AddEvaluator({.name = "v", .best = {{"y", BestMode::kHighest}}}, evaluate),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the highest value of 'v/y' is the best, and RetentionOptions::keep_best keeps the "
                                 "lowest")));
  EXPECT_THAT(checkpointer->AddEvaluator({.name = "v", .best = {{"y", BestMode::kLowest}}}, evaluate), IsOk());
}

TEST_F(AsyncCheckpointerTest, RestoresTheNewestStepThatAPredicateAccepts) {
  auto checkpointer = Open();
  TestTrainer trainer;
  for (int64_t step : {1, 2, 3}) SaveStep(*checkpointer, trainer, step, {.metrics = {{"loss", step == 2 ? 0.1 : 0.9}}});
  auto report = checkpointer->RestoreLatest(
      trainer.state, {.accept = [](const StepInfo& info) { return info.metrics.at("loss") < 0.5; }});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 2);
  ASSERT_EQ(report->passed_over.size(), 1u);
  EXPECT_EQ(report->passed_over[0].first, 3);
  EXPECT_TRUE(trainer.IsAt(2));
  EXPECT_THAT(checkpointer->RestoreLatest(trainer.state, {.accept = [](const StepInfo&) { return false; }}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not accepted")));
}

TEST_F(AsyncCheckpointerTest, RefusesBadArgumentsOfSaveWithTheStoreUnharmed) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1);
  EXPECT_THAT(checkpointer->Save(-1, trainer.state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step -1 is outside of 0 to")));
  EXPECT_THAT(checkpointer->Save(std::numeric_limits<int64_t>::max(), trainer.state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 to 9223372036854775806")));
  EXPECT_THAT(checkpointer->Save(2, trainer.state, {.user_metadata = "[]"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a JSON object")));
  int64_t x = 0;
  trainer.state.AddValue("epoch", &x);
  EXPECT_THAT(checkpointer->Save(2, trainer.state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'epoch' was added twice")));
  EXPECT_EQ(checkpointer->Steps()->size(), 1u);
  TestTrainer other;
  EXPECT_THAT(checkpointer->RestoreLatest(other.state), IsOk());
}

TEST_F(AsyncCheckpointerTest, RefusesEverythingAfterClose) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
  const auto closed = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has been closed"));
  EXPECT_THAT(checkpointer->Save(2, trainer.state), closed);
  EXPECT_THAT(checkpointer->RestoreLatest(trainer.state), closed);
  EXPECT_THAT(checkpointer->Restore(1, trainer.state), closed);
  EXPECT_THAT(checkpointer->WaitUntilStaged(), closed);
  EXPECT_THAT(checkpointer->WaitUntilCommitted(), closed);
  EXPECT_THAT(checkpointer->Steps(), closed);
  EXPECT_THAT(checkpointer->CheckForErrors(), IsOk());
  EXPECT_FALSE(checkpointer->ShouldSave(2));
}

TEST_F(AsyncCheckpointerTest, CommitsWhatIsInFlightBeforeItCloses) {
  std::optional<Future> committed;
  {
    auto checkpointer = Open();
    TestTrainer trainer;
    trainer.SetTo(3);
    committed = checkpointer->Save(3, trainer.state)->committed();
  }  // destroyed, not closed
  EXPECT_TRUE(committed->ready());
  EXPECT_THAT(committed->Wait(), IsOk());
  TestTrainer trainer;
  ASSERT_THAT(Open()->RestoreLatest(trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(3));
}

TEST_F(AsyncCheckpointerTest, ShouldSaveFollowsWhicheverRuleSaysYes) {
  absl::Time now = absl::UnixEpoch();
  auto checkpointer =
      Open({.save_interval_steps = 100, .save_on_steps = {7}, .save_interval_seconds = 60}, [&] { return now; });
  EXPECT_TRUE(checkpointer->ShouldSave(0));
  EXPECT_TRUE(checkpointer->ShouldSave(7));
  EXPECT_TRUE(checkpointer->ShouldSave(200));
  EXPECT_FALSE(checkpointer->ShouldSave(8));
  EXPECT_FALSE(checkpointer->ShouldSave(-100));
  now += absl::Seconds(60);
  EXPECT_TRUE(checkpointer->ShouldSave(8));
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 8);
  EXPECT_FALSE(checkpointer->ShouldSave(9));
  now += absl::Seconds(59);
  EXPECT_FALSE(checkpointer->ShouldSave(9));
  now += absl::Seconds(1);
  EXPECT_TRUE(checkpointer->ShouldSave(9));
}

TEST_F(AsyncCheckpointerTest, ShouldSaveAsksAFunctionOfItsOwn) {
  absl::Time now = absl::UnixEpoch();
  std::vector<SaveQuestion> asked;
  const CheckpointerOptions options{.save_on_steps = {7}, .save_when = [&](const SaveQuestion& question) {
                                      asked.push_back(question);
                                      return question.step == 9;
                                    }};
  const auto clock = [&] { return now; };
  auto checkpointer = Open(options, clock);
  now += absl::Seconds(5);
  EXPECT_TRUE(checkpointer->ShouldSave(7)) << "any rule does";
  EXPECT_FALSE(checkpointer->ShouldSave(8));
  EXPECT_TRUE(checkpointer->ShouldSave(9));
  ASSERT_EQ(asked.size(), 2u) << "no question where another rule has said yes";
  EXPECT_EQ(asked[0].step, 8);
  EXPECT_EQ(asked[0].last_saved, std::nullopt);
  EXPECT_EQ(asked[0].since_last, absl::Seconds(5));
  EXPECT_FALSE(asked[0].in_flight);
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 9);
  now += absl::Seconds(3);
  EXPECT_FALSE(checkpointer->ShouldSave(10));
  EXPECT_EQ(asked.back().last_saved, 9);
  EXPECT_EQ(asked.back().since_last, absl::Seconds(3));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  checkpointer = Open(options, clock);
  EXPECT_FALSE(checkpointer->ShouldSave(10));
  EXPECT_EQ(asked.back().last_saved, 9) << "of the earlier process";
}

TEST_F(AsyncCheckpointerTest, TheSaveIntervalChangesAtRunTime) {
  auto checkpointer = Open({.save_interval_steps = 100});
  EXPECT_FALSE(checkpointer->ShouldSave(10));
  ASSERT_THAT(checkpointer->SetSaveInterval(10), IsOk());
  EXPECT_TRUE(checkpointer->ShouldSave(10));
  EXPECT_FALSE(checkpointer->ShouldSave(11));
  EXPECT_THAT(checkpointer->SetSaveInterval(-1), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_TRUE(checkpointer->ShouldSave(20));
  ASSERT_THAT(checkpointer->SetSaveInterval(0), IsOk());
  EXPECT_TRUE(checkpointer->ShouldSave(11)) << "without a rule every step";
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->SetSaveInterval(10), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(AsyncCheckpointerTest, ShouldSaveEveryStepThatIsNotThereYetByDefault) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1);
  EXPECT_FALSE(checkpointer->ShouldSave(1));
  EXPECT_TRUE(checkpointer->ShouldSave(2));
}

TEST_F(AsyncCheckpointerTest, NamesTheHolderOfAStoreThatIsOpen) {
  auto checkpointer = Open();
  storage::FailingFileSystem files(storage::PosixFileSystem());
  EXPECT_THAT(CheckpointerOnFileSystem::Open(files, {.directory = store_}),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("open for writing elsewhere"),
                                                             HasSubstr("\"pid\":" + std::to_string(getpid())))));
  EXPECT_THAT(files.operations(), Contains("TryLock").Times(1)) << "it is not checkpoint-inspect that holds the store";
  checkpointer.reset();
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_}), IsOk());
}

TEST_F(AsyncCheckpointerTest, RefusesADirectoryThatIsNoStore) {
  std::filesystem::create_directories(store_);
  std::ofstream(store_ + "/thesis.tex") << "x";
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("not a Tidemark store"), HasSubstr("thesis.tex"))));
  EXPECT_FALSE(std::filesystem::exists(store_ + "/LOCK"));
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_ + "/thesis.tex"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("thesis.tex")));
}

TEST_F(AsyncCheckpointerTest, RefusesAStoreOfANewerFormat) {
  Open().reset();
  std::ofstream(store_ + "/store.json") << R"({"format": 3, "store_id": "00000000000000000000000000000000"})";
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 3")));
}

TEST_F(AsyncCheckpointerTest, RefusesAStateLargerThanTheBudgetUnderEveryPolicy) {
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    auto checkpointer = Open({.staging_bytes_max = 4096, .when_full = policy});
    TestTrainer trainer;
    EXPECT_THAT(checkpointer->Save(1, trainer.state),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging_bytes_max is 4096")));
  }
}

}  // namespace
}  // namespace tidemark
