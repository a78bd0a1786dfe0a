#include "storage/ranks/epoch_commits.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class EpochCommitsTest : public testing::Test {
 protected:
  EpochCommitsTest() : store_(OpenSoundStore("/store", &warnings_, disk_)) {
    auto commits = EpochCommits::Open(disk_, store_->layout(), store_->Held());
    EXPECT_THAT(commits, IsOk());
    commits_ = *std::move(commits);
  }

  // An entry for each, by a process that does not hold the store. The second one says that the first one survives.
  void AppendTwo(const std::string& fact) {
    const auto journal = Journal::Open(disk_, store_->layout().journal(), {});
    ASSERT_THAT(journal, IsOk());
    ASSERT_THAT((*journal)->Look([](const KnownEntry&, bool) {}), IsOk());
    const auto any = [](const JournalView&) { return absl::OkStatus(); };
    for (int i = 0; i < 2; ++i) ASSERT_THAT((*journal)->Append({.facts = {fact}}, any).status, IsOk());
  }

  SimulatedDisk disk_;
  std::string warnings_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<EpochCommits> commits_;
};

TEST_F(EpochCommitsTest, KnowsACommitOnceItIsKnownToSurvive) {
  const ShardIdentity first = CommitStep(*store_, 10, 1, disk_);
  // The entry itself does not say that it survives.
  EXPECT_EQ(*commits_->Look(first.attempt), (JournalSight{.committed = false, .epoch = 1}));
  EXPECT_EQ(*commits_->Settle(first.attempt), (JournalSight{.committed = true, .epoch = 1}));
  EXPECT_EQ(*commits_->Look(MakeAttemptId(1, 99)), (JournalSight{.committed = false, .epoch = 1}));
}

TEST_F(EpochCommitsTest, ALaterEntrySaysThatTheOneBeforeSurvives) {
  const ShardIdentity first = CommitStep(*store_, 10, 1, disk_);
  CommitStep(*store_, 20, 2, disk_);
  EXPECT_EQ(*commits_->Look(first.attempt), (JournalSight{.committed = true, .epoch = 1}));
}

TEST_F(EpochCommitsTest, AppendsNothingWhereNothingIsToBeSettled) {
  const JournalPlace before = store_->Held().place;
  EXPECT_EQ(*commits_->Settle(MakeAttemptId(1, 1)), (JournalSight{.committed = false, .epoch = 1}));
  ASSERT_THAT(store_->Look(), IsOk());
  EXPECT_EQ(store_->Held().place, before);
}

// Each rank that waits would append an entry.
TEST_F(EpochCommitsTest, AppendsNothingForAnEntryOfAnotherAttempt) {
  CommitStep(*store_, 10, 1, disk_);
  const JournalPlace before = store_->Held().place;
  EXPECT_EQ(*commits_->Settle(MakeAttemptId(1, 99)), (JournalSight{.committed = false, .epoch = 1}));
  ASSERT_THAT(store_->Look(), IsOk());
  EXPECT_EQ(store_->Held().place, before);
}

TEST_F(EpochCommitsTest, SettlesANewerEpoch) {
  const std::unique_ptr<FileSystem> client = disk_.NewClient();
  std::string warnings;
  const std::unique_ptr<Store> newer = OpenSoundStore("/store", &warnings, *client);
  EXPECT_EQ(*commits_->Look(MakeAttemptId(1, 1)), (JournalSight{.committed = false, .epoch = 1}));
  EXPECT_EQ(*commits_->Settle(MakeAttemptId(1, 1)), (JournalSight{.committed = false, .epoch = 2}));
}

// Else a newer epoch behind a commit that was not understood would say that there is none.
TEST_F(EpochCommitsTest, AnEntryThatIsNotUnderstoodStopsEveryLookFromThenOn) {
  AppendTwo("\xff: a fact of a newer version");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(commits_->Look(MakeAttemptId(1, 1)), StatusIs(StatusCode::kUnimplemented, HasSubstr("entry 2")));
    EXPECT_THAT(commits_->Settle(MakeAttemptId(1, 1)), StatusIs(StatusCode::kUnimplemented, HasSubstr("entry 2")));
  }
}

}  // namespace
}  // namespace tidemark::storage
