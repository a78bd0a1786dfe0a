// Saves that build upon earlier ones: what did not change is not written again, and nothing that a step needs goes.

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/shard/write/chunk_reuse.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kFrozen = 1'000'000;  // floats

// A frozen tensor and one that changes with every step.
struct Finetuner {
  Finetuner() : frozen(kFrozen), adapter(10'000) {
    state.AddTensor("base", Dtype::kFloat32, {kFrozen}, frozen.data());
    state.AddTensor("adapter", Dtype::kFloat32, {10'000}, adapter.data());
    uint32_t bits = 1;
    for (float& value : frozen) value = static_cast<float>((bits = bits * 1664525u + 1013904223u) >> 8);
    SetTo(0);
  }
  void SetTo(int64_t step) {
    for (size_t i = 0; i < adapter.size(); ++i) adapter[i] = static_cast<float>(step * 31 + static_cast<int64_t>(i));
  }
  bool IsAt(int64_t step) const {
    Finetuner expected;
    expected.SetTo(step);
    return frozen == expected.frozen && adapter == expected.adapter;
  }
  std::vector<float> frozen;
  std::vector<float> adapter;
  State state;
};

class ReuseTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    if (options.tuning.chunk_bytes == Tuning().chunk_bytes) options.tuning.chunk_bytes = 64 << 10;
    options.observer =
        ObserverOf({.warning = [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }});
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  std::unique_ptr<AsyncCheckpointer> OpenOn(storage::FileSystem& files) {
    auto checkpointer =
        CheckpointerOnFileSystem::Open(files, {.directory = store_, .tuning = {.chunk_bytes = 64 << 10}});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  StepInfo Save(AsyncCheckpointer& checkpointer, int64_t step, bool overwrite = false) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state, {.overwrite = overwrite});
    EXPECT_THAT(save, IsOk());
    EXPECT_THAT(save->committed().Wait(), IsOk());
    return Info(checkpointer, step);
  }
  static StepInfo Info(const AsyncCheckpointer& checkpointer, int64_t step) {
    const auto steps = checkpointer.Steps();
    return *std::find_if(steps->begin(), steps->end(), [&](const StepInfo& info) { return info.step == step; });
  }
  void ExpectRestores(AsyncCheckpointer& checkpointer, int64_t step) {
    Finetuner restored;
    restored.frozen.assign(kFrozen, 0);
    ASSERT_THAT(checkpointer.Restore(step, restored.state), IsOk());
    EXPECT_TRUE(restored.IsAt(step));
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  std::string warnings_;
  Finetuner trainer_;
};

TEST_F(ReuseTest, WritesOnlyWhatChanged) {
  auto checkpointer = Open();
  const StepInfo first = Save(*checkpointer, 1);
  EXPECT_EQ(first.reused_bytes, 0u);
  for (int64_t step : {2, 3}) {
    const StepInfo next = Save(*checkpointer, step);
    EXPECT_LT(next.stored_bytes, first.stored_bytes / 10);
    EXPECT_GT(next.reused_bytes, first.stored_bytes * 8 / 10);
    EXPECT_EQ(next.logical_bytes, first.logical_bytes);
  }
  for (int64_t step : {1, 2, 3}) ExpectRestores(*checkpointer, step);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->Verify(3)->damage.empty());
  const auto contents = (*reader)->Contents(3);
  ASSERT_THAT(contents, IsOk());
  EXPECT_EQ(contents->entries[0].reused_bytes, contents->entries[0].stored_bytes);
  EXPECT_EQ(contents->entries[1].reused_bytes, 0u);
}

TEST_F(ReuseTest, BuildsUponTheLastStepOfAnEarlierProcess) {
  const uint64_t first = Save(*Open(), 1).stored_bytes;
  EXPECT_LT(Save(*Open(), 2).stored_bytes, first / 10);
  ExpectRestores(*Open(), 2);
}

TEST_F(ReuseTest, BuildsUponTheLastStepAfterADiscardThatDeletesNothing) {
  auto checkpointer = Open();
  const uint64_t first = Save(*checkpointer, 1).stored_bytes;
  Save(*checkpointer, 2);
  ASSERT_THAT(checkpointer->Pin(2), IsOk());
  EXPECT_THAT(checkpointer->DiscardAfter(1),
              storage::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 2 is kept")));
  EXPECT_LT(Save(*checkpointer, 3).stored_bytes, first / 10);
  EXPECT_THAT(*checkpointer->DiscardAfter(3), testing::IsEmpty());
  EXPECT_LT(Save(*checkpointer, 4).stored_bytes, first / 10);
  // One that deletes a step may take files away.
  EXPECT_THAT(*checkpointer->DiscardAfter(3), testing::ElementsAre(4));
  EXPECT_EQ(Save(*checkpointer, 4).reused_bytes, 0u);
  ExpectRestores(*checkpointer, 4);
}

TEST_F(ReuseTest, WritesEverythingWhereItIsOff) {
  auto checkpointer = Open({.reuse = false});
  const StepInfo first = Save(*checkpointer, 1);
  const StepInfo second = Save(*checkpointer, 2);
  EXPECT_EQ(second.reused_bytes, 0u);
  EXPECT_GT(second.stored_bytes, first.stored_bytes / 2);
}

TEST_F(ReuseTest, KeepsTheFilesOfAReplacedStepThatOthersReferTo) {
  auto checkpointer = Open();
  Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  trainer_.frozen.assign(kFrozen, 5.0F);
  {
    // Step 1 is replaced by one that shares nothing with it; step 2 still needs the old files.
    auto save = checkpointer->Save(1, trainer_.state, {.overwrite = true});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  ExpectRestores(*checkpointer, 2);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  ExpectRestores(*Open(), 2);
  EXPECT_THAT(warnings_, Not(HasSubstr("step")));
}

TEST_F(ReuseTest, MayReplaceTheVeryStepThatItBuildsUpon) {
  auto checkpointer = Open();
  const uint64_t first = Save(*checkpointer, 1).stored_bytes;
  for (int i = 0; i < 3; ++i) EXPECT_LT(Save(*checkpointer, 1, /*overwrite=*/true).stored_bytes, first / 10);
  ExpectRestores(*checkpointer, 1);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  ExpectRestores(*Open(), 1);
}

TEST_F(ReuseTest, BuildsUponNothingOnceDamageWasSeen) {
  auto checkpointer = Open();
  const StepInfo first = Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  FlipBit(ShardPath(store_, 1), first.stored_bytes / 2);  // a chunk of the frozen tensor, which step 2 refers to
  Finetuner restored;
  EXPECT_THAT(checkpointer->RestoreLatest(restored.state), storage::StatusIs(absl::StatusCode::kDataLoss, testing::_));
  EXPECT_THAT(warnings_, HasSubstr("step 2 is damaged"));
  const StepInfo third = Save(*checkpointer, 3);
  EXPECT_EQ(third.reused_bytes, 0u);
  ExpectRestores(*checkpointer, 3);
  EXPECT_GT(Save(*checkpointer, 4).reused_bytes, 0u);
}

TEST_F(ReuseTest, BuildsUponNothingThatAnEarlierProcessFoundDamaged) {
  StepInfo first;
  {
    auto checkpointer = Open();
    first = Save(*checkpointer, 1);
    Save(*checkpointer, 2);
    FlipBit(ShardPath(store_, 1), first.stored_bytes / 2);
    Finetuner restored;
    EXPECT_THAT(checkpointer->Restore(1, restored.state), storage::StatusIs(absl::StatusCode::kDataLoss, testing::_));
  }
  {
    // Step 2 was not looked at and counts as committed, but refers to what is damaged.
    auto checkpointer = Open();
    EXPECT_EQ(Save(*checkpointer, 3).reused_bytes, 0u);
    ExpectRestores(*checkpointer, 3);
  }
  {
    auto checkpointer = Open();
    Finetuner restored;
    EXPECT_THAT(checkpointer->Restore(1, restored.state),
                storage::StatusIs(absl::StatusCode::kDataLoss, testing::_));  // looked at once more, and still damaged
    EXPECT_EQ(Save(*checkpointer, 4).reused_bytes, 0u);
  }
}

TEST_F(ReuseTest, BuildsUponNothingThatIsGone) {
  auto checkpointer = Open();
  Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  std::filesystem::remove_all(std::filesystem::path(ShardPath(store_, 1)).parent_path());
  EXPECT_EQ(Save(*checkpointer, 3).reused_bytes, 0u);
  EXPECT_THAT(warnings_, HasSubstr("the next step is written in full"));
  ExpectRestores(*checkpointer, 3);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  ExpectRestores(*Open(), 3);
}

// The regular files beneath a folder.
uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

// A state of one tensor of noise, in chunks of 4096 bytes.
struct NoisyTable {
  static constexpr size_t kChunks = 256;

  NoisyTable() {
    for (uint32_t& value : table) value = random();
    state.AddTensor("table", Dtype::kUint32, {kChunks * 1024}, table.data());
  }

  std::mt19937 random{7};
  std::vector<uint32_t> table = std::vector<uint32_t>(kChunks * 1024);
  State state;
};

// Half of them by a process that has just started, which knows of the files what the disk says.
TEST_F(ReuseTest, KeepsFilesOfAtMostTwiceAWholeStep) {
  constexpr size_t kChunks = NoisyTable::kChunks;
  NoisyTable noise;
  auto& [random, table, state] = noise;
  uint64_t whole = 0;
  uint64_t reused = 0;
  std::unique_ptr<AsyncCheckpointer> checkpointer;
  for (int64_t step = 0; step < 40; ++step) {
    for (size_t i = 0; step > 0 && i < kChunks / 5; ++i) ++table[random() % kChunks * 1024];
    if (step % 2 == 0) {
      checkpointer.reset();
      auto opened = AsyncCheckpointer::Open({.directory = store_,
                                             .compression = Compression::kNone,
                                             .retention = {.max_to_keep = 1},
                                             .tuning = {.chunk_bytes = 4096}});
      ASSERT_THAT(opened, IsOk());
      checkpointer = *std::move(opened);
    }
    const auto save = checkpointer->Save(step, state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    if (step == 0) whole = BytesIn(store_ + "/steps");
    EXPECT_LE(BytesIn(store_ + "/steps"), 2 * whole + storage::kNeededBytesSlack) << "step " << step;
    reused += Info(*checkpointer, step).reused_bytes;
  }
  EXPECT_GT(reused, 39 * whole / 2) << "of what did not change most is not written again";
}

// How much a save will write is an estimate. Here every eighth save changes far more than the one before.
TEST_F(ReuseTest, KeepsFilesOfAtMostThreeTimesAWholeStepAfterAChangeThatNothingForetold) {
  constexpr size_t kChunks = NoisyTable::kChunks;
  NoisyTable noise;
  auto& [random, table, state] = noise;
  auto checkpointer =
      Open({.compression = Compression::kNone, .retention = {.max_to_keep = 1}, .tuning = {.chunk_bytes = 4096}});
  uint64_t whole = 0;
  uint64_t most = 0;
  for (int64_t step = 0; step < 64; ++step) {
    const bool large = step % 8 == 7;
    for (size_t chunk = 0; step > 0 && chunk < kChunks; ++chunk) {
      if (random() % 100 < (large ? 75 : 8)) ++table[chunk * 1024];
    }
    const auto save = checkpointer->Save(step, state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    const uint64_t bytes = BytesIn(store_ + "/steps");
    if (step == 0) whole = bytes;
    EXPECT_LE(bytes, (large ? 3 : 2) * whole + storage::kNeededBytesSlack) << "step " << step;
    most = std::max(most, bytes);
  }
  EXPECT_GT(most, 2 * whole + storage::kNeededBytesSlack) << "else the bound is better than the header says";
}

// The first step is deleted after the second save. Its file has the index that is the base of later steps' deltas.
TEST_F(ReuseTest, KeepsTheIndexOfADeletedStepForTheDeltasToIt) {
  constexpr int64_t kTensors = 12'000;
  std::vector<float> numbers(kTensors * 4);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const auto state_of = [](std::vector<float>& values) {
    auto state = std::make_unique<State>();
    for (int64_t i = 0; i < kTensors; ++i) {
      state->AddTensor("layers." + std::to_string(i) + ".bias", Dtype::kFloat32, {4}, &values[i * 4]);
    }
    return state;
  };
  const auto state = state_of(numbers);
  const auto open = [&] {
    auto opened = AsyncCheckpointer::Open(
        {.directory = store_, .compression = Compression::kNone, .retention = {.max_to_keep = 1}});
    EXPECT_THAT(opened, IsOk());
    return *std::move(opened);
  };
  uint64_t whole = 0;
  for (int64_t step = 0; step < 6; ++step) {
    if (step == 4) LoseJournalAndIndex(store_);  // they are made anew from the shards
    auto checkpointer = open();
    for (int64_t i = 0; i < 20; ++i) numbers[(step * 1000 + i) * 4] -= 1;
    const auto save = checkpointer->Save(step, *state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    const uint64_t stored = Info(*checkpointer, step).stored_bytes;
    if (step == 0) whole = stored;
    EXPECT_LT(stored, step == 0 ? stored + 1 : whole / 20) << "step " << step;
    EXPECT_LE(BytesIn(store_ + "/steps"), 2 * whole + storage::kNeededBytesSlack);
    std::vector<float> restored(numbers.size());
    ASSERT_THAT(checkpointer->Restore(step, *state_of(restored)), IsOk());
    EXPECT_TRUE(restored == numbers) << "step " << step;
  }
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  const auto verified = (*reader)->Verify(5);
  ASSERT_THAT(verified, IsOk());
  EXPECT_TRUE(verified->damage.empty());
}

ino_t InodeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

TEST_F(ReuseTest, WritesOverTheFileOfAnAttemptThatWasReplaced) {
  auto checkpointer = Open({.compression = Compression::kNone, .reuse = false});
  Save(*checkpointer, 1);
  const ino_t first = InodeOf(ShardPath(store_, 1));
  Save(*checkpointer, 1, /*overwrite=*/true);
  EXPECT_NE(InodeOf(ShardPath(store_, 1)), first);
  EXPECT_TRUE(std::filesystem::exists(store_ + "/retired.tmk"));
  Save(*checkpointer, 2);
  EXPECT_EQ(InodeOf(ShardPath(store_, 2)), first);
  EXPECT_FALSE(std::filesystem::exists(store_ + "/retired.tmk"));
  ExpectRestores(*checkpointer, 1);
  ExpectRestores(*checkpointer, 2);
  Save(*checkpointer, 2, /*overwrite=*/true);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(store_ + "/retired.tmk"));
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->Verify(1)->damage.empty());
  EXPECT_TRUE((*reader)->Verify(2)->damage.empty());
}

TEST_F(ReuseTest, LeavesAFileThatSomebodyReadsToThem) {
  auto checkpointer = Open({.compression = Compression::kNone, .reuse = false});
  Save(*checkpointer, 1);
  auto file = storage::PosixFileSystem().OpenForRead(ShardPath(store_, 1), /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  std::vector<std::byte> before(*(*file)->Size());
  ASSERT_THAT((*file)->ReadAt(0, before), IsOk());
  Save(*checkpointer, 1, /*overwrite=*/true);
  trainer_.frozen.assign(kFrozen, 5.0F);
  Save(*checkpointer, 2);
  std::vector<std::byte> after(before.size());
  ASSERT_THAT((*file)->ReadAt(0, after), IsOk());
  EXPECT_EQ(before, after);
  EXPECT_EQ(checkpointer->LatestStep()->step, 2);
}

TEST_F(ReuseTest, SharesNothingBetweenEntriesOfOtherNames) {
  auto checkpointer = Open();
  Save(*checkpointer, 1);
  State renamed;
  renamed.AddTensor("other", Dtype::kFloat32, {kFrozen}, trainer_.frozen.data());
  auto save = checkpointer->Save(2, renamed);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(checkpointer->Steps()->back().reused_bytes, 0u);
}

// An evaluator that lags behind reads what a later save would otherwise go on to refer to.
TEST_F(ReuseTest, EndsWhereAnEvaluatorMeetsDamage) {
  auto checkpointer = Open({.reuse = true});
  absl::Notification go_on;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "slow", .when_lagging = WhenLagging::kQueue},
                                         [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           go_on.WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  Save(*checkpointer, 1);
  EXPECT_LT(Save(*checkpointer, 2).stored_bytes, Info(*checkpointer, 1).stored_bytes / 2);
  FlipBit(ShardPath(store_, 1), 100'000);
  go_on.Notify();
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_EQ(Info(*checkpointer, 2).evaluations.at(0).outcome, Evaluation::Outcome::kFailed);
  Save(*checkpointer, 3);
  ExpectRestores(*checkpointer, 3);
}

// Its files go with the save that takes its place, and that is no damage.
TEST_F(ReuseTest, GoesOnWhereAnEvaluatorReadsAnAttemptThatIsReplaced) {
  storage::FailingFileSystem files{storage::PosixFileSystem()};
  auto checkpointer = OpenOn(files);
  absl::Notification go_on, is_reading, is_replaced;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "slow", .when_lagging = WhenLagging::kQueue},
                                         [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           go_on.WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  const std::string folder = std::filesystem::path(ShardPath(store_, 2)).parent_path();
  std::atomic<bool> first = true;
  files.SetGate([&](const std::string&, const std::string& path) {
    if (!path.starts_with(folder) || !first.exchange(false)) return;
    is_reading.Notify();
    is_replaced.WaitForNotification();
  });
  go_on.Notify();
  is_reading.WaitForNotification();
  trainer_.SetTo(20);
  EXPECT_THAT(checkpointer->Save(2, trainer_.state, {.overwrite = true})->committed().Wait(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(folder)) << "nothing refers to it";
  is_replaced.Notify();
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_GT(Save(*checkpointer, 3).reused_bytes, 0u);
  ExpectRestores(*checkpointer, 3);
  ASSERT_THAT(checkpointer->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
