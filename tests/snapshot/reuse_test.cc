// Saves that build upon earlier ones: what did not change is not written again, and nothing that a step needs goes.

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/snapshot/test_trainer.h"
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
    options.chunk_bytes = 64 << 10;
    options.on_warning = [this](std::string_view line) { warnings_ += std::string(line) + "\n"; };
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
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
  EXPECT_FALSE(checkpointer->RestoreLatest(restored.state).ok());
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
    EXPECT_FALSE(checkpointer->Restore(1, restored.state).ok());
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
    EXPECT_FALSE(checkpointer->Restore(1, restored.state).ok());  // looked at once more, and still damaged
    EXPECT_EQ(Save(*checkpointer, 4).reused_bytes, 0u);
  }
}

TEST_F(ReuseTest, BuildsUponNothingThatIsGone) {
  auto checkpointer = Open();
  Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  std::filesystem::remove_all(std::filesystem::path(ShardPath(store_, 1)).parent_path());
  EXPECT_EQ(Save(*checkpointer, 3).reused_bytes, 0u);
  EXPECT_THAT(warnings_, HasSubstr("the next step is written as a whole"));
  ExpectRestores(*checkpointer, 3);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  ExpectRestores(*Open(), 3);
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

}  // namespace
}  // namespace tidemark
