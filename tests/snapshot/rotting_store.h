// A small store whose shards are changed in every way, in memory.

#ifndef TIDEMARK_TESTS_SNAPSHOT_ROTTING_STORE_H_
#define TIDEMARK_TESTS_SNAPSHOT_ROTTING_STORE_H_

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "snapshot/restore/restore.h"
#include "storage/io/draft_file_system.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/store/store.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {

inline constexpr storage::ShardReadOptions kRotRead{
    .codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 2};

// A tensor of it never changes, so that later steps refer to an earlier one's chunks.
struct RotTrainer : TestTrainer {
  RotTrainer() : TestTrainer(700), frozen(500) {
    for (size_t i = 0; i < frozen.size(); ++i) frozen[i] = static_cast<float>(i * i % 977) / 977;
    frozen_as_made = frozen;
    state.AddTensor("model.frozen", Dtype::kFloat32, {500}, frozen.data());
  }
  bool IsAt(int64_t step) const { return frozen == frozen_as_made && TestTrainer::IsAt(step); }

  std::vector<float> frozen, frozen_as_made;
};

// What became of so many changes.
struct Outcomes {
  std::map<std::string, int64_t> counts;
  void Print(const char* what) const {
    std::printf("%s:", what);
    for (const auto& [outcome, count] : counts) {
      std::printf(" %lld %s;", static_cast<long long>(count), outcome.c_str());
    }
    std::printf("\n");
  }
};

// Steps 5, 10, 20 and 30; 5 and 10 stand on their own, the others refer to 10. Step 30 was saved twice.
class RottingStoreTest : public testing::Test {
 protected:
  struct Step {
    storage::StepRecord record;
    storage::ShardIdentity identity;
    std::string shard;  // below the store's directory
  };

  static void SetUpTestSuite() {
    home_ = new storage::TestDirectory();
    storage::DraftFileSystem files(storage::PosixFileSystem(), home_->path());
    const std::string store = StorePath();
    RotTrainer trainer;
    const auto save = [&](bool reuse, std::vector<int64_t> steps) {
      auto checkpointer = OpenOn(files, nullptr, reuse);
      ASSERT_THAT(checkpointer, storage::IsOk());
      for (const int64_t step : steps) {
        trainer.SetTo(step);
        ASSERT_THAT((*checkpointer)->Save(step, trainer.state, {.overwrite = true})->committed().Wait(),
                    storage::IsOk());
      }
      ASSERT_THAT((*checkpointer)->Close(), storage::IsOk());
    };
    save(false, {5, 10});
    save(true, {20});
    // The first attempt.
    trainer.SetTo(29);
    {
      auto checkpointer = OpenOn(files, nullptr, true);
      ASSERT_THAT(checkpointer, storage::IsOk());
      ASSERT_THAT((*checkpointer)->Save(30, trainer.state)->committed().Wait(), storage::IsOk());
    }
    const storage::FileTree earlier = storage::ReadTree(files, store);
    save(true, {30});
    tree_ = new storage::FileTree(storage::ReadTree(files, store));
    for (const auto& [path, bytes] : earlier.files) {
      if (path.starts_with("/steps/0000000030-")) stale_ = new std::string(bytes);
    }
    ASSERT_NE(stale_, nullptr);
    auto opened = storage::Store::Open(files, {.directory = store, .warn = [](std::string_view) {}, .read = kRotRead});
    ASSERT_THAT(opened, storage::IsOk());
    id_ = (*opened)->id();
    steps_ = new std::map<int64_t, Step>();
    ASSERT_THAT((*opened)->catalog().ForEach([](storage::StepRecord record) {
      const storage::AttemptId attempt{*storage::FromHex(record.info.attempt)};
      Step& step = (*steps_)[record.info.step];
      step.identity = {.store = id_, .step = record.info.step, .attempt = attempt, .sequence = record.info.sequence};
      step.shard = storage::StoreLayout("").shard(record.info.step, attempt, 0, 1);
      step.record = std::move(record);
      return true;
    }),
                storage::IsOk());
    ASSERT_EQ(steps_->size(), 4u);
    ASSERT_EQ(steps_->at(30).record.references.size(), 1u);
    ASSERT_EQ(steps_->at(30).record.references[0].step, 10);
  }

  static void TearDownTestSuite() {
    delete steps_;
    delete stale_;
    delete tree_;
    delete home_;
  }

  static std::string StorePath() { return *home_ / "store"; }

  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOn(storage::FileSystem& files, std::string* warnings,
                                                                   bool reuse = true) {
    static std::mutex mutex;
    return CheckpointerOnFileSystem::Open(
        files, {.directory = StorePath(),
                .compression = Compression::kSpace,
                .reuse = reuse,
                .tuning = {.chunk_bytes = 4096, .codec_threads = 1, .io = IoBackend::kThreads, .io_depth = 2},
                .observer = ObserverOf({.warning = [warnings](std::string_view line) {
                  std::lock_guard lock(mutex);
                  if (warnings != nullptr) *warnings += std::string(line) + "\n";
                }})});
  }

  RottingStoreTest() : files_(storage::PosixFileSystem(), home_->path()) {
    storage::WriteTree(files_, StorePath(), *tree_);
  }

  const Step& step(int64_t number) const { return steps_->at(number); }
  std::string PathOf(int64_t number) const { return StorePath() + step(number).shard; }
  const std::string& BytesOf(int64_t number) const { return tree_->files.at(step(number).shard); }

  // The step's file, to be changed in place.
  std::unique_ptr<storage::File> OpenShard(int64_t number) { return OpenShardOn(files_, number); }
  std::unique_ptr<storage::File> OpenShardOn(storage::FileSystem& files, int64_t number) {
    auto file = files.OpenForRewrite(PathOf(number), /*direct=*/false);
    EXPECT_THAT(file, storage::IsOk());
    return *std::move(file);
  }

  static void Put(storage::File& file, uint64_t offset, std::string_view bytes) {
    ASSERT_THAT(file.WriteAt(offset, std::as_bytes(std::span(bytes))), storage::IsOk());
  }

  // "right" or the code of the error; what is neither fails the test.
  std::string RestoreOf(int64_t number) { return RestoreOn(files_, number); }
  std::string RestoreOn(storage::FileSystem& files, int64_t number) const {
    const storage::StoreLayout layout(StorePath());
    RotTrainer trainer;
    trainer.SetTo(1);
    const RestoreResult result =
        RestoreAttempt({files, layout, id_, kRotRead, {}}, step(number).record, trainer.state, {});
    if (result.status.ok()) {
      EXPECT_TRUE(trainer.IsAt(number)) << "WRONG BYTES were restored";
      return "right";
    }
    EXPECT_EQ(result.cause, RestoreResult::Cause::kCheckpoint) << result.status;
    // Values are given out only when all of it is sound.
    EXPECT_EQ(trainer.epoch, 1);
    return absl::StatusCodeToString(result.status.code());
  }

  bool VerifyFinds(int64_t number) { return VerifyFindsOn(files_, number); }
  bool VerifyFindsOn(storage::FileSystem& files, int64_t number) const {
    const auto verified =
        storage::VerifyShard(files, PathOf(number), StorePath() + "/steps", &step(number).identity, kRotRead);
    EXPECT_THAT(verified, storage::IsOk());
    if (!verified.ok() || !verified->damage.empty()) return verified.ok();
    const storage::StoreLayout layout(StorePath());
    return !OpenRecorded({files, layout, id_, kRotRead, {}}, step(number).record).ok();
  }

  static inline storage::TestDirectory* home_ = nullptr;
  static inline storage::FileTree* tree_ = nullptr;
  static inline std::string* stale_ = nullptr;  // the shard of the first attempt at step 30
  static inline storage::StoreId id_;
  static inline std::map<int64_t, Step>* steps_ = nullptr;

  const uint32_t seed_ = storage::SeedOfCases();  // of the changes that are drawn
  std::mt19937_64 random_{seed_};
  storage::DraftFileSystem files_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_ROTTING_STORE_H_
