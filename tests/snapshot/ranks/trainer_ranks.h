// A job of several trainers, each a thread with a checkpointer of its own on one directory. Each rank holds some rows
// of a tensor and a number of its own.

#ifndef TIDEMARK_TESTS_SNAPSHOT_RANKS_TRAINER_RANKS_H_
#define TIDEMARK_TESTS_SNAPSHOT_RANKS_TRAINER_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/ranks/thread_gather.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// What a rank trains: rows of "weight", float32 [kRows, kColumns], in which all elements are those of the last step.
class RankTrainer {
 public:
  static constexpr int64_t kRows = 12;
  static constexpr int64_t kColumns = 5;

  RankTrainer(int32_t rank, int32_t world_size)
      : rank_(rank),
        first_row_(kRows * rank / world_size),
        rows_(kRows * (rank + 1) / world_size - first_row_),
        weight_(static_cast<size_t>(rows_ * kColumns), -1.0f) {
    state.AddBox("weight", Dtype::kFloat32, {kRows, kColumns}, {first_row_, 0}, {rows_, kColumns}, weight_.data());
    state.AddValue(fmt::format("seed.{}", rank), &seed_);
  }

  void TrainTo(int64_t step) {
    for (size_t i = 0; i < weight_.size(); ++i)
      weight_[i] = Element(step, first_row_ * kColumns + static_cast<int64_t>(i));
    seed_ = 100 * step + rank_;
  }

  // Whether it has what was trained to this step, its own number only with `seed`: a job of another size has others.
  bool IsAt(int64_t step, bool seed = true) const {
    for (size_t i = 0; i < weight_.size(); ++i) {
      if (weight_[i] != Element(step, first_row_ * kColumns + static_cast<int64_t>(i))) return false;
    }
    return !seed || seed_ == 100 * step + rank_;
  }

  State state;

 private:
  static float Element(int64_t step, int64_t index) { return static_cast<float>(1000 * step + index); }

  const int32_t rank_;
  const int64_t first_row_;
  const int64_t rows_;
  std::vector<float> weight_;
  int64_t seed_ = -1;
};

class TrainerRanks {
 public:
  TrainerRanks(std::string directory, int32_t world_size) : world_size_(world_size), directory_(std::move(directory)) {
    for (int32_t rank = 0; rank < world_size; ++rank) {
      files_.push_back(std::make_unique<storage::FailingFileSystem>(storage::PosixFileSystem()));
      trainers_.push_back(std::make_unique<RankTrainer>(rank, world_size));
    }
    checkpointers_.resize(static_cast<size_t>(world_size));
    ChangeOptions([](int32_t, CheckpointerOptions&) {});
  }

  // `change` of each rank's options, before Open.
  void ChangeOptions(std::function<void(int32_t rank, CheckpointerOptions&)> change) { change_ = std::move(change); }

  std::vector<absl::Status> Open() {
    gather_ = std::make_unique<ThreadGather>(world_size_);
    return OnEachRank(world_size_, [this](int32_t rank) {
      CheckpointerOptions options;
      options.directory = directory_;
      options.tuning.codec_threads = 1;
      options.tuning.io = IoBackend::kThreads;
      options.ranks = {.rank = rank, .world_size = world_size_, .all_gather = [this, rank](const std::string& bytes) {
                         return gather_->Gather(rank, bytes);
                       }};
      options.observer = ObserverOf({.warning = [this](std::string_view line) {
        absl::MutexLock lock(&mutex_);
        warnings_ += fmt::format("{}\n", line);
      }});
      change_(rank, options);
      auto opened = CheckpointerOnFileSystem::Open(files(rank), std::move(options));
      if (!opened.ok()) return opened.status();
      checkpointers_[static_cast<size_t>(rank)] = *std::move(opened);
      return absl::OkStatus();
    });
  }

  std::vector<absl::Status> Close() {
    return OnEachRank(world_size_, [this](int32_t rank) {
      const absl::Status closed = rank_at(rank).Close();
      checkpointers_[static_cast<size_t>(rank)].reset();
      return closed;
    });
  }

  // What each rank is told of the save: the error of Save, or of the commit.
  absl::Status SaveOne(int32_t rank, int64_t step, SaveOptions options = {}) {
    trainer(rank).TrainTo(step);
    absl::StatusOr<SaveHandle> save = rank_at(rank).Save(step, trainer(rank).state, std::move(options));
    return save.ok() ? save->committed().Wait() : save.status();
  }
  std::vector<absl::Status> Save(int64_t step) {
    return OnEachRank(world_size_, [&](int32_t rank) { return SaveOne(rank, step); });
  }

  std::vector<absl::StatusOr<RestoreReport>> Restore(const RestoreOptions& options = {}) {
    return OnEachRank(world_size_,
                      [&](int32_t rank) { return rank_at(rank).RestoreLatest(trainer(rank).state, options); });
  }
  bool AllAreAt(int64_t step, bool seed = true) const {
    for (const auto& trainer : trainers_) {
      if (!trainer->IsAt(step, seed)) return false;
    }
    return true;
  }

  int32_t world_size() const { return world_size_; }
  AsyncCheckpointer& rank_at(int32_t rank) { return *checkpointers_[static_cast<size_t>(rank)]; }
  RankTrainer& trainer(int32_t rank) { return *trainers_[static_cast<size_t>(rank)]; }
  storage::FailingFileSystem& files(int32_t rank) { return *files_[static_cast<size_t>(rank)]; }
  std::string warnings() {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }

 private:
  const int32_t world_size_;
  const std::string directory_;
  std::function<void(int32_t, CheckpointerOptions&)> change_;
  absl::Mutex mutex_;
  std::string warnings_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<storage::FailingFileSystem>> files_;
  std::vector<std::unique_ptr<RankTrainer>> trainers_;
  std::unique_ptr<ThreadGather> gather_;
  std::vector<std::unique_ptr<AsyncCheckpointer>> checkpointers_;
};

// With a directory for the store.
class TrainerRanksTest : public testing::Test {
 protected:
  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_RANKS_TRAINER_RANKS_H_
