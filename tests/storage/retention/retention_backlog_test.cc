// Files of deleted steps that are still there: retention removes them, some at a time.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/retention/retention_testing.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RetentionBacklogTest : public RetentionTest {
 protected:
  // As a process leaves it that was killed before it removed any files.
  void Mark(const std::vector<ShardIdentity>& attempts) {
    std::vector<StepNote> notes;
    for (const ShardIdentity& attempt : attempts) {
      notes.push_back(
          {.step = attempt.step, .attempt = ToHex(attempt.attempt.bytes), .deleted = true, .reason = "test"});
    }
    auto marked = store_->NoteSteps(notes);
    ASSERT_THAT(marked, IsOk());
    ASSERT_EQ(marked->deleted.size(), attempts.size());
  }
  Retention Remover(size_t changes_max) {
    return Retention(
        *store_, {}, [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }, Observer(), changes_max);
  }
  size_t Pending() const { return store_->catalog().Deletions()->size(); }
};

TEST_F(RetentionBacklogTest, GoesABoundedNumberAtATime) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 5; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitStep(*store_, 6, 6);
  Mark(backlog);
  Retention retention = Remover(/*changes_max=*/2);
  for (const size_t left : {3, 1, 0}) {
    EXPECT_THAT(Apply(retention), IsEmpty());
    EXPECT_EQ(Pending(), left);
    EXPECT_EQ(std::count_if(backlog.begin(), backlog.end(), [&](const auto& attempt) { return HasFiles(attempt); }),
              static_cast<std::ptrdiff_t>(left));
    EXPECT_EQ(retention.unfinished(), left > 0);
  }
  EXPECT_EQ(warnings_, "");
}

TEST_F(RetentionBacklogTest, IsNotHeldUpByWhatStaysOrCannotBeRemoved) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 6; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitReferringStep(*store_, 7, backlog[0]);
  std::unique_ptr<Lease> lease = Take(backlog[1]);
  Mark(backlog);
  const std::string stuck = store_->layout().attempt(3, backlog[2].attempt);
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" && call.path == stuck ? absl::InternalError("injected")
                                                                     : absl::OkStatus();
  });
  Retention retention = Remover(/*changes_max=*/1);
  for (int passes = 1; passes == 1 || retention.unfinished(); ++passes) {
    ASSERT_LE(passes, 4);
    EXPECT_THAT(Apply(retention), IsEmpty());
  }
  EXPECT_EQ(Pending(), 3u);
  EXPECT_TRUE(HasFiles(backlog[0]));
  EXPECT_TRUE(HasFiles(backlog[1]));
  EXPECT_THAT(warnings_, HasSubstr("step 3 was deleted, but its files are still there: injected"));
  files_.Reset();
  lease.reset();
  for (int passes = 0; passes < 2; ++passes) EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(Pending(), 1u);
  EXPECT_FALSE(retention.unfinished());
}

TEST_F(RetentionBacklogTest, GoesBeforeWhatItRefersTo) {
  std::vector<ShardIdentity> bases;
  std::vector<ShardIdentity> referring;
  for (int64_t step = 1; step <= 16; step += 2) {
    bases.push_back(CommitStep(*store_, step, step));
    referring.push_back(CommitReferringStep(*store_, step + 1, bases.back()));
  }
  CommitStep(*store_, 99, 99);
  Mark(bases);
  Mark(referring);
  Retention retention = Remover(/*changes_max=*/5);
  for (int passes = 1; passes == 1 || retention.unfinished(); ++passes) {
    ASSERT_LE(passes, 4);
    EXPECT_THAT(Apply(retention), IsEmpty());
    for (size_t i = 0; i < bases.size(); ++i) {
      EXPECT_TRUE(HasFiles(bases[i]) || !HasFiles(referring[i])) << bases[i].step;
    }
  }
  EXPECT_EQ(Pending(), 0u);
  for (const ShardIdentity& base : bases) EXPECT_FALSE(HasFiles(base)) << base.step;
}

TEST_F(RetentionBacklogTest, IsLeftForAnotherTimeWhereTheDiskRefusesToSync) {
  const std::vector<ShardIdentity> backlog = {CommitStep(*store_, 1, 1), CommitStep(*store_, 2, 2)};
  CommitStep(*store_, 3, 3);
  Mark(backlog);
  files_.FailOperation("SyncDirectory", absl::InternalError("injected"));
  Retention retention = Remover(/*changes_max=*/1);
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_FALSE(retention.unfinished());
  EXPECT_EQ(Pending(), 2u);
  EXPECT_THAT(warnings_, HasSubstr("files are still there: injected"));
}

// What has its mark makes room, which may be all that is wanting.
TEST_F(RetentionBacklogTest, IsRemovedThoughMarksOfOthersAreRefused) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 3; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitStep(*store_, 4, 4);
  CommitStep(*store_, 5, 5);
  Mark(backlog);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  const std::string journal = store_->layout().journal();
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "Create" && call.path.starts_with(journal);
    return fails ? absl::InternalError("injected") : absl::OkStatus();
  });
  EXPECT_THAT(retention.Apply({}), StatusIs(StatusCode::kInternal, HasSubstr("injected")));
  EXPECT_FALSE(retention.unfinished());
  files_.Reset();
  for (const ShardIdentity& gone : backlog) EXPECT_FALSE(HasFiles(gone)) << gone.step;
}

}  // namespace
}  // namespace tidemark::storage
