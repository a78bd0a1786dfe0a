// What the housekeeper lets go, and what it keeps.

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/deadline.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "snapshot/saves/pending_save.h"
#include "storage/store/store.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/sleeping_thread.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class HousekeeperRetentionTest : public HousekeeperTest {
 protected:
  // A shard finds no room, in a new file as in one that is used again.
  void RefuseShards() {
    files_.SetRule([](const storage::FailingFileSystem::Call& call) {
      return call.operation == "QueueWrite" ? absl::ResourceExhaustedError("No space left on device (ENOSPC)")
                                            : absl::OkStatus();
    });
  }
};

// With a folder that has nothing in it.
void CommitEmptyStep(storage::Store& store, int64_t step) {
  storage::StepRecord record;
  record.info.step = step;
  record.info.state = StepState::kCommitted;
  auto attempt = store.BeginAttempt(step);
  ASSERT_THAT(attempt, IsOk());
  record.info.attempt = storage::ToHex(attempt->attempt.bytes);
  record.info.sequence = attempt->sequence;
  ASSERT_THAT(store.CommitAttempt(record), IsOk());
}

TEST_F(HousekeeperRetentionTest, AppliesRetentionBehindACommitAndSaysWhatItDeleted) {
  absl::Notification deleted;
  Lines lines;
  auto checkpointer = Open({.retention = {.max_to_keep = 2}}, {.deleted = [&](int64_t step, std::string_view why) {
                             lines.Add(std::to_string(step) + ": " + std::string(why));
                             if (!deleted.HasBeenNotified()) deleted.Notify();
                           }});
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  deleted.WaitForNotification();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2, 3));
  ASSERT_THAT(lines.Get(), SizeIs(1));
  EXPECT_THAT(lines.Get()[0], HasSubstr("1: "));
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 1u);
  EXPECT_EQ(checkpointer->statistics().background.at("delete").count, 1u);
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->passed_over, IsEmpty());
  EXPECT_THAT(checkpointer->Restore(1, trainer_.state), StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
  EXPECT_EQ(ShardPath(store_, 1), "");
}

TEST_F(HousekeeperRetentionTest, TidiesInAsManyRoundsAsItTakes) {
  constexpr int64_t kSteps = 300;  // retention changes 256 records in a round
  {
    auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
    ASSERT_THAT(store, IsOk());
    for (int64_t step = 1; step <= kSteps; ++step) CommitEmptyStep(**store, step);
  }
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(kSteps));
  EXPECT_EQ(checkpointer->statistics().steps_deleted, static_cast<uint64_t>(kSteps - 1));
  EXPECT_EQ(checkpointer->statistics().background.at("delete").count, 2u);
}

// The pass that asks is not done yet. A restore that began after such a deletion would run beside it.
TEST_F(HousekeeperRetentionTest, DeletesNothingForAFunctionThatRetentionCalls) {
  AsyncCheckpointer* raw = nullptr;
  absl::Status deleted;
  auto checkpointer = Open({.retention = {.keep = [&](const StepInfo& info) {
                              if (raw != nullptr && info.step == 1) deleted.Update(raw->Delete(1));
                              return true;
                            }}});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  raw = checkpointer.get();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(deleted, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 1")));
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
}

// A pass that fails is tried again in the next round, and what was refused in it is no reason for a round.
TEST_F(HousekeeperRetentionTest, RestsAfterAPassThatFailsThoughAFunctionOfItHasAskedForADeletion) {
  AsyncCheckpointer* raw = nullptr;
  std::atomic<int64_t> calls = 0;
  auto checkpointer = Open({.retention = {.max_to_keep = 1, .keep = [&](const StepInfo&) {
                                            if (raw == nullptr) return true;
                                            ++calls;
                                            EXPECT_FALSE(raw->Delete(1).ok());
                                            return false;
                                          }}});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  raw = checkpointer.get();
  FillDisk();
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  const int64_t calls_of_the_pass = calls;
  EXPECT_GT(calls_of_the_pass, 0);
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(calls, calls_of_the_pass) << "it goes round and round";
  files_.Reset();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

// A restore begins while it looks for requests. It deletes nothing until the restore has ended.
TEST_F(HousekeeperRetentionTest, TidiesOnceARestoreThatBeganMeanwhileIsDone) {
  absl::Notification listing, restoring;
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  for (int64_t step : {1, 2}) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Pin(step), IsOk());
  }
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(checkpointer->Unpin(1), IsOk());
  ASSERT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
  files_.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation == "OpenForRead" && IsInJournal(path) && !listing.HasBeenNotified()) {
      listing.Notify();
      restoring.WaitForNotification();
    }
  });
  std::thread tidying([&] { EXPECT_THAT(checkpointer->Tidy(), IsOk()); });
  listing.WaitForNotification();
  const auto accept = [&](const StepInfo&) {
    if (!restoring.HasBeenNotified()) restoring.Notify();
    // Answered in the next round.
    const Future in_vain = checkpointer->ReportMetrics(9, "validation", {{"loss", 1}});
    EXPECT_THAT(in_vain.Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("9")));
    return true;
  };
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, {.accept = accept}), IsOk());
  if (!restoring.HasBeenNotified()) restoring.Notify();
  tidying.join();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
  files_.Reset();
}

// Retention changes 256 records in a round, and ends in the first of two.
class EndedRetentionTest : public HousekeeperRetentionTest {
 protected:
  EndedRetentionTest() {
    auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
    EXPECT_THAT(store, IsOk());
    opened_ = *std::move(store);
    for (int64_t step = 1; step <= kSteps; ++step) CommitEmptyStep(*opened_, step);
    auto keeper = Housekeeper::Start({.files = files_,
                                      .store = *opened_,
                                      .listeners = listeners_,
                                      .statistics = statistics_,
                                      .read_statistics = [this] { return statistics_.Get(); },
                                      .claims = [] { return storage::Claims(); }},
                                     {.retention = {.max_to_keep = 1}, .poll_interval = absl::InfiniteDuration()});
    EXPECT_THAT(keeper, IsOk());
    keeper_ = *std::move(keeper);
  }

  static constexpr int64_t kSteps = 300;
  std::atomic<pid_t> thread_ = 0;
  std::atomic<int> deleted_ = 0;
  std::unique_ptr<storage::Store> opened_;
  const Listeners listeners_{ObserverOf({.deleted = [this](int64_t, std::string_view) {
    thread_ = gettid();
    ++deleted_;
    keeper_->EndRetention();  // by now it is known that there is more to do
  }})};
  StatisticsCollector statistics_;
  std::unique_ptr<Housekeeper> keeper_;
};

TEST_F(EndedRetentionTest, IsNotWaitedFor) {
  EXPECT_THAT(keeper_->Tidy(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_EQ(deleted_, 256);
  EXPECT_THAT(keeper_->Tidy(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(keeper_->Flush(), IsOk());
}

TEST_F(EndedRetentionTest, LetsTheThreadRest) {
  // Retention is due then, though nobody waits for it.
  keeper_->BeginSave(std::make_shared<const PendingSave>(kSteps + 1, /*persist=*/true), nullptr);
  ASSERT_THAT(keeper_->Flush(), IsOk());
  ASSERT_THAT(keeper_->Flush(), IsOk()) << "the round of the first one is over";
  ASSERT_EQ(deleted_, 256) << "and 43 are left";
  const Deadline deadline = Deadline::After(absl::Seconds(60));
  int looks = 0;
  while (looks < 1000 && deadline.left() > absl::ZeroDuration()) looks = Sleeps(thread_) ? looks + 1 : 0;
  EXPECT_EQ(looks, 1000) << "it goes round and round";
}

// What a process that was killed had yet to delete, or what the rules now let go.
TEST_F(HousekeeperRetentionTest, LetsOldStepsGoWhenTheFirstSaveBegins) {
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*Open(), step), IsOk());
  GatedState state;
  auto checkpointer = Open({.staging = Staging::kOverlapped, .retention = {.max_to_keep = 1}},
                           {.deleted = [&](int64_t step, std::string_view) {
                             if (step == 2) state.gate.Notify();
                           }});
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 3)) << "who only looks lets nothing go";
  auto save = checkpointer->Save(4, state);  // copies nothing before a step has gone
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
}

// What a failed save could not write for want of room, the next one can.
TEST_F(HousekeeperRetentionTest, LetsOldStepsGoBehindASaveThatFails) {
  absl::Notification deleted;
  std::atomic<bool> keep = true;
  auto checkpointer = Open({.retention = {.max_to_keep = 1, .keep = [&](const StepInfo&) { return keep.load(); }}},
                           {.deleted = [&](int64_t step, std::string_view) {
                             if (step == 2) deleted.Notify();
                           }});
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  keep = false;
  RefuseShards();
  EXPECT_THAT(SaveStep(*checkpointer, 4), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  deleted.WaitForNotification();
}

// The files of 299 steps are all to go, when a report comes: it is recorded after the first 256 of them.
TEST_F(HousekeeperRetentionTest, KeepsNoReportWaitingForABacklogOfFiles) {
  constexpr int64_t kSteps = 300;
  {
    auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
    ASSERT_THAT(store, IsOk());
    for (int64_t step = 1; step <= kSteps; ++step) CommitEmptyStep(**store, step);
  }
  const auto folders = [&] {
    const auto end = std::filesystem::directory_iterator();
    return std::distance(std::filesystem::directory_iterator(store_ + "/steps"), end);
  };
  std::atomic<std::ptrdiff_t> left = -1;
  auto checkpointer =
      Open({.retention = {.max_to_keep = 1}}, {.evaluated = [&](int64_t, const Evaluation&) { left = folders(); }});
  const auto rule = [&](AsyncCheckpointer* reporter) {
    return [reporter, reported = false](const storage::FailingFileSystem::Call& call) mutable {
      if (call.operation != "RemoveDirectory") return absl::OkStatus();
      if (reporter == nullptr) return absl::InternalError("injected");
      if (!std::exchange(reported, true)) reporter->ReportMetrics(300, "validation", {{"loss", 1}});
      return absl::OkStatus();
    };
  };
  files_.SetRule(rule(nullptr));
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(CommittedSteps(*checkpointer), ElementsAre(kSteps));
  ASSERT_EQ(folders(), kSteps);
  files_.SetRule(rule(checkpointer.get()));
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(left, kSteps - 256);
  EXPECT_EQ(folders(), 1);
}

// What a run that diverges is rolled back to is not let go for a step that is only not yet known to be bad.
TEST_F(HousekeeperRetentionTest, KeepsTheLatestHealthyStepWhileAnEvaluatorLagsBehind) {
  absl::Notification gate;  // outlives the evaluator's thread
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health", .max_pending = 3},
                                         [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           if (snapshot.step() == 1) return Verdict();
                                           gate.WaitForNotification();
                                           return Verdict(Metrics{}, "3 NaN");
                                         }),
              IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  for (int64_t step : {2, 3, 4}) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
  }
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 4));
  gate.Notify();
  auto report = checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
}

// Else a monitor that always lags behind would find each step good when it is gone.
TEST_F(HousekeeperRetentionTest, KeepsTheStepThatAnEvaluatorIsAboutToJudge) {
  absl::Notification gates[5];  // outlive the evaluator's thread
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health", .max_pending = 5},
                                         [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                           gates[snapshot.step() - 1].WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  for (int64_t step : {1, 2, 3, 4}) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
  }
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 4)) << "2 and 3 may go, for 1 is still to be judged";
  gates[0].Notify();
  while (Info(*checkpointer, 1).evaluations.empty()) ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 5), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 4, 5)) << "the next to be judged that is there is 4";
  for (int i : {1, 2, 3}) gates[i].Notify();
  while (Info(*checkpointer, 4).evaluations.empty()) ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(4, 5));
  gates[4].Notify();
}

TEST_F(HousekeeperRetentionTest, LetsTheLastHealthyStepGoOnceTheNextIsKnownToBe) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "health", .when_lagging = WhenLagging::kBlock},
                                         [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict(); }),
              IsOk());
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(3));
}

TEST_F(HousekeeperRetentionTest, ALateReportMakesAStepTheBestBeforeItIsDeleted) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1,
                                          .keep_best = {{.metric = "validation/loss"}},
                                          .keep_unevaluated_until = {{.evaluator = "validation"}}}});
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 3));
  ASSERT_THAT(checkpointer->ReportMetrics(2, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.7}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2, 3));
  auto plan = checkpointer->RetentionPlan();
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(*plan, SizeIs(2));
  EXPECT_TRUE((*plan)[0].keep);
  EXPECT_THAT((*plan)[0].reason, HasSubstr("validation/loss"));
}

// The plan would call the predicate again, and so on.
TEST_F(HousekeeperRetentionTest, MakesNoPlanForItsOwnPredicate) {
  std::atomic<AsyncCheckpointer*> trainers = nullptr;
  std::atomic<int> refused = 0;
  auto checkpointer = Open({.retention = {.max_to_keep = 1, .keep = [&](const StepInfo&) {
                                            AsyncCheckpointer* const called = trainers;
                                            if (called == nullptr) return false;
                                            EXPECT_THAT(called->RetentionPlan(),
                                                        StatusIs(absl::StatusCode::kFailedPrecondition,
                                                                 HasSubstr("a callback on the housekeeping thread")));
                                            ++refused;
                                            return false;
                                          }}});
  trainers = checkpointer.get();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_GT(refused, 0);
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
  ASSERT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(HousekeeperRetentionTest, ReportsOnADeletedStepStayKnown) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(checkpointer->ReportMetrics(1, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(Info(*checkpointer, 1).metrics.at("validation/loss"), 0.5);
}

TEST_F(HousekeeperRetentionTest, PinsKeepStepsFromRetention) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Pin(1, "the paper's"), IsOk());
  EXPECT_THAT(checkpointer->Pin(9), StatusIs(absl::StatusCode::kNotFound, HasSubstr("9")));
  for (int64_t step : {2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 3));
  EXPECT_EQ(Info(*checkpointer, 1).pin_note, "the paper's");
  ASSERT_THAT(checkpointer->Unpin(1), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(3));
}

TEST_F(HousekeeperRetentionTest, KeepsNothingOfLessAndLosesNothingWhenTheClockIsSetBack) {
  std::atomic<int64_t> seconds = 1'000'000;
  now_ = [&] { return absl::FromUnixSeconds(seconds); };
  auto checkpointer =
      Open({.save_interval_seconds = 60, .retention = {.max_to_keep = 1, .keep_interval = absl::Seconds(100)}});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  EXPECT_FALSE(checkpointer->ShouldSave(2));
  seconds = 10;  // by most of two weeks
  EXPECT_TRUE(checkpointer->ShouldSave(2)) << "or it would wait for the clock to come back";
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  EXPECT_FALSE(checkpointer->ShouldSave(3));
  ASSERT_THAT(checkpointer->ReportMetrics(2, "validation", {{"loss", 1}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(checkpointer->LatestStep()->step, 2);
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(2));
}

}  // namespace
}  // namespace tidemark
