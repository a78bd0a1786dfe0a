// Pins and tags of a store's steps: what keeps them.

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "storage/store/store.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StorePinTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  static StepInfo InfoOf(const Store& store, int64_t step) {
    auto record = store.catalog().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(StorePinTest, LastsUntilItIsTakenAway) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Pin(1, "the paper's"), IsOk());
    ASSERT_THAT(store->Pin(1, "the paper's best"), IsOk());
  }
  {
    auto store = Open();
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_EQ(InfoOf(*store, 1).pin_note, "the paper's best");
    for (int i = 0; i < 2; ++i) ASSERT_THAT(store->Unpin(1), IsOk());
  }
  EXPECT_FALSE(InfoOf(*Open(), 1).pinned);
  EXPECT_EQ(warnings_, "");
}

TEST_F(StorePinTest, TagsLastUntilTheyAreTakenAwayAndPinTheStep) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    for (const char* name : {"v1", "paper/figure-3", "v1"}) ASSERT_THAT(store->Tag(1, name), IsOk());
  }
  {
    auto store = Open();
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_EQ(InfoOf(*store, 1).pin_note, "");
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("paper/figure-3", "v1"));
    for (int i = 0; i < 2; ++i) ASSERT_THAT(store->Untag(1, "v1"), IsOk());
  }
  {
    auto store = Open();
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("paper/figure-3"));
    ASSERT_THAT(store->Untag(1, "paper/figure-3"), IsOk());
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    ASSERT_THAT(store->Tag(1, "v2"), IsOk());
    ASSERT_THAT(store->Pin(1, "the best"), IsOk());
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v2")) << "a note replaces no tag";
    ASSERT_THAT(store->Unpin(1), IsOk());
    ASSERT_THAT(store->Pin(1, ""), IsOk());
    EXPECT_THAT(InfoOf(*store, 1).tags, IsEmpty());
  }
  EXPECT_EQ(warnings_, "");
}

TEST_F(StorePinTest, IsForCommittedStepsAndTheirAttempts) {
  auto store = Open();
  ASSERT_THAT(store->RecordUnsaved({.step = 1, .state = StepState::kUnsaved}), IsOk());
  const ShardIdentity damaged = CommitStep(*store, 2, 200);
  ASSERT_THAT(store->Tag(2, "v1"), IsOk());
  ASSERT_THAT(store->MarkStep(2, ToHex(damaged.attempt.bytes), StepState::kDamaged, "x"), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not committed"));
  for (const int64_t step : {1, 2, 3}) {
    EXPECT_THAT(store->Pin(step, ""), refused) << step;
    EXPECT_THAT(store->Tag(step, "v2"), refused) << step;
  }
  for (const int64_t step : {1, 3}) {
    EXPECT_THAT(store->Unpin(step), refused) << step;
    EXPECT_THAT(store->Untag(step, "v1"), refused) << step;
  }
  ASSERT_THAT(store->Untag(2, "v1"), IsOk());
  ASSERT_THAT(store->Unpin(2), IsOk());
  EXPECT_FALSE(InfoOf(*store, 2).pinned);
  CommitStep(*store, 4, 400);
  const AttemptId other{{1}};
  const auto replaced = StatusIs(absl::StatusCode::kNotFound, HasSubstr("another attempt has replaced"));
  EXPECT_THAT(store->Pin(4, "", other), replaced);
  EXPECT_THAT(store->Unpin(4, other), replaced);
  EXPECT_THAT(store->Tag(4, "v1", other), replaced);
  EXPECT_THAT(store->Untag(4, "v1", other), replaced);
  EXPECT_FALSE(InfoOf(*store, 4).pinned);
}

TEST_F(StorePinTest, StaysWithAStepThatIsSavedAnew) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
    CommitStep(*store, 1, 101);
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    auto identity = store->BeginAttempt(1);
    ASSERT_THAT(identity, IsOk());
    store->AbandonAttempt(*identity, absl::UnixEpoch(), absl::InternalError("no disk")).IgnoreError();
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_TRUE(InfoOf(*store, 1).pinned);
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "keep");
  EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v1"));
}

TEST_F(StorePinTest, OutlivesTheIndex) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  }
  std::filesystem::remove_all(layout_.index());
  auto store = Open();
  EXPECT_TRUE(InfoOf(*store, 1).pinned);
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "keep");
  EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v1"));
  EXPECT_FALSE(InfoOf(*store, 2).pinned);
}

}  // namespace
}  // namespace tidemark::storage
