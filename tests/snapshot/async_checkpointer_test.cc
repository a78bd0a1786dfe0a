#include "tidemark/async_checkpointer.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class AsyncCheckpointerTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    options.on_warning = [this](std::string_view line) {
      std::lock_guard lock(warnings_mutex_);
      warnings_ += std::string(line) + "\n";
    };
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
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
  auto checkpointer = Open({.save_interval_seconds = 3600, .now = [&] { return now; }});
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
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step -1")));
  EXPECT_THAT(checkpointer->Save(2, trainer.state, {.user_metadata = "[]"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no JSON object")));
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
      Open({.save_interval_steps = 100, .save_on_steps = {7}, .save_interval_seconds = 60, .now = [&] { return now; }});
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

TEST_F(AsyncCheckpointerTest, ShouldSaveEveryStepThatIsNotThereYetByDefault) {
  auto checkpointer = Open();
  TestTrainer trainer;
  SaveStep(*checkpointer, trainer, 1);
  EXPECT_FALSE(checkpointer->ShouldSave(1));
  EXPECT_TRUE(checkpointer->ShouldSave(2));
}

TEST_F(AsyncCheckpointerTest, NamesTheHolderOfAStoreThatIsOpen) {
  auto checkpointer = Open();
  const absl::Time start = absl::Now();
  auto second = AsyncCheckpointer::Open({.directory = store_});
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_THAT(second,
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("open for writing elsewhere"),
                                                             HasSubstr("\"pid\":" + std::to_string(getpid())))));
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
  std::ofstream(store_ + "/store.json") << R"({"format": 2, "store_id": "00000000000000000000000000000000"})";
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 2")));
}

TEST_F(AsyncCheckpointerTest, RefusesAStateLargerThanTheBudgetUnderEveryPolicy) {
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    auto checkpointer = Open({.staging_bytes_max = 4096, .when_full = policy});
    TestTrainer trainer;
    EXPECT_THAT(checkpointer->Save(1, trainer.state),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging_bytes_max is 4096")));
  }
}

TEST_F(AsyncCheckpointerTest, WorksOnEveryBackendAndCompression) {
  int64_t step = 0;
  TestTrainer trainer;
  for (IoBackend io : {IoBackend::kAuto, IoBackend::kThreads}) {
    for (Compression compression : {Compression::kSpace, Compression::kNone}) {
      auto checkpointer = Open({.compression = compression, .chunk_bytes = 65536, .io = io});
      SaveStep(*checkpointer, trainer, ++step);
      trainer.SetTo(0);
      ASSERT_THAT(checkpointer->RestoreLatest(trainer.state), IsOk());
      EXPECT_TRUE(trainer.IsAt(step));
    }
  }
}

}  // namespace
}  // namespace tidemark
