// The power goes at random moments of a trainer's work on a real file system: what was acknowledged is there.
//
// TIDEMARK_CUTS: how many times, for each file system. TIDEMARK_SEED: the moments, as far as they are not left to time.

#include <sys/syscall.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/real/loop_file_system.h"
#include "tests/real/run_length.h"
#include "tests/real/step_oracle.h"
#include "tests/real/workload.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/retention/retention_model.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::IsEmpty;

constexpr int kCuts = 10;
constexpr int kCutsOfOneStore = 20;
// Calls of the file system until the power goes: of a recovery and some ten saves, and of a recovery alone.
constexpr int64_t kCallsMax = 900;
constexpr int64_t kCallsOfRecoveryMax = 120;
constexpr int64_t kCutMicrosecondsMax = 120'000;
// From a call of the file system until the power goes while that is under way, or the next ones.
constexpr int64_t kDelayMicrosecondsMax = 2'000;

// Takes the power from a file system, once: beside a call of the file system, in the middle of it, or after a time.
class PowerSwitch {
 public:
  PowerSwitch(LoopFileSystem& disk, absl::Duration delay) : disk_(disk), delay_(delay) {
    thread_ = std::thread([this] {
      pulled_.WaitForNotification();
      // Shorter than a thread can sleep.
      for (const absl::Time begin = absl::Now(); absl::Now() - begin < delay_;) continue;
      Cut();
    });
  }
  ~PowerSwitch() {
    Pull();
    thread_.join();
  }

  // The delay begins.
  void Pull() {
    if (!was_pulled_.exchange(true)) pulled_.Notify();
  }
  void Cut() {
    off_ = true;
    EXPECT_THAT(disk_.CutPower(), IsOk());
  }
  // Whether whatever fails may be due to it.
  bool off() const { return off_; }

  // Before the call that has so many others before it, or with the delay from its beginning on.
  storage::FailingFileSystem::Rule AtCall(int64_t calls) {
    return [this, left = calls](const storage::FailingFileSystem::Call&) mutable {
      if (left-- == 0) delay_ == absl::ZeroDuration() ? Cut() : Pull();
      return absl::OkStatus();
    };
  }

 private:
  LoopFileSystem& disk_;
  const absl::Duration delay_;
  std::atomic<bool> was_pulled_{false};
  std::atomic<bool> off_{false};
  absl::Notification pulled_;
  std::thread thread_;
};

class PowerCutTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    // mkfs.xfs makes none that are smaller than 300 MiB.
    const uint64_t mebibytes = GetParam() == "xfs" ? 320 : 64;
    auto disk = LoopFileSystem::Make({.type = GetParam(), .bytes = mebibytes << 20, .directory = folder_.path()});
    if (absl::IsUnimplemented(disk.status())) {
      const std::string why = fmt::format("{}: {}", GetParam(), std::string(disk.status().message()));
      Summarize("SKIPPED " + why);
      GTEST_SKIP() << why;
    }
    ASSERT_THAT(disk, IsOk());
    disk_ = *std::move(disk);
  }

  int64_t Draw(int64_t from, int64_t to) { return storage::RandomNumber(random_, from, to); }

  // A trainer works until the power goes, and a few doings longer.
  void TrainUntilTheCut() {
    const CheckpointerOptions options = DrawOptions(random_, store_);
    const bool by_time = Draw(0, 3) == 0;
    const bool in_the_middle = Draw(0, 1) == 0;
    const int64_t delay = by_time ? Draw(0, kCutMicrosecondsMax) : in_the_middle ? Draw(1, kDelayMicrosecondsMax) : 0;
    PowerSwitch power(*disk_, absl::Microseconds(delay));
    storage::FailingFileSystem files(storage::PosixFileSystem());
    if (!by_time) files.SetRule(power.AtCall(Draw(0, kCallsMax)));
    if (by_time) power.Pull();
    auto checkpointer = by_time ? AsyncCheckpointer::Open(options) : CheckpointerOnFileSystem::Open(files, options);
    if (!checkpointer.ok()) {
      ASSERT_TRUE(power.off()) << checkpointer.status();
      return;
    }
    Workload workload(**checkpointer, *oracle_, random_(), oracle_->next_step(), oracle_->next_version());
    for (int64_t longer = Draw(0, 3); longer > 0;) {
      const absl::Status status = workload.Operate();
      ASSERT_TRUE(status.ok() || power.off()) << status;
      if (power.off()) --longer;
    }
    while (!power.off()) ASSERT_TRUE(workload.Operate().ok() || power.off());
    (*checkpointer)->WaitUntilStaged().IgnoreError();
    (*checkpointer)->Close().IgnoreError();
  }

  // The power goes again while the store is opened.
  void CutRecovery() {
    PowerSwitch power(*disk_, absl::ZeroDuration());
    storage::FailingFileSystem files(storage::PosixFileSystem());
    files.SetRule(power.AtCall(Draw(0, kCallsOfRecoveryMax)));
    auto checkpointer = CheckpointerOnFileSystem::Open(files, DrawOptions(random_, store_));
    ASSERT_TRUE(checkpointer.ok() || power.off()) << checkpointer.status();
    if (power.off()) ++recoveries_cut_;
  }

  void MountAnew() {
    ASSERT_THAT(disk_->Unmount(), IsOk());
    // What may be on disk of a file that was not synced depends on it.
    const std::string options = GetParam() == "ext4" && Draw(0, 2) == 0 ? "data=writeback" : "";
    ASSERT_THAT(disk_->Mount(options), IsOk());
  }

  void CheckStore() {
    CheckpointerOptions options = DrawOptions(random_, store_);
    options.tuning.poll_interval = absl::InfiniteDuration();  // a late report would let steps go that are being checked
    std::string warnings;
    absl::Mutex mutex;
    options.observer = ObserverOf({.warning = [&](std::string_view line) {
      absl::MutexLock lock(&mutex);
      warnings += std::string(line) + "\n";
    }});
    auto checkpointer = AsyncCheckpointer::Open(options);
    ASSERT_THAT(checkpointer, IsOk());
    EXPECT_THAT(oracle_->CheckOpened(**checkpointer, store_), IsEmpty()) << warnings;
    const int64_t step = oracle_->next_step();
    const int64_t version = oracle_->next_version();
    VersionedState next;
    next.SetTo(step, version);
    oracle_->Begun(step, version, 1);
    auto save = (*checkpointer)->Save(step, next.state(), {.metrics = {{"loss", 1}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    oracle_->Committed(version);
    VersionedState restored;
    auto report = (*checkpointer)->RestoreLatest(restored.state());
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(restored.IsThatOf(step, version)) << "restored step " << report->step;
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }

  // In a folder of its own: the power may take it back that the one before was removed.
  void BeginStore() {
    if (oracle_ != nullptr) Count();
    std::filesystem::remove_all(folder_ / "disk/run");
    store_ = folder_ / fmt::format("disk/run/store-{}", stores_++);
    oracle_ = std::make_unique<StepOracle>();
  }

  void Count() {
    acknowledged_ += oracle_->acknowledged();
    checked_ += oracle_->checked();
    found_ += oracle_->found();
    vanished_ += oracle_->vanished();
  }

  storage::TestDirectory folder_;
  std::string store_;
  int stores_ = 0;
  std::unique_ptr<LoopFileSystem> disk_;
  std::mt19937 random_;
  std::unique_ptr<StepOracle> oracle_;
  int recoveries_cut_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t checked_ = 0;
  uint64_t found_ = 0;
  uint64_t vanished_ = 0;
};

TEST_P(PowerCutTest, EveryAcknowledgedStepIsThereAndTheNextSaveWorks) {
  const int cuts = RunLength("TIDEMARK_CUTS", kCuts);
  const uint32_t seed = storage::FirstSeed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  random_.seed(seed);
  RunProgress progress(fmt::format("{}: power cuts", GetParam()), cuts);
  ASSERT_THAT(disk_->Mount(), IsOk());
  for (int cut = 0; cut < cuts; ++cut) {
    SCOPED_TRACE(fmt::format("cut {}", cut));
    if (cut % kCutsOfOneStore == 0) BeginStore();
    TrainUntilTheCut();
    ASSERT_FALSE(HasFailure());
    MountAnew();
    if (Draw(0, 3) == 0) {
      CutRecovery();
      ASSERT_FALSE(HasFailure());
      MountAnew();
    }
    CheckStore();
    ASSERT_FALSE(HasFailure());
    progress.Show(cut + 1, fmt::format("{} acknowledged saves", acknowledged_ + oracle_->acknowledged()));
  }
  Count();
  progress.End();
  Summarize(fmt::format(
      "{}: {} power cuts, and {} more during recoveries; {} saves acknowledged, {} acknowledged steps held "
      "against the disk, none lost; of {} saves that were cut off {} were there whole and {} not at all; seed {}",
      GetParam(), cuts, recoveries_cut_, acknowledged_, checked_, found_ + vanished_, found_, vanished_, seed));
  if (cuts >= kCuts) {
    EXPECT_GT(acknowledged_, static_cast<uint64_t>(cuts)) << "else little is tested";
  }
}

// What the test above says is worth something: where nothing is synced, a step that was acknowledged is gone.
TEST_P(PowerCutTest, NoticesThatNothingIsSynced) {
  ASSERT_THAT(disk_->Mount(), IsOk());
  BeginStore();
  std::thread([&] {
    PowerSwitch power(*disk_, absl::ZeroDuration());
    // For this thread and those that it starts.
    if (!storage::DenySystemCalls({SYS_fsync, SYS_fdatasync}, /*error=*/0)) GTEST_SKIP() << "seccomp is not allowed";
    auto checkpointer =
        AsyncCheckpointer::Open({.directory = store_, .tuning = {.io = IoBackend::kThreads}, .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
    VersionedState state;
    state.SetTo(1, 1);
    oracle_->Begun(1, 1, 1);
    auto save = (*checkpointer)->Save(1, state.state(), {.metrics = {{"loss", 1}}});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    oracle_->Committed(1);
    power.Cut();
    (*checkpointer)->Close().IgnoreError();
  }).join();
  if (IsSkipped() || HasFailure()) return;
  MountAnew();
  auto checkpointer = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  EXPECT_THAT(oracle_->CheckOpened(**checkpointer, store_), testing::Contains(testing::HasSubstr("step 1")));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PowerCutTest, testing::Values("ext4", "xfs"),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace tidemark
