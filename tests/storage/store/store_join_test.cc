// A store that another process of the job holds, as another rank has it.

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::IsEmpty;

class StoreJoinTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Store>> Join(const HeldStore& held, const std::string& directory = "/store") {
    return Store::Join(*client_, {.directory = directory, .warn = [this](std::string_view line) { warnings_ += line; }},
                       held);
  }

  SimulatedDisk disk_;
  const std::unique_ptr<FileSystem> client_ = disk_.NewClient();
  std::string warnings_;
  const std::unique_ptr<Store> holder_ = OpenSoundStore("/store", &warnings_, disk_);
};

TEST_F(StoreJoinTest, KnowsWhatTheHolderCommits) {
  CommitStep(*holder_, 10, 1, disk_);
  const auto joined = Join(holder_->Held());
  ASSERT_THAT(joined, IsOk());
  EXPECT_FALSE((*joined)->is_holder());
  EXPECT_EQ((*joined)->catalog().LatestCommitted()->value_or(-1), 10);
  CommitStep(*holder_, 20, 2, disk_);
  ASSERT_THAT((*joined)->Look(), IsOk());
  EXPECT_EQ((*joined)->catalog().LatestCommitted()->value_or(-1), 20);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJoinTest, ReportsPinsAndTagsAndTheHolderKnowsThem) {
  CommitStep(*holder_, 10, 1, disk_);
  const auto joined = Join(holder_->Held());
  ASSERT_THAT(joined, IsOk());
  EXPECT_THAT((*joined)->Pin(10, "kept"), IsOk());
  EXPECT_THAT((*joined)->Tag(10, "good"), IsOk());
  ASSERT_THAT(holder_->Look(), IsOk());
  const auto record = holder_->catalog().Find(10);
  EXPECT_TRUE((*record)->info.pinned);
  EXPECT_EQ((*record)->info.pin_note, "kept");
  CommitStep(*holder_, 20, 2, disk_);  // its epoch goes on
}

TEST_F(StoreJoinTest, LeavesTheRestToTheHolder) {
  const ShardIdentity identity = CommitStep(*holder_, 10, 1, disk_);
  const auto joined = Join(holder_->Held());
  ASSERT_THAT(joined, IsOk());
  const auto refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is held by rank 0"));
  EXPECT_THAT((*joined)->BeginAttempt(20), refused);
  EXPECT_THAT((*joined)->CommitAttempt(**holder_->catalog().Find(10)), refused);
  EXPECT_THAT((*joined)->CheckHolds(), refused);
  EXPECT_THAT((*joined)->MarkStep(10, ToHex(identity.attempt.bytes), StepState::kDamaged, "no"), refused);
  EXPECT_THAT((*joined)->NoteSteps({}), refused);
  EXPECT_THAT((*joined)->Answer({}), refused);
  EXPECT_THAT((*joined)->RemoveDeleted({}), refused);
  EXPECT_THAT((*joined)->Maintain(), refused);
  EXPECT_THAT((*joined)->SweepUncommitted(), refused);
}

TEST_F(StoreJoinTest, ItsEndLeavesTheStoreAlone) {
  ASSERT_THAT(Join(holder_->Held()), IsOk());
  CommitStep(*holder_, 10, 1, disk_);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJoinTest, ADirectoryThatIsNotRank0sIsRefused) {
  EXPECT_THAT(Join(holder_->Held(), "/nowhere"), StatusIs(StatusCode::kNotFound, HasSubstr("/nowhere")));
  const std::unique_ptr<Store> other = OpenSoundStore("/other", &warnings_, disk_);
  EXPECT_THAT(Join(holder_->Held(), "/other"),
              StatusIs(StatusCode::kNotFound, HasSubstr("all ranks need one directory")));
  HeldStore later = holder_->Held();
  later.place.number += 5;
  EXPECT_THAT(Join(later), StatusIs(StatusCode::kOutOfRange, HasSubstr("rank 0 has seen entry 6")));
}

}  // namespace
}  // namespace tidemark::storage
