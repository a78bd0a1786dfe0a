// AsyncCheckpointer when the disk fails: the error reaches whoever asks, the store stays sound, the next save works.

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/failing_save.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::HasSubstr;

class CheckpointerFailureTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    options.observer = ObserverOf({.warning = [this](std::string_view line) {
      absl::MutexLock lock(&mutex_);
      warnings_ += fmt::format("{}\n", line);
    }});
    // One thread and no io_uring: the order of calls is the same every time.
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  absl::Status SaveStep(AsyncCheckpointer& checkpointer, int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state);
    return save.ok() ? save->committed().Wait() : save.status();
  }

  int CountOfWarning(std::string_view text) {
    absl::MutexLock lock(&mutex_);
    int count = 0;
    for (size_t at = warnings_.find(text); at != std::string::npos; at = warnings_.find(text, at + 1)) ++count;
    return count;
  }

  absl::Mutex mutex_;
  std::string warnings_;
  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_;
};

TEST_F(CheckpointerFailureTest, ReportsAFailureThroughTheFutureAndSavesTheNextStep) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  FailSave(files_, "Create", absl::ResourceExhaustedError("create x: No space left on device (ENOSPC)"));
  EXPECT_THAT(SaveStep(*checkpointer, 2), StatusIs(absl::StatusCode::kResourceExhausted,
                                                   AllOf(HasSubstr("step 2 was not committed"), HasSubstr("ENOSPC"))));
  EXPECT_THAT(checkpointer->CheckForErrors(), IsOk()) << "somebody has looked";
  auto steps = checkpointer->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ(steps->back().state, StepState::kFailed);
  EXPECT_THAT(steps->back().reason, HasSubstr("ENOSPC"));
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(2));
}

// Makes a save of this step fail, and reads no error from its future: ready() does not count as reading.
void FailUnseen(FailingFileSystem& files, AsyncCheckpointer& checkpointer, State& state, int64_t step) {
  FailSave(files, "Create", absl::ResourceExhaustedError("no room"));
  auto save = checkpointer.Save(step, state);
  ASSERT_THAT(save, IsOk());
  while (!save->committed().ready()) std::this_thread::yield();
}

TEST_F(CheckpointerFailureTest, SavesAStepBesideAnEarlierFailureThatNobodyLookedAt) {
  auto checkpointer = Open();
  FailUnseen(files_, *checkpointer, trainer_.state, 1);
  auto second = checkpointer->Save(2, trainer_.state);
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(second->committed().Wait(), IsOk());
  auto third = checkpointer->Save(3, trainer_.state);
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(CountOfWarning("the save of step 1 failed, and its result has not been read"), 1);
  for (const SaveHandle& handle : {*second, *third}) {
    EXPECT_THAT(handle.earlier_failure(),
                StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("step 1"), HasSubstr("no room"))));
  }
  EXPECT_THAT(checkpointer->CheckForErrors(), IsOk()) << "it has been read";
  auto fourth = checkpointer->Save(4, trainer_.state);
  ASSERT_THAT(fourth, IsOk());
  EXPECT_THAT(fourth->earlier_failure(), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(CheckpointerFailureTest, KeepsAnEarlierFailureThatNoHandleWasAskedFor) {
  auto checkpointer = Open();
  FailUnseen(files_, *checkpointer, trainer_.state, 1);
  FailUnseen(files_, *checkpointer, trainer_.state, 2);
  FailUnseen(files_, *checkpointer, trainer_.state, 3);
  ASSERT_THAT(SaveStep(*checkpointer, 4), IsOk());
  for (int step : {1, 2, 3}) {
    EXPECT_EQ(CountOfWarning(fmt::format("the save of step {} failed, and its result", step)), 1);
  }
  EXPECT_THAT(checkpointer->Close(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 1")));
}

TEST_F(CheckpointerFailureTest, KeepsTheFailuresBehindTheOneThatAHandleGave) {
  auto checkpointer = Open();
  for (int step : {1, 2, 3}) FailUnseen(files_, *checkpointer, trainer_.state, step);
  auto fourth = checkpointer->Save(4, trainer_.state);
  ASSERT_THAT(fourth, IsOk());
  EXPECT_THAT(fourth->committed().Wait(), IsOk());
  EXPECT_THAT(fourth->earlier_failure(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 1")));
  EXPECT_THAT(checkpointer->CheckForErrors(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 2")));
  EXPECT_THAT(checkpointer->Close(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 3")));
}

TEST_F(CheckpointerFailureTest, ReportsAFailureNobodyLookedAtWhenItCloses) {
  auto checkpointer = Open();
  FailSave(files_, "Create", absl::ResourceExhaustedError("no room"));
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  EXPECT_THAT(checkpointer->Close(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 1")));
}

TEST_F(CheckpointerFailureTest, WritesAWholeNewAttemptAfterADeviceError) {
  auto checkpointer = Open();
  FailSave(files_, "SyncData", absl::InternalError("fdatasync x: Input/output error (EIO)"));
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  std::vector<std::string> shards;
  for (const FailingFileSystem::Call& call : files_.calls()) {
    if (call.operation == "Create" && call.path.ends_with(".tmk")) shards.push_back(call.path);
  }
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_NE(shards[0], shards[1]);
  EXPECT_FALSE(std::filesystem::exists(shards[0]));
}

TEST_F(CheckpointerFailureTest, EveryCallOfASaveMayFailOnceAndNothingIsLost) {
  // How many calls the first save makes that finds a step to build upon.
  size_t calls = 0;
  ASSERT_THAT(SaveStep(*Open(), 0), IsOk());
  {
    auto checkpointer = Open();
    files_.Reset();
    ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
    calls = files_.calls().size();
  }
  ASSERT_GT(calls, 8u);
  int64_t last_good = 1;
  size_t failures = 0;
  const storage::DrawnCalls drawn;
  for (const absl::Status& error : {absl::InternalError("EIO"), absl::ResourceExhaustedError("ENOSPC")}) {
    for (size_t n = drawn.first; n < calls; n += drawn.stride) {
      SCOPED_TRACE(testing::Message() << "call " << n << " fails with " << error);
      files_.Reset();
      auto checkpointer = Open();
      files_.Reset();
      files_.FailCall(n, error);
      const int64_t step = last_good + 1;
      const absl::Status status = SaveStep(*checkpointer, step);
      files_.Reset();
      if (status.ok()) {
        last_good = step;
      } else {
        ++failures;
      }
      auto report = checkpointer->RestoreLatest(trainer_.state);
      ASSERT_THAT(report, IsOk());
      if (absl::IsUnknown(status) && report->step == step) last_good = step;
      ASSERT_EQ(report->step, last_good);
      ASSERT_TRUE(trainer_.IsAt(last_good));
      ASSERT_THAT(SaveStep(*checkpointer, last_good + 1), IsOk());
      ++last_good;
      ASSERT_THAT(checkpointer->Close(), IsOk());
      // What the failed attempt left is gone once the store has been opened again.
      ASSERT_THAT(Open()->RestoreLatest(trainer_.state), IsOk());
      ASSERT_TRUE(trainer_.IsAt(last_good));
    }
  }
  EXPECT_GT(failures * drawn.stride, 5u);
  size_t folders = 0;
  for ([[maybe_unused]] const auto& folder : std::filesystem::directory_iterator(store_ + "/steps")) ++folders;
  EXPECT_EQ(folders, static_cast<size_t>(last_good) + 1);
}

TEST_F(CheckpointerFailureTest, EveryCallOfASaveThatReplacesAndRecyclesMayFailOnceAndNothingIsLost) {
  // The second of two saves that replace a step writes over the file that the first has left.
  const CheckpointerOptions options{.compression = Compression::kNone, .reuse = false};
  const auto replace = [&](AsyncCheckpointer& checkpointer, int64_t contents) {
    trainer_.SetTo(contents);
    auto save = checkpointer.Save(0, trainer_.state, {.overwrite = true});
    return save.ok() ? save->committed().Wait() : save.status();
  };
  const auto prepare = [&](int64_t contents) {
    auto checkpointer = Open(options);
    EXPECT_THAT(replace(*checkpointer, contents), IsOk());
    EXPECT_THAT(replace(*checkpointer, contents), IsOk());
    files_.Reset();
    return checkpointer;
  };
  size_t calls = 0;
  {
    auto checkpointer = prepare(1);
    ASSERT_THAT(replace(*checkpointer, 2), IsOk());
    calls = files_.calls().size();
    EXPECT_THAT(files_.operations(), testing::Contains("OpenForRewrite"));
  }
  size_t failures = 0;
  const storage::DrawnCalls drawn;
  for (size_t n = drawn.first; n < calls; n += drawn.stride) {
    SCOPED_TRACE(testing::Message() << "call " << n << " fails");
    const int64_t before = static_cast<int64_t>(10 * n) + 10;
    auto checkpointer = prepare(before);
    files_.FailCall(n, absl::InternalError("EIO"));
    const absl::Status status = replace(*checkpointer, before + 1);
    files_.Reset();
    failures += status.ok() ? 0 : 1;
    int64_t expected = status.ok() ? before + 1 : before;
    ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
    if (absl::IsUnknown(status) && trainer_.IsAt(before + 1)) expected = before + 1;
    ASSERT_TRUE(trainer_.IsAt(expected)) << status;
    ASSERT_THAT(checkpointer->Close(), IsOk());
    ASSERT_THAT(Open()->RestoreLatest(trainer_.state), IsOk());
    // An opening finds out what has become of the step.
    if (absl::IsUnknown(status) && trainer_.IsAt(before + 1)) expected = before + 1;
    ASSERT_TRUE(trainer_.IsAt(expected)) << status;
  }
  if (drawn.are_all()) {
    EXPECT_LT(failures, calls);
  }
}

TEST_F(CheckpointerFailureTest, SyncsBothDirectoriesOfARecycledShardBeforeItIsCommitted) {
  storage::SimulatedDisk disk;
  auto checkpointer = CheckpointerOnFileSystem::Open(disk, {.directory = "/store",
                                                            .compression = Compression::kNone,
                                                            .reuse = false,
                                                            .tuning = {.io = IoBackend::kThreads}});
  ASSERT_THAT(checkpointer, IsOk());
  for (int64_t contents = 1; contents <= 3; ++contents) {
    trainer_.SetTo(contents);
    auto save = (*checkpointer)->Save(0, trainer_.state, {.overwrite = true});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  const storage::DiskLog log = disk.log();
  const std::vector<size_t> unsynced = log.Unsynced(log.operations.size());
  size_t recycled = 0;
  for (size_t i = 0; i < log.operations.size(); ++i) {
    if (!log.operations[i].path.ends_with("/retired.tmk") || log.operations[i].new_path.empty()) continue;
    ++recycled;
    EXPECT_THAT(unsynced, testing::Not(testing::Contains(i))) << log.operations[i].ToString();
  }
  EXPECT_EQ(recycled, 1u);
}

TEST_F(CheckpointerFailureTest, EveryCallOfAnOpenMayFailAndTheNextOpenIsWhole) {
  size_t calls = 0;
  {
    auto checkpointer = Open();
    ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
    checkpointer.reset();
    files_.Reset();
    checkpointer = Open();
    calls = files_.calls().size();
  }
  const storage::DrawnCalls drawn;
  for (size_t n = drawn.first; n < calls; n += drawn.stride) {
    SCOPED_TRACE(testing::Message() << "call " << n);
    files_.Reset();
    files_.FailCall(n, absl::InternalError("EIO"));
    auto failed = CheckpointerOnFileSystem::Open(
        files_, {.directory = store_, .tuning = {.io = IoBackend::kThreads}, .observer = NoWarnings()});
    if (!failed.ok()) {
      EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
    }
    failed = absl::CancelledError();
    files_.Reset();
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
    ASSERT_TRUE(trainer_.IsAt(1));
  }
}

// Holds the persister at the creation of a shard, so that its snapshot stays in the arena.
class NoRoomTest : public CheckpointerFailureTest {
 protected:
  void HoldPersister() {
    files_.SetRule([this](const FailingFileSystem::Call& call) {
      if (call.path.ends_with(".tmk")) release_.WaitForNotification();
      return absl::OkStatus();
    });
  }
  absl::Notification release_;
};

TEST_F(NoRoomTest, SkipsAndSaysSo) {
  auto checkpointer = Open({.staging_bytes_max = 2 << 20, .when_full = WhenFull::kSkip});
  HoldPersister();
  auto first = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(first->skipped());
  auto second = checkpointer->Save(2, trainer_.state);
  ASSERT_THAT(second, IsOk());
  EXPECT_TRUE(second->skipped());
  EXPECT_THAT(second->staged().Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging memory")));
  EXPECT_THAT(second->committed().Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging memory")));
  release_.Notify();
  EXPECT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_EQ(checkpointer->Steps()->size(), 1u);
}

TEST_F(NoRoomTest, FailsWhenAskedTo) {
  auto checkpointer = Open({.staging_bytes_max = 2 << 20, .when_full = WhenFull::kFail});
  HoldPersister();
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  EXPECT_THAT(checkpointer->Save(2, trainer_.state),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging memory")));
  release_.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(NoRoomTest, BlocksUntilThereIs) {
  auto checkpointer = Open({.staging_bytes_max = 2 << 20, .when_full = WhenFull::kBlock});
  HoldPersister();
  auto first = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(first, IsOk());
  absl::Status second;
  std::thread saver([&] { second = checkpointer->Save(2, trainer_.state).status(); });
  EXPECT_FALSE(first->committed().ready());
  release_.Notify();
  saver.join();
  EXPECT_THAT(second, IsOk());
  EXPECT_THAT(first->committed().Wait(), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(NoRoomTest, HasTheMemoryBackBeforeACommitIsKnown) {
  auto checkpointer = Open({.staging_bytes_max = 2 << 20, .when_full = WhenFull::kFail});
  HoldPersister();
  auto first = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(first, IsOk());
  // Keeps the persister where it says that the step is committed.
  absl::Notification known;
  absl::Notification go_on;
  first->committed().OnReady([&](const absl::Status&) {
    known.Notify();
    go_on.WaitForNotification();
  });
  release_.Notify();
  known.WaitForNotification();
  EXPECT_THAT(checkpointer->Save(2, trainer_.state), IsOk());
  go_on.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(NoRoomTest, ReplacesAStepThatIsInFlightIfAskedTo) {
  auto checkpointer = Open();
  HoldPersister();
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  trainer_.SetTo(77);
  ASSERT_THAT(checkpointer->Save(1, trainer_.state, {.overwrite = true}), IsOk());
  release_.Notify();
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  trainer_.SetTo(0);
  ASSERT_THAT(checkpointer->Restore(1, trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(77));
}

TEST_F(NoRoomTest, RefusesAStepThatIsInFlight) {
  auto checkpointer = Open();
  HoldPersister();
  auto save = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(checkpointer->Save(1, trainer_.state),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step 1 is being saved")));
  EXPECT_FALSE(checkpointer->ShouldSave(1));
  EXPECT_THAT(save->committed().WaitUntil(absl::Now()), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  release_.Notify();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
