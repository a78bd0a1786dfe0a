// Every single bit of a small store's shards changed, every length that a shard can be cut to, sectors that are in
// another's place or as an earlier save had them, files that are gone, doubled or somebody else's: what a restore gives
// then is an error or the right answer, never wrong bytes; a verification finds it; and restoring the latest step falls
// back past it and says so.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/restore.h"
#include "storage/io/draft_file_system.h"
#include "storage/manifest/store.h"
#include "storage/shard/shard_verify.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::DraftFileSystem;
using storage::FileTree;
using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr size_t kSector = 512;

constexpr storage::ShardReadOptions kRead{.codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 2};

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
class BitRotTest : public testing::Test {
 protected:
  struct Step {
    storage::StepRecord record;
    storage::ShardIdentity identity;
    std::string shard;  // below the store's directory
  };

  static void SetUpTestSuite() {
    home_ = new storage::TestDirectory();
    DraftFileSystem files(storage::PosixFileSystem(), home_->path());
    const std::string store = StorePath();
    RotTrainer trainer;
    const auto save = [&](bool reuse, std::vector<int64_t> steps) {
      auto checkpointer = OpenOn(files, nullptr, reuse);
      ASSERT_THAT(checkpointer, IsOk());
      for (const int64_t step : steps) {
        trainer.SetTo(step);
        ASSERT_THAT((*checkpointer)->Save(step, trainer.state, {.overwrite = true})->committed().Wait(), IsOk());
      }
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    };
    save(false, {5, 10});
    save(true, {20});
    // The first attempt.
    trainer.SetTo(29);
    {
      auto checkpointer = OpenOn(files, nullptr, true);
      ASSERT_THAT(checkpointer, IsOk());
      ASSERT_THAT((*checkpointer)->Save(30, trainer.state)->committed().Wait(), IsOk());
    }
    const FileTree earlier = storage::ReadTree(files, store);
    save(true, {30});
    tree_ = new FileTree(storage::ReadTree(files, store));
    for (const auto& [path, bytes] : earlier.files) {
      if (path.starts_with("/steps/0000000030-")) stale_ = new std::string(bytes);
    }
    ASSERT_NE(stale_, nullptr);
    auto opened = storage::Store::Open(files, {.directory = store, .warn = [](std::string_view) {}, .read = kRead});
    ASSERT_THAT(opened, IsOk());
    id_ = (*opened)->id();
    steps_ = new std::map<int64_t, Step>();
    ASSERT_THAT((*opened)->manifest().ForEach([](storage::StepRecord record) {
      const storage::AttemptId attempt{*storage::FromHex(record.info.attempt)};
      Step& step = (*steps_)[record.info.step];
      step.identity = {
          .store = id_, .step = record.info.step, .attempt = attempt, .sequence = record.info.sequence};
      step.shard = storage::StoreLayout("").shard(record.info.step, attempt, 0, 1);
      step.record = std::move(record);
      return true;
    }),
                IsOk());
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
    return CheckpointerOnFileSystem::Open(files, {.directory = StorePath(),
                                                  .compression = Compression::kSpace,
                                                  .reuse = reuse,
                                                  .chunk_bytes = 4096,
                                                  .codec_threads = 1,
                                                  .io = IoBackend::kThreads,
                                                  .io_depth = 2,
                                                  .on_warning = [warnings](std::string_view line) {
                                                    std::lock_guard lock(mutex);
                                                    if (warnings != nullptr) *warnings += std::string(line) + "\n";
                                                  }});
  }

  BitRotTest() : files_(storage::PosixFileSystem(), home_->path()) {
    storage::WriteTree(files_, StorePath(), *tree_);
  }

  const Step& step(int64_t number) const { return steps_->at(number); }
  std::string PathOf(int64_t number) const { return StorePath() + step(number).shard; }
  const std::string& BytesOf(int64_t number) const { return tree_->files.at(step(number).shard); }

  // The step's file, to be changed in place.
  std::unique_ptr<storage::File> OpenShard(int64_t number) {
    auto file = files_.OpenForRewrite(PathOf(number), /*direct=*/false);
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }

  static void Put(storage::File& file, uint64_t offset, std::string_view bytes) {
    ASSERT_THAT(file.WriteAt(offset, std::as_bytes(std::span(bytes))), IsOk());
  }

  // "right" or the code of the error; what is neither fails the test.
  std::string RestoreOf(int64_t number) {
    const storage::StoreLayout layout(StorePath());
    RotTrainer trainer;
    trainer.SetTo(1);
    const RestoreResult result =
        RestoreAttempt({files_, layout, id_, kRead, {}}, step(number).record, trainer.state, {});
    if (result.status.ok()) {
      EXPECT_TRUE(trainer.IsAt(number)) << "WRONG BYTES were restored";
      return "right";
    }
    EXPECT_EQ(result.cause, RestoreResult::Cause::kCheckpoint) << result.status;
    // Values are given out only when all of it is sound.
    EXPECT_EQ(trainer.epoch, 1);
    return absl::StatusCodeToString(result.status.code());
  }

  bool VerifyFinds(int64_t number) {
    const auto verified =
        storage::VerifyShard(files_, PathOf(number), StorePath() + "/steps", &step(number).identity, kRead);
    EXPECT_THAT(verified, IsOk());
    if (!verified.ok() || !verified->damage.empty()) return verified.ok();
    const storage::StoreLayout layout(StorePath());
    return !OpenRecorded({files_, layout, id_, kRead, {}}, step(number).record).ok();
  }

  // How many of the changes are tried where everything is slow.
  static size_t Stride(size_t under_sanitizers) {
    return storage::kThreadSanitizer || storage::kAddressSanitizer ? under_sanitizers : 1;
  }

  static storage::TestDirectory* home_;
  static FileTree* tree_;
  static std::string* stale_;  // the shard of the first attempt at step 30
  static storage::StoreId id_;
  static std::map<int64_t, Step>* steps_;

  DraftFileSystem files_;
};

storage::TestDirectory* BitRotTest::home_ = nullptr;
FileTree* BitRotTest::tree_ = nullptr;
std::string* BitRotTest::stale_ = nullptr;
storage::StoreId BitRotTest::id_;
std::map<int64_t, BitRotTest::Step>* BitRotTest::steps_ = nullptr;

TEST_F(BitRotTest, IsFoundAndNeverRestoredWhicheverBitOfAShardChanges) {
  Outcomes outcomes;
  const size_t stride = Stride(997);
  for (const int64_t number : {30, 10}) {
    const std::string& bytes = BytesOf(number);
    const auto file = OpenShard(number);
    for (size_t bit = 0; bit < bytes.size() * 8; bit += stride) {
      SCOPED_TRACE(testing::Message() << "step " << number << ", byte " << bit / 8 << ", bit " << bit % 8);
      const char flipped = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      Put(*file, bit / 8, {&flipped, 1});
      const std::string restored = RestoreOf(30);
      EXPECT_TRUE(VerifyFinds(number)) << "a verification finds nothing";
      ++outcomes.counts["restored " + restored];
      Put(*file, bit / 8, {&bytes[bit / 8], 1});
      if (HasFailure()) return;
    }
  }
  outcomes.Print("bits flipped");
}

}  // namespace
}  // namespace tidemark
