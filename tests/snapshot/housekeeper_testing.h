// An AsyncCheckpointer whose housekeeping happens when the test says, on a disk that says what the test says.

#ifndef TIDEMARK_TESTS_SNAPSHOT_HOUSEKEEPER_TESTING_H_
#define TIDEMARK_TESTS_SNAPSHOT_HOUSEKEEPER_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {

// Lines that come from any thread.
class Lines {
 public:
  void Add(std::string line) {
    absl::MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> Get() const {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }
  int64_t Count(std::string_view part) const {
    int64_t count = 0;
    for (const std::string& line : Get()) count += line.find(part) == std::string::npos ? 0 : 1;
    return count;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

class HousekeeperTest : public testing::Test {
 protected:
  // In memory: for a test of many syncs.
  explicit HousekeeperTest(bool in_memory = false)
      : directory_(in_memory ? storage::TestDirectory::InMemory() : storage::TestDirectory()) {}

  // Rounds come from what is done, or from Tidy: never from the time that has passed.
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}, ObserverFunctions told = {}) {
    options.directory = store_;
    told.warning = [this](std::string_view line) { warnings_.Add(std::string(line)); };
    if (!told.save_line) told.save_line = [this](std::string_view line) { save_lines_.Add(std::string(line)); };
    options.observer = ObserverOf(std::move(told));
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    options.reuse = false;
    absl::Duration& poll = options.tuning.poll_interval;
    if (poll == absl::Seconds(1)) poll = absl::InfiniteDuration();
    Machine machine(files_);
    machine.now = now_;
    auto checkpointer = CheckpointerOnFileSystem::Open(machine, std::move(options));
    EXPECT_THAT(checkpointer, storage::IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  absl::Status SaveStep(AsyncCheckpointer& checkpointer, int64_t step, Metrics metrics = {}) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state, {.metrics = std::move(metrics)});
    return save.ok() ? save->committed().Wait() : save.status();
  }

  // What is written of evaluations finds no room.
  void FillDisk() { files_.SetRule(NoRoomForEntries()); }

  std::vector<int64_t> CommittedSteps(const AsyncCheckpointer& checkpointer) {
    std::vector<int64_t> committed;
    auto steps = checkpointer.Steps();
    EXPECT_THAT(steps, storage::IsOk());
    for (const StepInfo& info : *steps) {
      if (info.state == StepState::kCommitted) committed.push_back(info.step);
    }
    return committed;
  }

  StepInfo Info(const AsyncCheckpointer& checkpointer, int64_t step) {
    auto steps = checkpointer.Steps();
    EXPECT_THAT(steps, storage::IsOk());
    for (const StepInfo& info : *steps) {
      if (info.step == step) return info;
    }
    ADD_FAILURE() << "no step " << step;
    return {};
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  const OtherProcess other_{store_};  // on a disk without faults
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  std::function<absl::Time()> now_ = absl::Now;  // of checkpointers that are opened from now on
  TestTrainer trainer_{1000};
  Lines warnings_;
  Lines save_lines_;
  absl::Notification release_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_HOUSEKEEPER_TESTING_H_
