// What becomes of evaluators' rows between the stream and the record, and that evaluators hold up no save.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/evaluator_testing.h"
#include "tests/snapshot/failing_save.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/step_companion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

class EvaluationRowsTest : public testing::Test {
 protected:
  // Rounds come from what is done, or from Tidy: never from the time that has passed.
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}, ObserverFunctions told = {}) {
    options.directory = store_;
    told.warning = [this](std::string_view line) {
      absl::MutexLock lock(&mutex_);
      warnings_.emplace_back(line);
    };
    options.observer = ObserverOf(std::move(told));
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    options.reuse = false;
    options.tuning.poll_interval = absl::InfiniteDuration();
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  // Until the step is committed, or has failed.
  absl::Status SaveStep(AsyncCheckpointer& checkpointer, int64_t step, SaveOptions options = {}) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state, std::move(options));
    return save.ok() ? save->committed().Wait() : save.status();
  }

  int64_t Warnings(std::string_view part) {
    absl::MutexLock lock(&mutex_);
    int64_t count = 0;
    for (const std::string& line : warnings_) count += line.find(part) == std::string::npos ? 0 : 1;
    return count;
  }

  StepInfo Info(const AsyncCheckpointer& checkpointer, int64_t step) {
    auto steps = checkpointer.Steps();
    EXPECT_THAT(steps, IsOk());
    for (const StepInfo& info : *steps) {
      if (info.step == step) return info;
    }
    ADD_FAILURE() << "no step " << step;
    return {};
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_{1000};
  Gate gate_;  // of whichever evaluator the test adds; before the checkpointer, which calls it
  absl::Mutex mutex_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(EvaluationRowsTest, EvaluatorsWithDefaultOptionsHoldUpNoSave) {
  Gate other;
  auto checkpointer = Open({.when_full = WhenFull::kFail});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "a", .every_steps = 10}, gate_.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 0), IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "b"}, other.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  other.AwaitCalls(1);
  // Each is stuck on a step of its own, and has another one waiting.
  for (int64_t step = 2; step <= 25; ++step) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk()) << step;
  const CheckpointerStatistics statistics = checkpointer->statistics();
  EXPECT_EQ(statistics.staging_bytes_in_use % (statistics.staging_bytes_max / 4), 0u);
  EXPECT_EQ(statistics.skipped.count("no room"), 0u);
  gate_.LetThrough(100);
  other.LetThrough(100);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(gate_.seen(), ElementsAre(0, 20));
  EXPECT_THAT(other.seen(), ElementsAre(1, 25));
}

TEST_F(EvaluationRowsTest, EvaluatorsHoldUpNoSaveWhereThereIsRoomForOneBesideWhatTheyEvaluate) {
  uint64_t state_bytes = 0;
  {
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->Prepare(trainer_.state), IsOk());
    state_bytes = checkpointer->statistics().staging_bytes_max / 2;
  }
  for (WhenFull when_full : {WhenFull::kFail, WhenFull::kSkip, WhenFull::kBlock}) {
    Gate a;
    Gate b;
    const int64_t first = 100 * static_cast<int64_t>(when_full);
    auto checkpointer = Open({.staging_bytes_max = 3 * state_bytes, .when_full = when_full});
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "a", .every_steps = 10}, a.function()), IsOk());
    ASSERT_THAT(SaveStep(*checkpointer, first), IsOk());
    a.AwaitCalls(1);
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "b", .every_steps = 3}, b.function()), IsOk());
    for (int64_t step = first + 1; b.seen().empty(); ++step) {
      ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
      if (step % 3 == 0) b.AwaitCalls(1);
    }
    for (int64_t step = first + 4; step <= first + 25; ++step) {
      ASSERT_THAT(SaveStep(*checkpointer, step), IsOk()) << step;
    }
    EXPECT_EQ(checkpointer->statistics().skipped.count("no room"), 0u);
    EXPECT_GT(checkpointer->statistics().skipped.at("evaluator a: a save needed its memory"), 0u);
    a.LetThrough(100);
    b.LetThrough(100);
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
}

TEST_F(EvaluationRowsTest, KeepsTheRowOfASnapshotThatIsNotSavedAndWhoseMemoryIsGone) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "half", .half_precision = HalfPrecision::kFloat16}, gate_.function()),
              IsOk());
  auto save = checkpointer->Evaluate(7, trainer_.state, {.metrics = {{"loss", 3}}});
  ASSERT_THAT(save, IsOk());
  gate_.AwaitCalls(1);
  EXPECT_FALSE(save->committed().ready());
  gate_.LetThrough(1);
  EXPECT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  const StepInfo info = Info(*checkpointer, 7);
  EXPECT_EQ(info.state, StepState::kUnsaved);
  EXPECT_THAT(info.metrics, testing::UnorderedElementsAre(Pair("loss", 3), Pair("half/step", 7)));
  EXPECT_EQ(checkpointer->statistics().reports_rejected, 0u);
}

TEST_F(EvaluationRowsTest, DropsTheRowOfAnAttemptThatWasReplaced) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e", .when_lagging = WhenLagging::kSkip}, gate_.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 1, {.overwrite = true}), IsOk());
  gate_.LetThrough(1);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  const StepInfo info = Info(*checkpointer, 1);
  EXPECT_THAT(info.metrics, IsEmpty());
  ASSERT_THAT(info.evaluations, SizeIs(1));
  EXPECT_EQ(info.evaluations[0].outcome, Evaluation::Outcome::kSkipped) << "what is known of the new attempt";
  EXPECT_EQ(Warnings("the result of evaluator 'e' for step 1 is dropped: step 1 has been saved again"), 1);
  EXPECT_EQ(checkpointer->statistics().reports_rejected, 1u);
}

TEST_F(EvaluationRowsTest, LeavesWhatWasReportedWhereTheEvaluatorOfThatNameWasNotAsked) {
  std::atomic<int> told = 0;
  auto checkpointer = Open({}, {.evaluated = [&](int64_t step, const Evaluation&) { told += step == 2 ? 1 : 0; }});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e"}, gate_.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(2, "e", {{"loss", 1}}).Wait(), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 3), IsOk());  // takes the place of step 2 in the evaluator's queue
  gate_.LetThrough(2);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  const StepInfo info = Info(*checkpointer, 2);
  ASSERT_THAT(info.evaluations, SizeIs(1));
  EXPECT_EQ(info.evaluations[0].outcome, Evaluation::Outcome::kDone);
  EXPECT_EQ(info.metrics.at("e/loss"), 1);
  EXPECT_EQ(checkpointer->BestStep("e/loss", BestMode::kLowest)->step, 2);
  EXPECT_EQ(told, 1) << "what changes nothing is told nobody";
  EXPECT_EQ(Warnings("is dropped"), 0);
}

TEST_F(EvaluationRowsTest, DropsTheRowOfASaveThatFailedAndLeavesTheStepAsItWas) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e"}, gate_.function()), IsOk());
  FailSave(files_, "Create", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(SaveStep(*checkpointer, 1, {.overwrite = true}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  files_.Reset();
  gate_.LetThrough(1);  // after the save has failed
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, IsEmpty());
  EXPECT_EQ(Warnings("is dropped: there is no step 1; its save failed: "), 1);
}

TEST_F(EvaluationRowsTest, DropsTheRowOfASnapshotThatWasNotSavedIfTheStepWasSavedSince) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e", .when_lagging = WhenLagging::kSkip}, gate_.function()), IsOk());
  auto unsaved = checkpointer->Evaluate(1, trainer_.state);
  ASSERT_THAT(unsaved, IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  gate_.LetThrough(1);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  const StepInfo info = Info(*checkpointer, 1);
  EXPECT_EQ(info.state, StepState::kCommitted);
  EXPECT_THAT(info.metrics, IsEmpty());
  EXPECT_EQ(Warnings("the result of evaluator 'e' for step 1 is dropped: step 1 has been saved again"), 1);
}

TEST_F(EvaluationRowsTest, SaysWhyItDropsTheRowOfASnapshotThatWasNotSavedOfADeletedStep) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  gate_.LetThrough(1);
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e"}, gate_.function()), IsOk());
  ASSERT_THAT(checkpointer->Evaluate(1, trainer_.state), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(Info(*checkpointer, 1).evaluations, IsEmpty()) << "they would be taken for those of what was deleted";
  EXPECT_EQ(Warnings("the result of evaluator 'e' for step 1 is dropped: step 1 has a save, which is deleted"), 1);
}

TEST_F(EvaluationRowsTest, MakesAFailedRowOfOneThatIsTooLarge) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e"},
                                         [](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           Metrics metrics;
                                           for (int i = 0; i < 30'000; ++i) {
                                             metrics[fmt::format("the norm of the gradient of layer {}", i)] = i;
                                           }
                                           return Verdict(metrics, "3 NaN");
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());  // else the next snapshot may take its place
  ASSERT_THAT(checkpointer->Evaluate(2, trainer_.state), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  for (int64_t step : {1, 2}) {
    const StepInfo info = Info(*checkpointer, step);
    ASSERT_THAT(info.evaluations, SizeIs(1));
    EXPECT_EQ(info.evaluations[0].outcome, Evaluation::Outcome::kFailed);
    EXPECT_THAT(info.evaluations[0].reason,
                AllOf(HasSubstr("its result cannot be recorded: "), HasSubstr("expected at most 1048576 bytes")));
    EXPECT_EQ(info.unhealthy(), "e: 3 NaN") << "that counts all the same";
    EXPECT_EQ(Warnings(fmt::format("evaluator 'e' failed at step {}: its result cannot be recorded", step)), 1);
  }
}

TEST_F(EvaluationRowsTest, GivesAnEvaluatorThatLagsTheSameEntries) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(std::make_shared<StepCompanion>()), IsOk());
  std::vector<std::set<std::string>> names;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e", .when_lagging = WhenLagging::kQueue},
                                         [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           std::set<std::string>& seen = names.emplace_back();
                                           for (const EntrySpec& entry : snapshot.entries()) seen.insert(entry.name);
                                           return gate_(snapshot);
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());  // to be read back
  gate_.LetThrough(2);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
  ASSERT_THAT(names, SizeIs(2));
  EXPECT_THAT(names[0], testing::Contains("model.weight"));
  EXPECT_EQ(names[1], names[0]);
}

TEST_F(EvaluationRowsTest, TheMemoryOfASnapshotOutlivesItAndHoldsUpNoResult) {
  auto checkpointer = Open();
  std::shared_ptr<const void> memory;
  std::span<const std::byte> bytes;
  std::vector<std::byte> seen;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e", .every_steps = 3, .entries = {"model.weight"}},
                                         [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           memory = snapshot.memory();
                                           bytes = snapshot.bytes(0);
                                           seen.assign(bytes.begin(), bytes.end());
                                           return Verdict();
                                         }),
              IsOk());
  trainer_.SetTo(3);
  auto evaluated = checkpointer->Evaluate(3, trainer_.state);
  ASSERT_THAT(evaluated, IsOk());
  ASSERT_THAT(evaluated->committed().Wait(), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 4), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_EQ(seen.size(), 1000 * sizeof(float));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), seen.begin(), seen.end()));
  EXPECT_GT(checkpointer->statistics().staging_bytes_in_use, 0u);
  memory.reset();
  EXPECT_EQ(checkpointer->statistics().staging_bytes_in_use, 0u);
}

TEST_F(EvaluationRowsTest, AWaitWithADeadlineSaysWhetherASaveStillRuns) {
  auto checkpointer = Open();
  absl::Notification sync;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation == "SyncData") sync.WaitForNotification();
    return absl::OkStatus();
  });
  auto save = checkpointer->Save(7, trainer_.state);
  ASSERT_THAT(save, IsOk());
  const absl::Status waited = checkpointer->WaitUntilEvaluated(absl::Now() + absl::Milliseconds(1));
  EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded, "still running: the save of step 7"));
  EXPECT_TRUE(waited.GetPayload(kSaveRunsPayload).has_value());
  sync.Notify();
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
}

TEST_F(EvaluationRowsTest, AWaitWithADeadlineNamesWhatStillRuns) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e"}, gate_.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 7), IsOk());
  gate_.AwaitCalls(1);
  // A save is committed a moment before its thread has done with it.
  absl::Status waited;
  do {
    waited = checkpointer->WaitUntilEvaluated(absl::Now() + absl::Milliseconds(1));
    EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("evaluator 'e' at step 7")));
  } while (waited.GetPayload(kSaveRunsPayload).has_value());
  EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded, "still running: evaluator 'e' at step 7"));
  gate_.LetThrough(1);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(absl::InfiniteFuture()), IsOk());
  auto steps = checkpointer->Steps();
  ASSERT_THAT(steps, IsOk());
  EXPECT_EQ(steps->front().metrics, (Metrics{{"e/step", 7}}));
}

TEST_F(EvaluationRowsTest, CountsWhatWasLeftOutByAFewReasons) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "e \"x\"", .when_lagging = WhenLagging::kSkip}, gate_.function()),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  gate_.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  gate_.LetThrough(1);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 3), IsOk());
  gate_.AwaitCalls(2);
  ASSERT_THAT(SaveStep(*checkpointer, 4), IsOk());
  gate_.LetThrough(2);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(checkpointer->statistics().skipped, ElementsAre(Pair("evaluator e \"x\": lagging", 2)));
  EXPECT_EQ(Info(*checkpointer, 4).evaluations.at(0).reason, "lagging: step 3 was still being evaluated");
  EXPECT_THAT(PrometheusText(checkpointer->statistics()),
              HasSubstr("tidemark_skipped_total{reason=\"evaluator e \\\"x\\\": lagging\"} 2\n"));
}

TEST_F(EvaluationRowsTest, AWaitForEvaluationsDoesNotFailForADeletion) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  files_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveFile" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
}

TEST_F(EvaluationRowsTest, WritesTheStatisticsFileWithoutARoundForAnythingElse) {
  const std::string path = directory_ / "tidemark.prom";
  auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
  ASSERT_THAT(store, IsOk());
  const Listeners listeners(nullptr);
  StatisticsCollector statistics;
  absl::Notification written;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation == "Rename" && call.path == path && !written.HasBeenNotified()) written.Notify();
    return absl::OkStatus();
  });
  auto keeper = Housekeeper::Start({.files = files_,
                                    .store = **store,
                                    .listeners = listeners,
                                    .statistics = statistics,
                                    .read_statistics = [&] { return statistics.Get(); },
                                    .claims = [] { return storage::Claims(); }},
                                   {.retention = {},
                                    .poll_interval = absl::InfiniteDuration(),
                                    .metrics_file = path,
                                    .metrics_file_interval = absl::Milliseconds(1)});
  ASSERT_THAT(keeper, IsOk());
  statistics.AddSkipped("no room");
  written.WaitForNotification();
}

TEST_F(EvaluationRowsTest, RefusesToWaitForAnEvaluatorInThatEvaluator) {
  auto checkpointer = Open();
  std::vector<absl::Status> answers;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "waits"},
                                         [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           answers.push_back(checkpointer->WaitUntilEvaluated());
                                           answers.push_back(checkpointer->WaitUntilEvaluated(absl::InfiniteFuture()));
                                           return Verdict();
                                         }),
              IsOk());
  ASSERT_THAT(checkpointer->Save(10, trainer_.state), IsOk());
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(answers, testing::SizeIs(2));
  for (const absl::Status& answer : answers) {
    EXPECT_THAT(answer,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("called by a callback or an evaluator")));
  }
}

}  // namespace
}  // namespace tidemark
