#include "tidemark/preemption_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/failing_save.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class PreemptionGuardTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}, ObserverFunctions told = {}) {
    options.directory = store_;
    told.warning = [](std::string_view) {};
    options.observer = ObserverOf(std::move(told));
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  // An evaluator's function that says when it was entered first, and returns when the test lets it. It may outlive the
  // test.
  EvaluatorFunction Stuck() { return StuckOn(entered_, stuck_); }
  static EvaluatorFunction StuckOn(std::shared_ptr<absl::Notification> entered,
                                   std::shared_ptr<absl::Notification> stuck) {
    return [stuck, entered](const Snapshot&) -> absl::StatusOr<Verdict> {
      if (!entered->HasBeenNotified()) entered->Notify();
      stuck->WaitForNotification();
      return Verdict(Metrics{});
    };
  }
  // No save is written until then.
  void HoldTheDisk(absl::Notification* go_on) {
    files_.SetRule([go_on](const storage::FailingFileSystem::Call& call) {
      if (call.operation == "SyncData") go_on->WaitForNotification();
      return absl::OkStatus();
    });
  }
  StepInfo Latest() {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto latest = (*reader)->LatestStep();
    EXPECT_THAT(latest, IsOk());
    return latest.ok() ? *latest : StepInfo{};
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_{1000};
  absl::Notification gate_;  // for the disk
  std::shared_ptr<absl::Notification> stuck_ = std::make_shared<absl::Notification>();
  std::shared_ptr<absl::Notification> entered_ = std::make_shared<absl::Notification>();
};

TEST_F(PreemptionGuardTest, NotesASignalAndCountsTheGraceFromThere) {
  auto guard = PreemptionGuard::Install({.grace = absl::Seconds(25)});
  ASSERT_THAT(guard, IsOk());
  EXPECT_FALSE((*guard)->preempted());
  EXPECT_EQ((*guard)->deadline(), absl::InfiniteFuture());
  const absl::Time before = absl::Now();
  raise(SIGTERM);
  EXPECT_TRUE((*guard)->preempted());
  EXPECT_GE((*guard)->deadline(), before + absl::Seconds(24));
  EXPECT_LE((*guard)->deadline(), absl::Now() + absl::Seconds(25));
}

TEST_F(PreemptionGuardTest, ListensToTheSignalsThatItIsGivenAndToNoOthers) {
  const sighandler_t before = std::signal(SIGTERM, SIG_IGN);
  {
    auto guard = PreemptionGuard::Install({.signals = {SIGUSR1, SIGUSR2}});
    ASSERT_THAT(guard, IsOk());
    raise(SIGTERM);  // still ignored
    EXPECT_FALSE((*guard)->preempted());
    raise(SIGUSR2);
    EXPECT_TRUE((*guard)->preempted());
  }
  std::signal(SIGTERM, before);
}

TEST_F(PreemptionGuardTest, IsPreemptedBeforeTheEndOfItsTime) {
  const absl::Time end = absl::Now() + absl::Hours(1);
  {
    auto guard = PreemptionGuard::Install({.grace = absl::Seconds(30), .end = end});
    ASSERT_THAT(guard, IsOk());
    EXPECT_FALSE((*guard)->preempted());
  }
  auto guard = PreemptionGuard::Install({.grace = absl::Hours(2), .end = end});
  ASSERT_THAT(guard, IsOk());
  EXPECT_TRUE((*guard)->preempted());
  EXPECT_EQ((*guard)->deadline(), end);
  raise(SIGTERM);
  EXPECT_EQ((*guard)->deadline(), end) << "a signal gives no time beyond it";
}

TEST_F(PreemptionGuardTest, IsInstalledOnceAtATime) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  EXPECT_THAT(PreemptionGuard::Install({}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("already")));
  EXPECT_THAT(PreemptionGuard::Install({.signals = {}}), IsOk());  // one that hears none may be there beside it
  EXPECT_THAT(PreemptionGuard::Install({}), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("already")));
  guard->reset();
  EXPECT_THAT(PreemptionGuard::Install({}), IsOk());
}

TEST_F(PreemptionGuardTest, RefusesWhatItCannotDo) {
  EXPECT_THAT(PreemptionGuard::Install({.signals = {SIGKILL}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("signal 9")));
  EXPECT_THAT(PreemptionGuard::Install({.grace = -absl::Seconds(1)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("grace is -1s: 0 or more")));
  EXPECT_THAT(PreemptionGuard::Install({}), IsOk()) << "what was refused is not installed";
}

TEST_F(PreemptionGuardTest, SavesOnceMoreAndCloses) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  raise(SIGTERM);
  trainer_.SetTo(7);
  const PreemptionReport report =
      (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {.metrics = {{"loss", 0.5}}});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, IsOk());
  EXPECT_EQ(report.Describe(), "preempted: step 7 is committed");
  EXPECT_EQ(Latest().step, 7);
  EXPECT_EQ(Latest().metrics.at("loss"), 0.5);
  EXPECT_FALSE(checkpointer->ShouldSave(8)) << "it is closed";
}

TEST_F(PreemptionGuardTest, DoesNotSaveAStepTwice) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Save(7, trainer_.state), IsOk());  // in flight, or committed by now
  PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_EQ(Latest().sequence, 1u);
  checkpointer = nullptr;
  checkpointer = Open();
  report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_EQ(Latest().sequence, 1u);
}

TEST_F(PreemptionGuardTest, SavesDespiteAnEarlierFailure) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  FailSave(files_, "CreateDirectory", absl::ResourceExhaustedError("disk full"));
  auto save = checkpointer->Save(6, trainer_.state);
  ASSERT_THAT(save, IsOk());
  while (!save->committed().ready()) sched_yield();  // to wait for it would be to look at it
  files_.Reset();
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, StatusIs(StatusCode::kResourceExhausted, HasSubstr("disk full")));
  EXPECT_THAT(report.Describe(), AllOf(HasSubstr("step 7 is committed"), HasSubstr("disk full")));
  EXPECT_EQ(Latest().step, 7);
}

TEST_F(PreemptionGuardTest, SavesDespiteAnyNumberOfEarlierFailures) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  files_.SetRule([this](const storage::FailingFileSystem::Call& call) {
    if (call.operation != "CreateDirectory") return absl::OkStatus();
    gate_.WaitForNotification();
    return absl::ResourceExhaustedError(call.path.find("0000000005") != std::string::npos ? "full at 5" : "full at 6");
  });
  auto first = checkpointer->Save(5, trainer_.state);
  auto second = checkpointer->Save(6, trainer_.state);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  gate_.Notify();
  while (!first->committed().ready() || !second->committed().ready()) sched_yield();  // not looked at
  files_.Reset();
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close,
              StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("full at 5"), HasSubstr("full at 6"))));
  EXPECT_EQ(Latest().step, 7);
}

TEST_F(PreemptionGuardTest, SaysWhatFailedEarlierEvenIfItCannotClose) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  FailSave(files_, "CreateDirectory", absl::ResourceExhaustedError("disk full"));
  auto save = checkpointer->Save(6, trainer_.state);
  ASSERT_THAT(save, IsOk());
  while (!save->committed().ready()) sched_yield();
  files_.SetRule([&](const storage::FailingFileSystem::Call& call) {
    if (call.operation == "SyncData") gate_.WaitForNotification();
    return absl::OkStatus();
  });
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.close,
              StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("still running"), HasSubstr("disk full"))));
  gate_.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(PreemptionGuardTest, WaitsForNoEvaluatorBeforeTheLastSave) {
  auto guard = PreemptionGuard::Install({.grace = absl::Hours(1)});
  ASSERT_THAT(guard, IsOk());
  // The evaluator may go on when the step is committed; waiting for it before would use up the grace.
  auto checkpointer = Open({}, {.committed = [this](const StepInfo& info) {
                             if (info.step == 7) stuck_->Notify();
                           }});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "stuck", .when_lagging = WhenLagging::kBlock}, Stuck()), IsOk());
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  entered_->WaitForNotification();
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, IsOk());
}

TEST_F(PreemptionGuardTest, SavesDespiteAnEvaluatorThatHoldsAllOfTheMemory) {
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    SCOPED_TRACE(static_cast<int>(policy));
    auto guard = PreemptionGuard::Install({.grace = absl::Hours(1)});
    ASSERT_THAT(guard, IsOk());
    auto entered = std::make_shared<absl::Notification>();
    auto stuck = std::make_shared<absl::Notification>();
    // It may go on when the step is committed, and not before.
    auto checkpointer =
        Open({.staging_bytes_max = 8192, .when_full = policy}, {.committed = [stuck](const StepInfo& info) {
               if (info.step == 7) stuck->Notify();
             }});
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "stuck"}, StuckOn(entered, stuck)), IsOk());
    ASSERT_THAT(checkpointer->Save(1, trainer_.state, {.overwrite = true}), IsOk());
    entered->WaitForNotification();
    ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    EXPECT_EQ(checkpointer->statistics().staging_bytes_in_use, 8192u);
    raise(SIGTERM);
    const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {.overwrite = true});
    EXPECT_THAT(report.save, IsOk());
    EXPECT_THAT(report.close, IsOk());
    EXPECT_EQ(Latest().step, 7);
  }
}

TEST_F(PreemptionGuardTest, WaitsForTheRoomOfAnEarlierSaveWhateverThePolicy) {
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    SCOPED_TRACE(static_cast<int>(policy));
    auto guard = PreemptionGuard::Install({});
    ASSERT_THAT(guard, IsOk());
    auto checkpointer = Open({.staging_bytes_max = 8192, .when_full = policy});
    absl::Notification go_on;
    HoldTheDisk(&go_on);
    ASSERT_THAT(checkpointer->Save(1, trainer_.state, {.overwrite = true}), IsOk());
    EXPECT_EQ(checkpointer->statistics().staging_bytes_in_use, 8192u);
    std::thread releaser([&] { go_on.Notify(); });
    const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {.overwrite = true});
    releaser.join();
    EXPECT_THAT(report.save, IsOk());
    EXPECT_THAT(report.close, IsOk());
    EXPECT_EQ(Latest().step, 7);
    files_.Reset();
  }
}

TEST_F(PreemptionGuardTest, SaysWhatHeldTheRoomUntilTheDeadline) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open({.staging_bytes_max = 8192});
  HoldTheDisk(&gate_);
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, StatusIs(StatusCode::kResourceExhausted, HasSubstr("step 7 was not saved")));
  EXPECT_THAT(report.close, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the save of step 1")));
  gate_.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(PreemptionGuardTest, WaitsForAnEarlierCopyOfTheStateUntilTheDeadline) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  GatedState state;
  auto checkpointer = Open();
  auto earlier = checkpointer->Save(6, state, {.staging = Staging::kOverlapped});
  ASSERT_THAT(earlier, IsOk());
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, state, {});
  EXPECT_THAT(report.save, StatusIs(StatusCode::kDeadlineExceeded,
                                    HasSubstr("step 7 was not saved: an earlier save was still copying the state")));
  EXPECT_THAT(report.close, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the save of step 6")));
  EXPECT_FALSE(earlier->staged().ready());
  state.gate.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
  EXPECT_EQ(Latest().step, 6);
}

TEST_F(PreemptionGuardTest, SavesAfterAnEarlierCopyOfTheState) {
  auto guard = PreemptionGuard::Install({.grace = absl::Hours(1)});
  ASSERT_THAT(guard, IsOk());
  GatedState state;
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Save(6, state, {.staging = Staging::kOverlapped}), IsOk());
  raise(SIGTERM);
  std::thread releaser([&] { state.gate.Notify(); });
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, state, {});
  releaser.join();
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, IsOk());
  EXPECT_EQ(Latest().step, 7);
}

TEST_F(PreemptionGuardTest, SaysOfAStepThatIsStillBeingCopiedThatItWasNotCommitted) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  GatedState state;
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Save(7, state, {.staging = Staging::kOverlapped}), IsOk());
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, state, {});
  EXPECT_THAT(report.save, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("step 7 was not committed by")));
  EXPECT_THAT(report.close, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the save of step 7")));
  state.gate.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(PreemptionGuardTest, LeavesAnEvaluatorThatDoesNotReturnInTimeToRecordAndRelease) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  // The destructor would wait for longer than this test may take.
  auto checkpointer = Open({.close_timeout = absl::Hours(10)});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "stuck"}, Stuck()), IsOk());
  // Only the evaluator is in the way, however slow the disk is.
  ASSERT_THAT(checkpointer->Save(7, trainer_.state), IsOk());
  entered_->WaitForNotification();
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, IsOk());
  EXPECT_THAT(report.close, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("evaluator 'stuck' at step 7")));
  checkpointer.reset();
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_}), IsOk()) << "it is released";
  EXPECT_EQ(Latest().step, 7);
  stuck_->Notify();
}

TEST_F(PreemptionGuardTest, SaysWhyTheLastSaveFailed) {
  auto guard = PreemptionGuard::Install({});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  files_.FailFrom(0, absl::ResourceExhaustedError("disk full"));
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_THAT(report.save, StatusIs(StatusCode::kResourceExhausted, HasSubstr("disk full")));
  EXPECT_THAT(report.Describe(), AllOf(HasSubstr("step 7 is not committed"), HasSubstr("disk full")));
  files_.Reset();
}

TEST_F(PreemptionGuardTest, SaysAtTheDeadlineWhatWasNotCommitted) {
  auto guard = PreemptionGuard::Install({.grace = absl::ZeroDuration()});
  ASSERT_THAT(guard, IsOk());
  auto checkpointer = Open();
  absl::Notification go_on;
  files_.SetRule([&](const storage::FailingFileSystem::Call& call) {
    if (call.operation == "SyncData") go_on.WaitForNotification();
    return absl::OkStatus();
  });
  raise(SIGTERM);
  const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer, 7, trainer_.state, {});
  EXPECT_FALSE(report.committed());
  EXPECT_THAT(report.save, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("step 7 was not committed by")));
  EXPECT_THAT(report.close, StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("still running"), HasSubstr("7"))));
  EXPECT_THAT(report.Describe(), AllOf(HasSubstr("step 7 is not committed"), HasSubstr("still running")));
  go_on.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
  EXPECT_EQ(Latest().step, 7) << "nothing was dropped";
}

TEST_F(PreemptionGuardTest, LetsATrainerThatIsToldToEndCommitItsLastStep) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = PREEMPTED_TRAINER;
  std::string path = store_;
  char* const argv[] = {program.data(), path.data(), nullptr};
  pid_t process = -1;
  ASSERT_EQ(posix_spawn(&process, program.c_str(), &actions, nullptr, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE* told = fdopen(ends[0], "r");
  int64_t steps = 0;
  for (; steps < 15; ++steps) ASSERT_EQ(std::fgetc(told), '.');
  kill(process, SIGTERM);
  int next = 0;
  while ((next = std::fgetc(told)) == '.') ++steps;
  EXPECT_EQ(next, '\n');
  int how = -1;
  ASSERT_EQ(waitpid(process, &how, 0), process);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  std::fclose(told);
  EXPECT_EQ(Latest().step, steps - 1) << "the step at hand when the signal came";
}

}  // namespace
}  // namespace tidemark
