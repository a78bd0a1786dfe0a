#include "snapshot/housekeeping/scrubber.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/shard_format.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/sleeping_thread.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// A scrubber of a store whose step 2 refers to a file of step 1.
class ScrubberTest : public testing::Test {
 protected:
  static constexpr int64_t kFrozen = 100'000;
  static constexpr uint64_t kUnlimited = uint64_t{1} << 40;

  void SetUp() override {
    for (size_t i = 0; i < frozen_.size(); ++i) frozen_[i] = static_cast<float>(i * i % 977) / 977;
    state_.AddTensor("frozen", Dtype::kFloat32, {kFrozen}, frozen_.data());
    state_.AddValue("epoch", &epoch_);
  }

  std::unique_ptr<AsyncCheckpointer> Open(uint64_t bytes_per_second) {
    CheckpointerOptions options;
    options.directory = store_;
    options.compression = Compression::kNone;
    options.tuning.chunk_bytes = 64 << 10;
    options.tuning.scrub_bytes_per_second_max = bytes_per_second;
    options.observer = ObserverOf({.warning = [this](std::string_view line) {
      if (on_warning_) on_warning_(line);
      absl::MutexLock lock(&mutex_);
      warnings_ += std::string(line) + "\n";
    }});
    Machine machine(std::shared_ptr<storage::FileSystem>(files_, &files_->failing));
    machine.scrub_pass_interval = absl::ZeroDuration();
    auto checkpointer = CheckpointerOnFileSystem::Open(machine, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  StepInfo Save(AsyncCheckpointer& checkpointer, int64_t step) {
    epoch_ = step;
    EXPECT_THAT(checkpointer.Save(step, state_)->committed().Wait(), IsOk());
    return *checkpointer.LatestStep();
  }

  // Blocks until a warning has this text.
  std::string AwaitWarning(std::string_view text) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return warnings_.find(text) != std::string::npos; };
    mutex_.Await(absl::Condition(&there));
    return warnings_;
  }

  struct Files {
    explicit Files(const std::string& store) : held(storage::PosixFileSystemAt(store)) {}
    const std::shared_ptr<storage::FileSystem> held;
    storage::FailingFileSystem failing{*held};
  };

  void ExpectRestores(AsyncCheckpointer& checkpointer, int64_t step) {
    const std::vector<float> expected = frozen_;
    frozen_.assign(frozen_.size(), -1);
    ASSERT_THAT(checkpointer.Restore(step, state_), IsOk());
    EXPECT_EQ(frozen_, expected);
    EXPECT_EQ(epoch_, step);
  }

  storage::TestDirectory directory_;
  std::function<void(std::string_view)> on_warning_;  // may be null
  const std::string store_ = directory_ / "store";
  // Shared with a thread that outlives the test if a read takes longer than Scrubber::kStopTimeout.
  const std::shared_ptr<Files> files_ = std::make_shared<Files>(store_);
  std::vector<float> frozen_ = std::vector<float>(kFrozen);
  int64_t epoch_ = 0;
  State state_;
  absl::Mutex mutex_;
  std::string warnings_ ABSL_GUARDED_BY(mutex_);
};

// Without the scrub, every step that is saved from then on is lost with the bit.
TEST_F(ScrubberTest, FindsARottenBitSoThatTheNextSaveWritesItsChunkAnew) {
  {
    auto checkpointer = Open(0);
    Save(*checkpointer, 1);
    EXPECT_GT(Save(*checkpointer, 2).reused_bytes, 0u);
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  FlipBit(ShardPath(store_, 1), 200'000);
  auto checkpointer = Open(kUnlimited);
  EXPECT_GT(Save(*checkpointer, 3).reused_bytes, 0u) << "nothing is read before a save";
  EXPECT_THAT(
      AwaitWarning("the scrub found damage"),
      AllOf(HasSubstr("in entry 'frozen'"), HasSubstr(ShardPath(store_, 1)),
            HasSubstr("Committed steps that need this file: 1, 2, 3."), HasSubstr("checkpoint-inspect verify")));
  EXPECT_EQ(Save(*checkpointer, 4).reused_bytes, 0u);
  ExpectRestores(*checkpointer, 4);
  EXPECT_GT(Save(*checkpointer, 5).reused_bytes, 0u);
  ExpectRestores(*checkpointer, 5);
  ASSERT_THAT(checkpointer->Close(), IsOk());
}

// The store is moved while the scrub opens a file of it. No scrub begins before step 3 is committed: the commit would
// fail in a store that is moved, and nothing is read after a commit that failed.
TEST_F(ScrubberTest, FollowsAStoreThatIsMoved) {
  {
    auto checkpointer = Open(0);
    Save(*checkpointer, 1);
    Save(*checkpointer, 2);
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  const std::string first = ShardPath(store_, 1);
  FlipBit(first, 200'000);
  std::atomic<int> opened = 0;  // the scrubber looks at both until it has ended
  auto checkpointer = Open(kUnlimited);
  files_->failing.SetGate([&](const std::string& operation, const std::string& path) {
    // The save opens it before, to read its index.
    if (operation != "OpenForRead" || path != first || ++opened != 2) return;
    std::filesystem::rename(store_, directory_ / "moved");
    std::filesystem::create_directories(store_ + "/steps");
  });
  ASSERT_THAT(checkpointer->Save(3, state_)->committed().Wait(), IsOk());
  EXPECT_THAT(AwaitWarning("the scrub found damage"), HasSubstr("checksum of a chunk")) << "and not that it is gone";
  EXPECT_GE(opened, 2);
}

// The observer is called on the scrubber's thread.
TEST_F(ScrubberTest, RefusesToBeClosedByTheWarningOfDamage) {
  {
    auto checkpointer = Open(0);
    Save(*checkpointer, 1);
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  FlipBit(ShardPath(store_, 1), 200'000);
  absl::Notification refused;
  std::unique_ptr<AsyncCheckpointer> checkpointer;
  on_warning_ = [&](std::string_view line) {
    if (line.find("the scrub found damage") == std::string_view::npos) return;
    EXPECT_THAT(checkpointer->Close(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("by a callback")));
    refused.Notify();
  };
  checkpointer = Open(kUnlimited);
  Save(*checkpointer, 2);
  refused.WaitForNotification();
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

// A scrubber of a shard of seven chunks. The test plays the persister.
class LoneScrubberTest : public testing::Test {
 protected:
  void SetUp() override {
    const storage::ShardIdentity identity = storage::TestIdentity(1);
    const std::string folder = steps_ + "/" + storage::StepFolderName(1, identity.attempt);
    std::filesystem::create_directories(folder);
    std::mt19937_64 random(1);
    storage::TestContents contents;
    contents.Add(storage::Tensor("frozen", Dtype::kUint8, {kBytes}), storage::RandomBytes(kBytes, random));
    auto shard = storage::WriteShard(folder + "/" + storage::ShardFileName(0, 1), identity, *contents,
                                     {.chunk_bytes = storage::kTestChunkBytes, .codec_threads = 1})
                     .reusable;
    {
      absl::MutexLock lock(&mutex_);
      shard_ = std::move(shard);
    }
    files_->SetGate([opened = opened_](const std::string& operation, const std::string&) {
      absl::MutexLock lock(&opened->mutex);
      opened->count += operation == "OpenForRead" ? 1 : 0;
    });
  }

  std::unique_ptr<Scrubber> Start(std::function<bool()> is_writing,
                                  std::function<void(const storage::ChunkDamage&)> on_damage,
                                  uint64_t bytes_per_second = kUnlimited) {
    auto scrubber = Scrubber::Start({.files = files_,
                                     .steps_directory = steps_,
                                     .is_writing = std::move(is_writing),
                                     .reusable =
                                         [this] {
                                           absl::MutexLock lock(&mutex_);
                                           ++looks_;
                                           return shard_;
                                         },
                                     .on_damage = std::move(on_damage)},
                                    {.bytes_per_second_max = bytes_per_second,
                                     .pass_interval = absl::ZeroDuration(),
                                     .retry_interval = absl::ZeroDuration()});
    EXPECT_THAT(scrubber, IsOk());
    return *std::move(scrubber);
  }

  // Blocks until the scrubber has asked so often what it may read.
  void AwaitLooks(int looks) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return looks_ >= looks; };
    mutex_.Await(absl::Condition(&there));
  }
  void AwaitOpened(int opened) {
    Opened& all = *opened_;
    absl::MutexLock lock(&all.mutex);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(all.mutex) { return all.count >= opened; };
    all.mutex.Await(absl::Condition(&there));
  }
  int looks() {
    absl::MutexLock lock(&mutex_);
    return looks_;
  }
  int opened() {
    absl::MutexLock lock(&opened_->mutex);
    return opened_->count;
  }

  static constexpr int64_t kBytes = 7 * int64_t{storage::kTestChunkBytes};
  static constexpr uint64_t kUnlimited = uint64_t{1} << 40;

  // Files that were opened to be read.
  struct Opened {
    absl::Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
  };

  storage::TestDirectory directory_;
  const std::string steps_ = directory_ / "steps";
  // Shared with a thread that outlives the test if a read takes longer than Scrubber::kStopTimeout.
  const std::shared_ptr<Opened> opened_ = std::make_shared<Opened>();
  const std::shared_ptr<storage::FailingFileSystem> files_ =
      std::make_shared<storage::FailingFileSystem>(storage::PosixFileSystem());
  absl::Mutex mutex_;
  std::shared_ptr<const storage::ReusableShard> shard_ ABSL_GUARDED_BY(mutex_);
  int looks_ ABSL_GUARDED_BY(mutex_) = 0;
};

// All chunks lie in one file, so a pass opens it once. A thread that reads on without a save would open it more often.
TEST_F(LoneScrubberTest, ReadsOnceAfterEachSave) {
  auto scrubber = Start([] { return false; }, [](const storage::ChunkDamage&) { FAIL(); });
  for (int save = 1; save <= 20; ++save) {
    scrubber->SaveEnded();
    AwaitLooks(save);
  }
  scrubber->Stop();
  EXPECT_EQ(looks(), 20);
  EXPECT_LE(opened(), 20);
  EXPECT_GE(opened(), 19) << "the last pass may have been stopped";
}

TEST_F(LoneScrubberTest, ReadsNothingBeforeASaveEnds) {
  auto scrubber = Start([] { return false; }, [](const storage::ChunkDamage&) { FAIL(); });
  scrubber->Stop();
  EXPECT_EQ(looks(), 0);
  EXPECT_TRUE(files_->operations().empty());
}

TEST_F(LoneScrubberTest, ReadsNothingWhileASaveIsWritten) {
  std::atomic<int> asked = 0;
  absl::Notification asked_often;
  auto scrubber = Start(
      [&] {
        if (++asked == 10) asked_often.Notify();
        return true;
      },
      [](const storage::ChunkDamage&) { FAIL(); });
  while (!asked_often.HasBeenNotified()) scrubber->SaveEnded();
  scrubber->Stop();
  EXPECT_TRUE(files_->operations().empty());
}

// Then there is one more pass, for the save.
TEST_F(LoneScrubberTest, GoesOnWithItsPassAfterASaveThatInterruptedIt) {
  absl::Notification interrupted;
  int asked = 0;
  auto scrubber = Start(
      [&] {
        if (++asked != 4) return false;
        interrupted.Notify();
        return true;
      },
      [](const storage::ChunkDamage&) { FAIL(); });
  scrubber->SaveEnded();
  interrupted.WaitForNotification();
  scrubber->SaveEnded();
  AwaitOpened(3);
  scrubber->Stop();
  EXPECT_EQ(looks(), 3);
  EXPECT_EQ(opened(), 3);
}

// At one byte a second, the first piece is followed by a pause of days.
TEST_F(LoneScrubberTest, ReadsAtItsRateAndEndsAPauseAtOnce) {
  auto scrubber = Start([] { return false; }, [](const storage::ChunkDamage&) {}, 1);
  for (int save = 0; save < 10; ++save) scrubber->SaveEnded();
  AwaitLooks(1);
  scrubber->Stop();
  EXPECT_EQ(looks(), 1);
}

TEST_F(LoneScrubberTest, IgnoresDamageThatNothingRefersToAnyMore) {
  std::filesystem::remove_all(steps_);
  std::atomic<int> asked = 0;
  auto scrubber = Start(
      [&] {
        // As if a save were committed when the scrubber has its shard.
        absl::MutexLock lock(&mutex_);
        if (++asked > 1) shard_ = nullptr;
        return false;
      },
      [](const storage::ChunkDamage&) { FAIL(); });
  scrubber->SaveEnded();
  AwaitLooks(2);
  scrubber->SaveEnded();
  AwaitLooks(3);
  scrubber->Stop();
}

// As memory that is short does. Neither the thread nor Stop may stand still for it.
TEST_F(LoneScrubberTest, GoesOnAfterAnException) {
  std::atomic<int> asked = 0;
  auto scrubber = Start(
      [&]() -> bool {
        if (++asked <= 5) throw std::bad_alloc();
        return false;
      },
      [](const storage::ChunkDamage&) { FAIL(); });
  scrubber->SaveEnded();
  AwaitLooks(1);
  scrubber->Stop();
  EXPECT_GT(asked, 5);
}

// Its thread ends when its read does, and calls no function of the host then.
TEST_F(LoneScrubberTest, IsNotWaitedForIfTheDiskDoesNotAnswer) {
  absl::Notification reading, answer, answered;
  files_->SetGate([&](const std::string& operation, const std::string&) {
    if (operation != "OpenForRead" || answer.HasBeenNotified()) return;
    if (!reading.HasBeenNotified()) reading.Notify();
    answer.WaitForNotification();
    answered.Notify();
  });
  std::atomic<bool> stopped = false;
  {
    auto scrubber = Start(
        [&] {
          EXPECT_FALSE(stopped);
          return false;
        },
        [](const storage::ChunkDamage&) { FAIL(); });
    scrubber->SaveEnded();
    reading.WaitForNotification();
    scrubber->Stop();
    stopped = true;
  }
  answer.Notify();
  answered.WaitForNotification();
}

// Both wait for the host's function. One of them ends the thread.
TEST_F(LoneScrubberTest, IsStoppedByTwoThreadsAtOnce) {
  absl::Notification in_host, leave;
  std::atomic<bool> left = false;
  auto scrubber = Start(
      [&] {
        in_host.Notify();
        leave.WaitForNotification();
        left = true;
        return false;
      },
      [](const storage::ChunkDamage&) { FAIL(); });
  scrubber->SaveEnded();
  in_host.WaitForNotification();
  std::atomic<pid_t> ids[2] = {0, 0};
  std::vector<std::thread> stopping;
  for (std::atomic<pid_t>& id : ids) {
    stopping.emplace_back([&scrubber, &left, &id] {
      id = gettid();
      scrubber->Stop();
      EXPECT_TRUE(left);
    });
  }
  for (const std::atomic<pid_t>& id : ids) {
    while (id == 0 || !Sleeps(id)) std::this_thread::yield();
  }
  leave.Notify();
  for (std::thread& thread : stopping) thread.join();
  scrubber->Stop();
}

}  // namespace
}  // namespace tidemark
