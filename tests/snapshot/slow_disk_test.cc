// A disk that stands still, or crawls: the trainer waits for its tensors to be copied and, if WhenFull says so, for
// room, and for nothing that is on the disk.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/sleeping_thread.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;
using testing::IsEmpty;

// Whether a call is one that the disk holds.
using IsHeld = bool (*)(const std::string& operation, const std::string& path);

bool IsAny(const std::string&, const std::string&) { return true; }
// Lets so many calls through and holds the next ones, but for those of the trainer's thread, which are noted. As long
// as it lives; then it lets all through.
class Disk {
 public:
  explicit Disk(FailingFileSystem& files, IsHeld is_held = IsAny) : files_(files) {
    files.SetGate([state = state_, is_held](const std::string& operation, const std::string& path) {
      if (is_held(operation, path)) state->Admit(operation, path);
    });
  }
  ~Disk() {
    files_.SetGate(nullptr);
    Let(kAll);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // The calling thread is a trainer's too.
  void AddTrainer() {
    absl::MutexLock lock(&state_->mutex);
    state_->trainers.push_back(std::this_thread::get_id());
  }
  // So many more.
  void Let(int64_t calls) {
    absl::MutexLock lock(&state_->mutex);
    state_->left = calls == kAll ? kAll : state_->left + calls;
  }
  // Until all that were let through have been made.
  void AwaitStandstill() {
    const auto stands = [this]() ABSL_SHARED_LOCKS_REQUIRED(state_->mutex) { return state_->left == 0; };
    absl::MutexLock lock(&state_->mutex);
    state_->mutex.Await(absl::Condition(&stands));
  }
  // Until it holds a call. False: `end` is ready before.
  bool AwaitHeldCall(const Future& end) {
    const auto holds_one = [this]() ABSL_SHARED_LOCKS_REQUIRED(state_->mutex) { return state_->held > 0; };
    absl::MutexLock lock(&state_->mutex);
    while (!end.ready()) {
      if (state_->mutex.AwaitWithTimeout(absl::Condition(&holds_one), absl::Milliseconds(10))) return !end.ready();
    }
    return false;
  }
  std::vector<std::string> calls_of_trainer() const {
    absl::MutexLock lock(&state_->mutex);
    return state_->calls_of_trainer;
  }

  static constexpr int64_t kAll = int64_t{1} << 60;

 private:
  // Shared with the calls that it holds, which go on when it is gone.
  struct State {
    void Admit(const std::string& operation, const std::string& path) {
      absl::MutexLock lock(&mutex);
      if (std::find(trainers.begin(), trainers.end(), std::this_thread::get_id()) != trainers.end()) {
        if (left < kAll) calls_of_trainer.push_back(fmt::format("{} {}", operation, path));
        return;
      }
      const auto may_pass = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return left > 0; };
      ++held;
      mutex.Await(absl::Condition(&may_pass));
      --held;
      if (left < kAll) --left;
    }

    absl::Mutex mutex;
    std::vector<std::thread::id> trainers ABSL_GUARDED_BY(mutex) = {std::this_thread::get_id()};
    int64_t left ABSL_GUARDED_BY(mutex) = 0;
    int64_t held ABSL_GUARDED_BY(mutex) = 0;
    std::vector<std::string> calls_of_trainer ABSL_GUARDED_BY(mutex);
  };

  FailingFileSystem& files_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class SlowDiskTest : public testing::TestWithParam<Staging> {
 protected:
  // On a store that has steps already, in a table of its index.
  void Open(WhenFull when_full = WhenFull::kBlock, absl::Duration save_timeout = absl::InfiniteDuration()) {
    for (int64_t step = 1; step <= 3; ++step) {
      checkpointer_ = OpenOnce({});
      auto save = checkpointer_->Save(step, trainer_.state);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
      ASSERT_THAT(checkpointer_->Close(), IsOk());
    }
    checkpointer_ = OpenOnce({.when_full = when_full, .staging = GetParam(), .save_timeout = save_timeout});
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());  // the housekeeper is at rest
  }

  void Reopen() {
    checkpointer_ = OpenOnce({});
    ASSERT_NE(checkpointer_, nullptr);
  }

  // Returns when the trainer may change its tensors.
  absl::StatusOr<SaveHandle> Save(int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer_->Save(step, trainer_.state);
    if (save.ok() && !save->skipped()) {
      EXPECT_THAT(checkpointer_->WaitUntilStaged(), IsOk());
    }
    return save;
  }

  void ExpectAt(int64_t step) {
    trainer_.SetTo(0);
    ASSERT_THAT(checkpointer_->Restore(step, trainer_.state), IsOk());
    EXPECT_TRUE(trainer_.IsAt(step)) << step;
  }

  const storage::TestDirectory directory_ = storage::TestDirectory::InMemory();
  FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;

 private:
  std::unique_ptr<AsyncCheckpointer> OpenOnce(CheckpointerOptions options) {
    options.directory = directory_ / "store";
    options.tuning.io = IoBackend::kThreads;
    options.tuning.poll_interval = absl::Hours(1);
    options.observer = NoWarnings();
    auto opened = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(opened, IsOk());
    return opened.ok() ? *std::move(opened) : nullptr;
  }
};

TEST_P(SlowDiskTest, SavesReturnWhileItStandsStillAndAreCommittedWhenItMoves) {
  ASSERT_NO_FATAL_FAILURE(Open());
  std::vector<SaveHandle> saves;
  {
    Disk disk(files_);
    for (const int64_t step : {11, 12}) {  // as many as have room
      auto save = Save(step);
      ASSERT_THAT(save, IsOk());
      EXPECT_FALSE(save->committed().ready());
      saves.push_back(*std::move(save));
    }
    EXPECT_TRUE(checkpointer_->ShouldSave(13));
    EXPECT_FALSE(checkpointer_->ShouldSave(12));
    EXPECT_THAT(checkpointer_->CheckForErrors(), IsOk());
    EXPECT_EQ(checkpointer_->statistics().staging_bytes_in_use, checkpointer_->statistics().staging_bytes_max);
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    for (const SaveHandle& save : saves) EXPECT_THAT(save.committed().Wait(), IsOk());
  }
  for (const int64_t step : {11, 12}) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
}

TEST_P(SlowDiskTest, ReportsMetricsWithoutWaitingForIt) {
  ASSERT_NO_FATAL_FAILURE(Open());
  Future of_a_committed_step;
  Future of_a_save_in_flight;
  {
    Disk disk(files_);
    ASSERT_THAT(Save(11), IsOk());
    of_a_committed_step = checkpointer_->ReportMetrics(3, "validation", {{"loss", 0.5}});
    of_a_save_in_flight = checkpointer_->ReportMetrics(11, "validation", {{"loss", 0.25}});
    EXPECT_FALSE(of_a_committed_step.ready());
    EXPECT_FALSE(of_a_save_in_flight.ready());
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    EXPECT_THAT(of_a_committed_step.Wait(), IsOk());
    EXPECT_THAT(of_a_save_in_flight.Wait(), IsOk());
  }
  const auto best = checkpointer_->BestStep("validation/loss", BestMode::kLowest);
  ASSERT_THAT(best, IsOk());
  EXPECT_EQ(best->step, 11);
  EXPECT_EQ(best->metrics.at("validation/loss"), 0.25);
}

TEST_P(SlowDiskTest, BlocksTheTrainerForRoomAloneIfItIsTold) {
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kBlock));
  {
    Disk disk(files_);
    for (const int64_t step : {11, 12}) ASSERT_THAT(Save(step), IsOk());
    trainer_.SetTo(13);
    std::atomic<pid_t> saver_id = 0;
    absl::Notification saved;
    std::thread saver([&] {
      disk.AddTrainer();
      saver_id = gettid();
      EXPECT_THAT(checkpointer_->Save(13, trainer_.state), IsOk());
      saved.Notify();
    });
    const auto waits = [&] { return saver_id != 0 && Sleeps(saver_id); };
    while (!waits() && !saved.HasBeenNotified()) std::this_thread::yield();
    EXPECT_FALSE(saved.HasBeenNotified()) << "there was no room";
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    saver.join();
    EXPECT_THAT(checkpointer_->WaitUntilStaged(), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
  }
  for (const int64_t step : {11, 12, 13}) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
}

TEST_P(SlowDiskTest, SkipsOrFailsAtOnceWhereThereIsNoRoom) {
  for (const WhenFull when_full : {WhenFull::kSkip, WhenFull::kFail}) {
    std::filesystem::remove_all(directory_ / "store");
    ASSERT_NO_FATAL_FAILURE(Open(when_full));
    Disk disk(files_);
    for (const int64_t step : {11, 12}) ASSERT_THAT(Save(step), IsOk());
    for (const int64_t step : {13, 14}) {
      auto save = Save(step);
      const absl::Status said = when_full == WhenFull::kFail ? save.status() : save->committed().Wait();
      EXPECT_THAT(said, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too much for this one")));
    }
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    ASSERT_THAT(Save(15), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    for (const int64_t step : {11, 12, 15}) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
    EXPECT_EQ(checkpointer_->Restore(13, trainer_.state).status().code(), absl::StatusCode::kNotFound);
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
  }
}

TEST_P(SlowDiskTest, GivesUpSavesThatAreNotCommittedInTimeAndMakesTheNextOne) {
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kBlock, /*save_timeout=*/absl::Seconds(1)));
  const auto late = [](std::string_view what) {
    return StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(std::string(what)));
  };
  {
    Disk disk(files_);
    auto first = Save(11);
    ASSERT_THAT(first, IsOk());
    EXPECT_THAT(first->committed().Wait(), late("step 11 was not committed within 1s"));
    EXPECT_THAT(checkpointer_->Committed(11).Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 11")));
    ASSERT_THAT(Save(12), IsOk());
    EXPECT_THAT(Save(13), late("step 13 was not saved: there was no room"));
    EXPECT_THAT(checkpointer_->WaitUntilCommitted(), late("step 12 was not committed within 1s"));
    EXPECT_THAT(disk.calls_of_trainer(), testing::Each(HasSubstr("/index/"))) << "Committed looks the step up";
    disk.Let(Disk::kAll);
  }
  // The machine may be slow as well.
  int64_t step = 14;
  const auto commits = [&] {
    auto save = Save(step);
    return save.ok() && save->committed().Wait().ok();
  };
  while (!commits()) ++step;
  ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
  for (const int64_t lost : {11, 12, 13}) {
    EXPECT_THAT(checkpointer_->Restore(lost, trainer_.state), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step")));
  }
}

TEST_P(SlowDiskTest, CommitsASaveAfterItsTimeIfItsCommitStoodStill) {
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kBlock, /*save_timeout=*/absl::Seconds(1)));
  const auto late = [](std::string_view what) {
    return StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(std::string(what)));
  };
  // The machine may be slow as well.
  const auto commits = [&](int64_t step) {
    auto save = Save(step);
    return save.ok() && save->committed().Wait().ok();
  };
  int64_t step = 10;
  for (bool held = false; !held;) {
    // One that was abandoned may be committed before the next one.
    while (!commits(++step)) continue;
    const int64_t last = step;
    Disk disk(files_, IsSyncOfEntry);
    auto save = Save(++step);
    held = save.ok() && disk.AwaitHeldCall(save->committed());
    if (!held) continue;  // it was abandoned before its commit
    EXPECT_THAT(save->committed().Wait(), late(fmt::format("step {} was not committed within 1s", step)));
    // The trainer goes on, and nothing says that the step is committed.
    EXPECT_THAT(checkpointer_->Committed(step).Wait(), StatusIs(absl::StatusCode::kNotFound, testing::_));
    EXPECT_EQ(checkpointer_->LatestStep()->step, last);
    EXPECT_TRUE(checkpointer_->ShouldSave(step + 1));
    ASSERT_THAT(Save(step + 1), IsOk());
    EXPECT_THAT(checkpointer_->WaitUntilCommitted(), late(fmt::format("step {} was not committed", step + 1)));
    EXPECT_THAT(checkpointer_->CheckForErrors(), IsOk());
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
  }
  int64_t next = step + 2;
  while (!commits(next)) ++next;
  ASSERT_NO_FATAL_FAILURE(ExpectAt(next));
  ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
  EXPECT_THAT(checkpointer_->Committed(step).Wait(), IsOk());
  EXPECT_FALSE(checkpointer_->ShouldSave(step));
  EXPECT_THAT(checkpointer_->Restore(step + 1, trainer_.state),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step")));
  ASSERT_THAT(checkpointer_->Close(), IsOk());
}

// The trainer saves the step once more, with another state, while the first commit of it stands still after its time.
// Whatever becomes of the two, the step has the state that was acknowledged last.
TEST_P(SlowDiskTest, SavesAStepAgainWhoseCommitStoodStillAfterItsTime) {
  constexpr int64_t kAgain = 1000;  // added to the state of the second save
  for (const bool in_time : {false, true}) {
    SCOPED_TRACE(in_time ? "the disk moves before the second one's time is up" : "it moves after that");
    ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kBlock, /*save_timeout=*/absl::Seconds(1)));
    const auto commits = [&](int64_t step) {
      auto save = Save(step);
      return save.ok() && save->committed().Wait().ok();
    };
    // The machine may be slow as well.
    int64_t step = 11;
    while (!commits(step)) ++step;
    absl::Status again;
    for (bool held = false; !held;) {
      Disk disk(files_, IsSyncOfEntry);
      auto first = Save(++step);
      held = first.ok() && disk.AwaitHeldCall(first->committed());
      if (!held) continue;
      EXPECT_THAT(first->committed().Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("within 1s")));
      trainer_.SetTo(step + kAgain);
      auto second = checkpointer_->Save(step, trainer_.state);
      ASSERT_THAT(second, IsOk()) << "nothing says that it is committed";
      ASSERT_THAT(checkpointer_->WaitUntilStaged(), IsOk());
      if (!in_time) {
        EXPECT_THAT(second->committed().Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_));
      }
      disk.Let(Disk::kAll);
      again = second->committed().Wait();
      if (!again.ok()) {
        EXPECT_THAT(again, StatusIs(absl::StatusCode::kDeadlineExceeded, testing::_));
      }
    }
    int64_t next = step + 1;
    while (!commits(next)) ++next;
    EXPECT_THAT(checkpointer_->Committed(step).Wait(), IsOk());
    ASSERT_THAT(checkpointer_->Restore(step, trainer_.state), IsOk());
    EXPECT_TRUE(trainer_.IsAt(again.ok() ? step + kAgain : step)) << again;
    checkpointer_->WaitUntilCommitted().IgnoreError();  // what was late
    checkpointer_->Close().IgnoreError();
    checkpointer_.reset();
    // The other attempt has left nothing that a restart would take for the step.
    ASSERT_NO_FATAL_FAILURE(Reopen());
    ASSERT_THAT(checkpointer_->Restore(step, trainer_.state), IsOk());
    EXPECT_TRUE(trainer_.IsAt(again.ok() ? step + kAgain : step)) << again;
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
    std::filesystem::remove_all(directory_ / "store");
  }
}

// A disk that does a few calls while the trainer does a step: fewer than a save takes.
TEST_P(SlowDiskTest, TakesAsManySavesAsItCanWhereItCrawls) {
  constexpr int64_t kCallsPerStep = 3;
  constexpr size_t kSteps = 50;
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kSkip));
  const size_t calls_before = files_.calls().size();
  ASSERT_THAT(Save(10), IsOk());
  ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
  ASSERT_THAT(checkpointer_->Tidy(), IsOk());
  const size_t calls_per_save = files_.calls().size() - calls_before;  // or fewer, since Tidy makes some too
  std::vector<int64_t> saved;
  {
    Disk disk(files_);
    for (int64_t step = 11; step < 11 + int64_t{kSteps}; ++step) {
      auto save = Save(step);
      ASSERT_THAT(save, IsOk());
      if (!save->skipped()) saved.push_back(step);
      disk.Let(kCallsPerStep);
      disk.AwaitStandstill();
    }
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
  }
  // Two have room while the disk stands still, and each that it has done makes room for another. Of the last call that
  // it was let do it may not have reached the end.
  EXPECT_GE(saved.size(), 1 + kSteps * kCallsPerStep / calls_per_save);
  EXPECT_LT(saved.size(), kSteps) << "the disk was to be too slow for all of them";
  for (const int64_t step : saved) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
}

INSTANTIATE_TEST_SUITE_P(All, SlowDiskTest, testing::Values(Staging::kBlocking, Staging::kOverlapped),
                         [](const auto& info) {
                           return std::string(info.param == Staging::kBlocking ? "Blocking" : "Overlapped");
                         });

}  // namespace
}  // namespace tidemark
