// A store under faults: how it is made, opened, and held against what must be in it.

#ifndef TIDEMARK_TESTS_SNAPSHOT_FAULTY_STORE_H_
#define TIDEMARK_TESTS_SNAPSHOT_FAULTY_STORE_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {

// What a trainer may find at a step: the number that it was set to when it saved, or kNothing.
inline constexpr int64_t kNothing = -1;
using Expected = std::map<int64_t, std::set<int64_t>>;

class FaultyStoreTest : public testing::Test {
 protected:
  CheckpointerOptions Options() {
    CheckpointerOptions options;
    options.directory = store_;
    options.observer = NoWarnings();
    // One thread and no io_uring: the order of calls is the same every time. No polling and no scrub, for the same
    // reason.
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    options.tuning.poll_interval = absl::Hours(1);
    options.tuning.scrub_bytes_per_second_max = 0;
    return options;
  }

  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> TryOpen() {
    return CheckpointerOnFileSystem::Open(files_, Options());
  }

  // Where it must open. Null: the test has failed.
  std::unique_ptr<AsyncCheckpointer> Open() { return Open(Options()); }
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options) {
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, storage::IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  // Where what the housekeeper does after an opening is done: the calls of a sweep are then those of what it tries
  // alone, and about the same in each run.
  std::unique_ptr<AsyncCheckpointer> OpenAtRest() {
    auto checkpointer = Open();
    if (checkpointer == nullptr) return nullptr;
    EXPECT_THAT(checkpointer->Tidy(), storage::IsOk());
    return checkpointer;
  }

  // The trainer, set to `contents`, saves; returns when the step's fate is known.
  absl::Status Save(AsyncCheckpointer& checkpointer, int64_t step, int64_t contents, SaveOptions options = {}) {
    trainer_.SetTo(contents);
    auto save = checkpointer.Save(step, trainer_.state, std::move(options));
    const absl::Status status = save.ok() ? save->committed().Wait() : save.status();
    // Whatever became of it, the trainer trains on.
    EXPECT_TRUE(trainer_.IsAt(contents));
    EXPECT_EQ(checkpointer.statistics().staging_bytes_in_use, 0u);
    return status;
  }

  // Keeps what is in the store's place now, so that UseKept can put it there again.
  void Keep() { std::filesystem::copy(store_, kept_, std::filesystem::copy_options::recursive); }
  void UseKept() {
    std::filesystem::remove_all(store_);
    std::filesystem::copy(kept_, store_, std::filesystem::copy_options::recursive);
  }

  // What a call answered is the disk's error, or says that it is not known whether an entry is there because of it.
  static bool IsTold(const absl::Status& status, const storage::InjectedFault& fault) {
    return status.ok() || fault.Explains(status) || (absl::IsUnknown(status) && fault.IsNamedIn(status));
  }

  // Every step of `expected` has one of the contents that it may have, no other one is committed, and the latest is
  // what a restart would take.
  void ExpectSteps(AsyncCheckpointer& checkpointer, const Expected& expected) {
    std::map<int64_t, StepInfo> committed;
    auto steps = checkpointer.Steps();
    ASSERT_THAT(steps, storage::IsOk());
    for (const StepInfo& info : *steps) {
      if (info.state == StepState::kCommitted) committed[info.step] = info;
      EXPECT_TRUE(expected.contains(info.step) || info.state != StepState::kCommitted) << info.step;
      EXPECT_NE(info.state, StepState::kDamaged) << info.reason;
      EXPECT_NE(info.state, StepState::kLost) << info.reason;
    }
    for (const auto& [step, contents] : expected) {
      if (!committed.contains(step)) {
        EXPECT_TRUE(contents.contains(kNothing)) << "step " << step << " is not committed";
        continue;
      }
      trainer_.SetTo(-7);
      const absl::Status restored = checkpointer.Restore(step, trainer_.state).status();
      if (absl::IsNotFound(restored) && contents.contains(kNothing)) continue;  // let go just now
      ASSERT_THAT(restored, storage::IsOk());
      EXPECT_TRUE(contents.contains(trainer_.epoch) && trainer_.IsAt(trainer_.epoch)) << trainer_.note;
    }
    auto latest = checkpointer.RestoreLatest(trainer_.state);
    if (committed.empty()) {
      EXPECT_EQ(latest.status().code(), absl::StatusCode::kNotFound);
      return;
    }
    ASSERT_THAT(latest, storage::IsOk());
    EXPECT_EQ(latest->step, committed.rbegin()->first);
  }

  // The same after the store has been opened anew; then everything is closed.
  void ExpectStepsReopened(const Expected& expected) {
    auto checkpointer = Open();
    ASSERT_NE(checkpointer, nullptr);
    ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer, expected));
    EXPECT_THAT(checkpointer->Close(), storage::IsOk());
  }

  const storage::TestDirectory directory_ = storage::TestDirectory::InMemory();
  const std::string store_ = directory_ / "store";
  const std::string kept_ = directory_ / "kept";
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_{1000};
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_FAULTY_STORE_H_
