// A disk that stands still, or crawls: the trainer waits for its tensors to be copied and, if WhenFull says so, for
// room, and for nothing that is on the disk.

#include <atomic>
#include <cstdint>
#include <filesystem>
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

// Lets so many calls through and holds the next ones, but for those of the trainer's thread, which are noted.
class Disk {
 public:
  explicit Disk(FailingFileSystem& files) : trainer_(std::this_thread::get_id()) {
    files.SetRule([this](const FailingFileSystem::Call& call) {
      Admit(call);
      return absl::OkStatus();
    });
  }
  ~Disk() { Let(kAll); }

  // So many more.
  void Let(int64_t calls) {
    absl::MutexLock lock(&mutex_);
    left_ = calls == kAll ? kAll : left_ + calls;
  }
  std::vector<std::string> calls_of_trainer() const {
    absl::MutexLock lock(&mutex_);
    return calls_of_trainer_;
  }

  static constexpr int64_t kAll = int64_t{1} << 60;

 private:
  void Admit(const FailingFileSystem::Call& call) {
    absl::MutexLock lock(&mutex_);
    if (std::this_thread::get_id() == trainer_) {
      if (left_ < kAll) calls_of_trainer_.push_back(fmt::format("{} {}", call.operation, call.path));
      return;
    }
    const auto may_pass = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return left_ > 0; };
    mutex_.Await(absl::Condition(&may_pass));
    if (left_ < kAll) --left_;
  }

  const std::thread::id trainer_;
  mutable absl::Mutex mutex_;
  int64_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> calls_of_trainer_ ABSL_GUARDED_BY(mutex_);
};

class SlowDiskTest : public testing::TestWithParam<Staging> {
 protected:
  // On a store that has steps already, in a table of its manifest.
  void Open(WhenFull when_full = WhenFull::kBlock) {
    for (int64_t step = 1; step <= 3; ++step) {
      checkpointer_ = OpenOnce({});
      auto save = checkpointer_->Save(step, trainer_.state);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
      ASSERT_THAT(checkpointer_->Close(), IsOk());
    }
    checkpointer_ = OpenOnce({.when_full = when_full, .staging = GetParam()});
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());  // the housekeeper is at rest
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
    options.io = IoBackend::kThreads;
    options.inbox_poll_interval = absl::Hours(1);
    options.on_warning = [](std::string_view) {};
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
    files_.SetRule(nullptr);
  }
  for (const int64_t step : {11, 12}) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
}

TEST_P(SlowDiskTest, BlocksTheTrainerForRoomAloneIfItIsTold) {
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kBlock));
  {
    Disk disk(files_);
    for (const int64_t step : {11, 12}) ASSERT_THAT(Save(step), IsOk());
    std::atomic<bool> moves = false;
    std::thread mover([&] {
      moves = true;
      disk.Let(Disk::kAll);
    });
    ASSERT_THAT(Save(13), IsOk());
    EXPECT_TRUE(moves) << "there was no room before";
    mover.join();
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    files_.SetRule(nullptr);
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
      EXPECT_THAT(said, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("leave no room")));
    }
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    files_.SetRule(nullptr);
    ASSERT_THAT(Save(15), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    for (const int64_t step : {11, 12, 15}) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
    EXPECT_EQ(checkpointer_->Restore(13, trainer_.state).status().code(), absl::StatusCode::kNotFound);
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
  }
}

// A disk that does a few calls while the trainer does a step.
TEST_P(SlowDiskTest, TakesAsManySavesAsItCanWhereItCrawls) {
  ASSERT_NO_FATAL_FAILURE(Open(WhenFull::kSkip));
  std::vector<int64_t> saved;
  {
    Disk disk(files_);
    for (int64_t step = 11; step <= 60; ++step) {
      auto save = Save(step);
      ASSERT_THAT(save, IsOk());
      if (!save->skipped()) saved.push_back(step);
      disk.Let(3);
    }
    EXPECT_THAT(disk.calls_of_trainer(), IsEmpty());
    disk.Let(Disk::kAll);
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    files_.SetRule(nullptr);
  }
  EXPECT_GE(saved.size(), 2u);
  for (const int64_t step : saved) ASSERT_NO_FATAL_FAILURE(ExpectAt(step));
}

INSTANTIATE_TEST_SUITE_P(All, SlowDiskTest, testing::Values(Staging::kBlocking, Staging::kOverlapped),
                         [](const auto& info) {
                           return std::string(info.param == Staging::kBlocking ? "Blocking" : "Overlapped");
                         });

}  // namespace
}  // namespace tidemark
