// AsyncCheckpointer in a child that the trainer forks: every call is refused at once, nothing hangs or crashes, also
// when the child ends by exit() with a static checkpointer, and the parent's store is unharmed.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/step_companion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/preemption_guard.h"

namespace tidemark {
namespace {

using storage::IsOk;

constexpr unsigned kHangSeconds = 60;

// What the child is left with by a trainer that keeps it in a global variable.
std::unique_ptr<AsyncCheckpointer> checkpointer;
std::unique_ptr<PreemptionGuard> guard;

// Forks, runs `body` in the child, and says how that ended: "" is exit(0).
std::string InForkedChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    body();
    std::exit(0);  // with the destructors of what is static
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit {}", WEXITSTATUS(status));
}

void ExpectRefused(const char* call, const absl::Status& status) {
  if (absl::IsFailedPrecondition(status) && status.message().find("opened by process") != std::string::npos) return;
  std::fprintf(stderr, "%s: %s\n", call, status.ToString().c_str());
  _exit(1);
}

// Each public function, in the child.
void CallEverything(State& state) {
  if (checkpointer->ShouldSave(9)) _exit(2);
  if (checkpointer->statistics().staging_bytes_max != 0) _exit(3);
  ExpectRefused("Save", checkpointer->Save(9, state).status());
  ExpectRefused("WaitUntilStaged", checkpointer->WaitUntilStaged());
  ExpectRefused("WaitUntilStaged(entry)", checkpointer->WaitUntilStaged("epoch"));
  ExpectRefused("Prepare", checkpointer->Prepare(state));
  ExpectRefused("PrepareInBackground", checkpointer->PrepareInBackground(state));
  ExpectRefused("WaitUntilCommitted", checkpointer->WaitUntilCommitted());
  ExpectRefused("Committed", checkpointer->Committed(1).Wait());
  ExpectRefused("CheckForErrors", checkpointer->CheckForErrors());
  ExpectRefused("RestoreLatest", checkpointer->RestoreLatest(state).status());
  ExpectRefused("Restore", checkpointer->Restore(1, state).status());
  ExpectRefused("LatestStep", checkpointer->LatestStep().status());
  ExpectRefused("BestStep", checkpointer->BestStep("loss", BestMode::kLowest).status());
  ExpectRefused("Steps", checkpointer->Steps().status());
  ExpectRefused("AddEvaluator", checkpointer->AddEvaluator({.name = "a"}, [](const Snapshot&) { return Verdict(); }));
  ExpectRefused("AddCompanion", checkpointer->AddCompanion(std::make_shared<StepCompanion>()));
  ExpectRefused("ReportMetrics", checkpointer->ReportMetrics(1, "a", {}).Wait());
  ExpectRefused("Pin", checkpointer->Pin(1));
  ExpectRefused("Unpin", checkpointer->Unpin(1));
  ExpectRefused("Tag", checkpointer->Tag(1, "paper"));
  ExpectRefused("Untag", checkpointer->Untag("paper"));
  ExpectRefused("Delete", checkpointer->Delete(1, ""));
  ExpectRefused("DiscardAfter", checkpointer->DiscardAfter(0).status());
  ExpectRefused("SetSaveInterval", checkpointer->SetSaveInterval(2));
  ExpectRefused("Evaluate", checkpointer->Evaluate(9, state, {}).status());
  ExpectRefused("Resume", checkpointer->Resume(state).status());
  ExpectRefused("BestStep(metric)", checkpointer->BestStep("loss").status());
  ExpectRefused("WaitUntilEvaluated", checkpointer->WaitUntilEvaluated());
  ExpectRefused("WaitUntilEvaluated(deadline)", checkpointer->WaitUntilEvaluated(absl::InfiniteFuture()));
  ExpectRefused("Tidy", checkpointer->Tidy());
  ExpectRefused("RetentionPlan", checkpointer->RetentionPlan().status());
  ExpectRefused("Close", checkpointer->Close());
  ExpectRefused("Close(deadline)", checkpointer->Close(absl::InfiniteFuture()));
  const PreemptionReport report = guard->SaveAndClose(*checkpointer, 9, state, {});
  ExpectRefused("SaveAndClose", report.save);
  ExpectRefused("SaveAndClose", report.close);
}

class ForkedChildTest : public testing::Test {
 protected:
  void SetUp() override {
    if (storage::kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
    auto opened = AsyncCheckpointer::Open({.directory = directory_ / "store", .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    checkpointer = *std::move(opened);
    auto installed = PreemptionGuard::Install({});
    ASSERT_THAT(installed, IsOk());
    guard = *std::move(installed);
  }

  // Children of every kind: one that calls everything, one that only exits, one that destroys what it was left with.
  void ExpectHarmlessChildren(State& state) {
    EXPECT_EQ(InForkedChild([&] { CallEverything(state); }), "");
    EXPECT_EQ(InForkedChild([] {}), "");
    EXPECT_EQ(InForkedChild([] {
                guard.reset();
                checkpointer.reset();
              }),
              "");
  }

  // What the parent saves is committed, and found.
  void ExpectUnharmed(int64_t step) {
    ASSERT_THAT(checkpointer->Save(step, trainer_.state), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    guard.reset();
    auto again = AsyncCheckpointer::Open({.directory = directory_ / "store", .observer = NoWarnings()});
    ASSERT_THAT(again, IsOk());
    TestTrainer restored;
    auto report = (*again)->RestoreLatest(restored.state);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->step, step);
    EXPECT_TRUE(restored.IsAt(0));
  }

  storage::TestDirectory directory_;
  TestTrainer trainer_;
};

TEST_F(ForkedChildTest, IsRefusedBeforeTheFirstSave) {
  ExpectHarmlessChildren(trainer_.state);
  ExpectUnharmed(1);
}

TEST_F(ForkedChildTest, IsRefusedAfterASave) {
  auto save = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ExpectHarmlessChildren(trainer_.state);
  EXPECT_EQ(InForkedChild([&] {
              if (!save->committed().Wait().ok()) _exit(4);  // the result was there
            }),
            "");
  ExpectUnharmed(2);
}

TEST_F(ForkedChildTest, IsRefusedWhileASaveIsInFlight) {
  GatedState gated;
  auto save = checkpointer->Save(1, gated, {.staging = Staging::kOverlapped});
  ASSERT_THAT(save, IsOk());
  ExpectHarmlessChildren(trainer_.state);
  EXPECT_EQ(InForkedChild([&] {
              ExpectRefused("staged", save->staged().Wait());
              ExpectRefused("committed", save->committed().WaitUntil(absl::InfiniteFuture()));
              if (save->committed().ready()) _exit(5);
              absl::Status called;
              save->committed().OnReady([&](const absl::Status& status) { called = status; });
              ExpectRefused("OnReady", called);
            }),
            "");
  gated.gate.Notify();
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ExpectUnharmed(2);
}

TEST_F(ForkedChildTest, IsRefusedAfterAClose) {
  ASSERT_THAT(checkpointer->Close(), IsOk());
  ExpectHarmlessChildren(trainer_.state);
}

}  // namespace
}  // namespace tidemark
