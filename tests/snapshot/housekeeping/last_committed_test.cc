#include "snapshot/housekeeping/last_committed.h"

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/saved_by_ranks.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::ShardIdentity;
using storage::Store;
using testing::AllOf;
using testing::HasSubstr;

class LastCommittedTest : public testing::Test {
 protected:
  void SetUp() override { store_ = storage::OpenSoundStore(directory_ / "store", &warnings_); }

  // What the next save of a process that has just started builds upon; -1: nothing.
  int64_t Step() {
    LastCommitted last(storage::PosixFileSystem(), *store_, /*of_rank=*/false,
                       [this](std::string_view line) { warnings_ += std::string(line) + "\n"; });
    const auto shard = last.Get();
    return shard == nullptr ? -1 : shard->identity.step;
  }

  void Delete(const ShardIdentity& identity) {
    ASSERT_THAT(store_->NoteSteps({{.step = identity.step,
                                    .attempt = storage::ToHex(identity.attempt.bytes),
                                    .deleted = true,
                                    .reason = "too old"}}),
                IsOk());
    ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  }

  storage::TestDirectory directory_;
  std::string warnings_;
  std::unique_ptr<Store> store_;
};

TEST_F(LastCommittedTest, IsTheHighestCommittedStepBelowOthers) {
  EXPECT_EQ(Step(), -1);
  CommitStep(*store_, 1, 100);
  CommitStep(*store_, 2, 200);
  const ShardIdentity damaged = CommitStep(*store_, 3, 300);
  ASSERT_THAT(store_->MarkStep(3, storage::ToHex(damaged.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  ASSERT_THAT(store_->RecordUnsaved({.step = 4, .state = StepState::kUnsaved}), IsOk());
  EXPECT_EQ(Step(), 2);
  EXPECT_EQ(warnings_, "");
}

TEST_F(LastCommittedTest, KnowsWhetherNamesAreRepeated) {
  const auto repeats_names = [&] {
    LastCommitted last(storage::PosixFileSystem(), *store_, /*of_rank=*/false, [](std::string_view) {});
    const auto shard = last.Get();
    return shard != nullptr && shard->repeats_names;
  };
  CommitStep(*store_, 1, 100);
  EXPECT_FALSE(repeats_names());
  std::deque<RankContents> ranks(1);
  const EntrySpec tensor{.name = "w", .dtype = Dtype::kUint8, .shape = {2}};
  for (const int64_t i : {0, 1}) ranks[0].AddBox(tensor, std::vector<std::byte>(2), {{i}, {1}});
  ASSERT_THAT(SaveByRanks(*store_, 2, ranks, storage::kChunkBytesMin), IsOk());
  EXPECT_TRUE(repeats_names());
}

TEST_F(LastCommittedTest, MayReferToFilesOfADeletedStep) {
  const ShardIdentity base = CommitStep(*store_, 1, 100);
  CommitReferringStep(*store_, 2, base);
  Delete(base);
  EXPECT_EQ(Step(), 2);
  EXPECT_EQ(warnings_, "");
}

TEST_F(LastCommittedTest, IsNotBuiltUponWhereAFileOfADeletedStepIsGone) {
  const ShardIdentity base = CommitStep(*store_, 1, 100);
  CommitReferringStep(*store_, 2, base);
  Delete(base);
  std::filesystem::remove_all(store_->layout().attempt(1, base.attempt));
  EXPECT_EQ(Step(), -1);
  EXPECT_THAT(warnings_, HasSubstr("the next step is written in full"));
}

TEST_F(LastCommittedTest, IsNotBuiltUponWhereItRefersToADamagedStep) {
  const ShardIdentity base = CommitStep(*store_, 1, 100);
  CommitReferringStep(*store_, 2, base);
  ASSERT_THAT(store_->MarkStep(1, storage::ToHex(base.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  Delete(base);  // which does nothing to a damaged one
  EXPECT_EQ(Step(), -1);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("step 1 is damaged"), HasSubstr("bit rot")));
}

TEST_F(LastCommittedTest, WarnsWithNoLockHeldAndTakesWhatIsSetMeanwhile) {
  const ShardIdentity identity = CommitStep(*store_, 1, 100);
  std::filesystem::remove_all(store_->layout().attempt(1, identity.attempt));
  std::filesystem::create_directory(store_->layout().attempt(1, identity.attempt));
  const auto gone = std::make_shared<const storage::ReusableShard>(storage::ReusableShard{.identity = identity});
  const auto newer = std::make_shared<const storage::ReusableShard>();
  LastCommitted* raw = nullptr;
  int warnings = 0;
  LastCommitted last(storage::PosixFileSystem(), *store_, /*of_rank=*/false, [&](std::string_view) {
    ++warnings;
    EXPECT_EQ(raw->Set(newer, raw->times_forgotten()), gone);
  });
  raw = &last;
  EXPECT_EQ(last.Set(gone, last.times_forgotten()), nullptr);
  EXPECT_EQ(last.Get(), newer);
  EXPECT_EQ(warnings, 1);
}

// An evaluator has met damage while the save was written.
TEST_F(LastCommittedTest, IsNotASaveThatHadBegunWhenSomethingWasForgotten) {
  LastCommitted last(storage::PosixFileSystem(), *store_, /*of_rank=*/false, [](std::string_view) {});
  const uint64_t before = last.times_forgotten();
  const auto shard =
      std::make_shared<const storage::ReusableShard>(storage::ReusableShard{.identity = CommitStep(*store_, 1, 100)});
  last.Forget();
  EXPECT_EQ(last.Set(shard, before), shard);
  EXPECT_EQ(last.Get(), nullptr);
  EXPECT_EQ(last.Set(shard, last.times_forgotten()), nullptr);
  EXPECT_EQ(last.Get(), shard);
}

TEST_F(LastCommittedTest, OfARankIsTheLastThatRefersToNoFile) {
  LastCommitted last(storage::PosixFileSystem(), *store_, /*of_rank=*/true, [](std::string_view) {});
  const ShardIdentity base = CommitStep(*store_, 1, 100);
  EXPECT_EQ(last.Get(), nullptr) << "what an earlier process has saved";
  const auto whole = std::make_shared<const storage::ReusableShard>(storage::ReusableShard{.identity = base});
  EXPECT_EQ(last.Set(whole, 0), nullptr);
  storage::ReusableShard refers{.identity = CommitReferringStep(*store_, 2, base)};
  refers.index.files = {{.step = 1, .attempt = base.attempt}};
  const auto referring = std::make_shared<const storage::ReusableShard>(std::move(refers));
  EXPECT_EQ(last.Set(referring, 0), referring);
  EXPECT_EQ(last.Get(), whole);
}

// A restore of another rank may have found it.
TEST_F(LastCommittedTest, OfARankIsNotBuiltUponAfterAnyDamage) {
  const ShardIdentity damaged = CommitStep(*store_, 1, 100);
  const ShardIdentity base = CommitStep(*store_, 2, 200);
  const auto shard = std::make_shared<const storage::ReusableShard>(storage::ReusableShard{.identity = base});
  for (const bool of_rank : {false, true}) {
    LastCommitted last(storage::PosixFileSystem(), *store_, of_rank, [](std::string_view) {});
    last.Set(shard, 0).reset();
    ASSERT_EQ(last.Get(), shard);
    ASSERT_THAT(store_->MarkStep(1, storage::ToHex(damaged.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
    EXPECT_EQ(last.Get(), of_rank ? nullptr : shard);
    last.Set(shard, 0).reset();
    EXPECT_EQ(last.Get(), shard);
    ASSERT_THAT(store_->MarkStep(1, storage::ToHex(damaged.attempt.bytes), StepState::kCommitted, ""), IsOk());
  }
}

}  // namespace
}  // namespace tidemark
