// A job of several ranks on one simulated file server. Each rank is a client of its own: no lock of one reaches
// another, and its calls can be made to fail. Ranks save on threads of their own.

#ifndef TIDEMARK_TESTS_STORAGE_RANKS_RANKED_JOB_H_
#define TIDEMARK_TESTS_STORAGE_RANKS_RANKED_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "storage/ranks/ranked_attempts.h"
#include "storage/store/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

// What a rank saves of a step in these tests.
inline int64_t ValueOf(int64_t step, uint32_t rank) { return 1000 * step + rank; }

// How many ranks have saved the step, as a process that opens the store now finds it: committed, with the right bytes
// of each. kNotFound: it is not committed.
inline absl::StatusOr<uint32_t> CheckStep(FileSystem& files, const Store& store, int64_t step) {
  const absl::StatusOr<std::optional<StepRecord>> record = store.catalog().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
    return absl::NotFoundError("the step is not committed");
  }
  const StepFolder folder{step, AttemptId{*FromHex((*record)->info.attempt)}};
  const absl::StatusOr<Attempt> attempt = ReadAttempt(files, store.layout(), store.id(), folder);
  if (!attempt.ok()) return absl::DataLossError(attempt.status().ToString());
  if (attempt->record.shards != (*record)->shards) return absl::DataLossError("other shards than those recorded");
  for (uint32_t rank = 0; rank < attempt->shards.size(); ++rank) {
    if (attempt->shards[rank]->index().metrics.at("loss") != static_cast<double>(ValueOf(step, rank))) {
      return absl::DataLossError("another rank's bytes");
    }
  }
  return static_cast<uint32_t>(attempt->shards.size());
}

// What one rank saves of a step, as the persister does it; ok: the step is committed.
inline absl::Status SaveShard(RankedAttempts& attempts, FileSystem& files, const StoreLayout& layout, int64_t step,
                              int64_t value, const Digest128& structure = {}) {
  const absl::StatusOr<ShardIdentity> identity = attempts.BeginAttempt(step, structure);
  if (!identity.ok()) return identity.status();
  absl::Status written = WriteShard(layout, *identity, value, files);
  if (written.ok()) {
    const std::string path = layout.shard(step, identity->attempt, identity->rank, identity->world_size);
    const auto shard = ShardReader::Open(files, path, layout.steps());
    written = shard.status();
    if (shard.ok()) {
      StepRecord record;
      record.info = {.step = step,
                     .attempt = ToHex(identity->attempt.bytes),
                     .sequence = identity->sequence,
                     .created = absl::Now(),
                     .world_size = identity->world_size,
                     .entry_count = 1,
                     .logical_bytes = sizeof(value),
                     .stored_bytes = (*shard)->footer().file_bytes};
      record.shards.Add(identity->rank, (*shard)->footer().file_bytes, (*shard)->footer().index_digest);
      return attempts.CommitAttempt(record);
    }
  }
  return attempts.AbandonAttempt(*identity, absl::Now(), written);
}

class RankedJob {
 public:
  static constexpr char kDirectory[] = "/store";

  explicit RankedJob(uint32_t world_size) : world_size_(world_size), layout_(kDirectory) {
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      clients_.push_back(disk_.NewClient());
      files_.push_back(std::make_unique<FailingFileSystem>(*clients_.back()));
    }
    store_ = OpenSoundStore(kDirectory, &warnings_, files(0));
  }

  // With these options, but for the rank and the world size.
  void OpenRanks(RankedAttemptsOptions options) {
    for (uint32_t rank = 0; rank < world_size_; ++rank) OpenRank(rank, options);
  }
  void OpenRank(uint32_t rank, RankedAttemptsOptions options) {
    options.rank = rank;
    if (options.world_size == 1) options.world_size = world_size_;
    options.warn = [](std::string_view) {};
    auto opened = rank == 0 ? RankedAttempts::OpenCoordinator(files(0), *store_, std::move(options))
                            : RankedAttempts::OpenParticipant(files(rank), layout_, store_->Held(), std::move(options));
    ASSERT_THAT(opened, IsOk());
    ranks_.resize(world_size_);
    ranks_[rank] = *std::move(opened);
  }

  void EndWithin(absl::Duration left) {
    for (const auto& rank : ranks_) rank->EndWithin(left);
  }

  // What each rank is told. Rank r saves ValueOf(step, r), if `saves` has it.
  std::vector<absl::Status> Save(int64_t step, const std::function<bool(uint32_t)>& saves = nullptr) {
    std::vector<absl::Status> told(world_size_, absl::OkStatus());
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world_size_; ++rank) {
      if (saves != nullptr && !saves(rank)) continue;
      threads.emplace_back(
          [&, rank] { told[rank] = SaveShard(*ranks_[rank], files(rank), layout_, step, ValueOf(step, rank)); });
    }
    for (std::thread& thread : threads) thread.join();
    return told;
  }
  absl::Status SaveOne(uint32_t rank, int64_t step, const Digest128& structure = {}) {
    return SaveShard(*ranks_[rank], files(rank), layout_, step, ValueOf(step, rank), structure);
  }

  absl::Status Check(int64_t step) {
    const absl::StatusOr<uint32_t> world_size = CheckStep(disk_, *store_, step);
    if (!world_size.ok()) return world_size.status();
    return *world_size == world_size_ ? absl::OkStatus() : absl::DataLossError("a rank is missing");
  }
  size_t attempts_in_steps() { return disk_.ListDirectory(layout_.steps())->size(); }

  // Another job of one rank, on another machine, in the directory of that name.
  class Others {
   public:
    explicit Others(RankedJob& job) : client_(job.disk_.NewClient()) {
      store_ = OpenSoundStore(kDirectory, &warnings_, *client_);
      auto rank = RankedAttempts::OpenCoordinator(*client_, *store_, {.warn = [](std::string_view) {}});
      EXPECT_THAT(rank, IsOk());
      rank_ = *std::move(rank);
    }
    std::vector<absl::Status> Save(int64_t step) {
      return {SaveShard(*rank_, *client_, store_->layout(), step, ValueOf(step, 0))};
    }
    Store& store() { return *store_; }

   private:
    const std::unique_ptr<FileSystem> client_;
    std::string warnings_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<RankedAttempts> rank_;
  };

  FailingFileSystem& files(uint32_t rank) { return *files_[rank]; }
  SimulatedDisk& disk() { return disk_; }
  Store& store() { return *store_; }
  const StoreLayout& layout() const { return layout_; }
  RankedAttempts& rank(uint32_t rank) { return *ranks_[rank]; }

 private:
  const uint32_t world_size_;
  const StoreLayout layout_;
  SimulatedDisk disk_;
  std::vector<std::unique_ptr<FileSystem>> clients_;
  std::vector<std::unique_ptr<FailingFileSystem>> files_;
  std::string warnings_;
  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<RankedAttempts>> ranks_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RANKS_RANKED_JOB_H_
