// What a repair does with a journal and an index that are lost or damaged, and with a store of the first format.

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/manifest.h"
#include "storage/store/index_state.h"
#include "storage/store/store_journal.h"
#include "tests/format/golden_store.h"
#include "tests/storage/store/repair/repair_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A store with steps 1 to 3: 1 is pinned, 2 is damaged.
class RepairJournalTest : public RepairTest {
 protected:
  void SetUp() override {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
    CommitStep(*store, 3, 300, files_);
    ASSERT_THAT(store->Pin(1, "for the paper"), IsOk());
    store.reset();
    Flip(two_, kInChunk);
  }

  // Of the file of the entry, whatever it says.
  void DamageEntry(int number) {
    const std::string path = fmt::format("{}/0000/00/{:010}", layout_.journal(), number);
    auto bytes = ReadSmallFile(files_, path, 1 << 20);
    ASSERT_THAT(bytes, IsOk());
    (*bytes)[bytes->size() / 2] = static_cast<char>((*bytes)[bytes->size() / 2] ^ 1);
    PutFile(files_, path, *bytes);
  }

  // The plan and the repair say that, the next one has nothing to do, and nothing that was recorded is lost.
  void ExpectMended(const std::vector<std::string>& changes) {
    const auto plan = Plan();
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(Of(plan->changes), changes);
    const auto applied = Apply();
    ASSERT_THAT(applied, IsOk());
    EXPECT_EQ(Of(applied->changes), changes);
    EXPECT_EQ(applied->restores, 3);
    const auto again = Apply();
    ASSERT_THAT(again, IsOk());
    EXPECT_THAT(Sentences(*again), IsEmpty());
    // Nor for a reader, which has no index.
    const auto reader = StoreJournal::Open(files_, layout_, again->store, {.warn = [](std::string_view) {}});
    ASSERT_THAT(reader, IsOk());
    EXPECT_TRUE((*reader)->catalog().Find(1)->value().info.pinned);
    EXPECT_EQ((*reader)->catalog().Find(2)->value().info.state, StepState::kLost);
    const auto store = Open();
    EXPECT_EQ(ValueAt(*store, 3, files_), 300);
    EXPECT_EQ(store->catalog().Find(1)->value().info.pin_note, "for the paper");
  }
};

TEST_F(RepairJournalTest, MakesAJournalAnewThatIsGone) {
  ASSERT_THAT(RemoveTree(files_, layout_.journal()), IsOk());
  ExpectMended({"rebuild journal", "quarantine 2"});
}

// The holder goes on with such a journal, and no reader can.
TEST_F(RepairJournalTest, MakesAJournalAnewOfWhichOnlyTheIndexHasAnEntry) {
  DamageEntry(3);
  EXPECT_EQ(ValueAt(*Open(), 3, files_), 300);
  ASSERT_THAT(StoreJournal::Open(files_, layout_, Open()->id(), {.warn = [](std::string_view) {}}),
              StatusIs(absl::StatusCode::kDataLoss, testing::_));
  ExpectMended({"rebuild journal", "quarantine 2"});
  const auto report = Plan();
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->left_alone.size(), 1u);
  EXPECT_EQ(report->left_alone[0].why, "a journal that could not be read, kept for inspection");
}

TEST_F(RepairJournalTest, MakesAnIndexAnewThatIsGoneOrDamaged) {
  const FileTree tree = ReadTree(files_, path_);
  for (const bool gone : {true, false}) {
    ASSERT_THAT(RemoveTree(files_, path_), IsOk());
    WriteTree(files_, path_, tree);
    if (gone) {
      ASSERT_THAT(RemoveTree(files_, layout_.index()), IsOk());
    } else {
      PutFile(files_, layout_.index() + "/CURRENT", "garbage");
    }
    ExpectMended({"index index", "quarantine 2"});
  }
}

// As no crash and no rot leaves it, but it is what decides.
TEST_F(RepairJournalTest, MakesAnIndexAnewThatSaysSomethingElse) {
  {
    const auto folder = files_.Identify(layout_.index());
    ASSERT_THAT(folder, IsOk());
    auto index = Manifest::Open(files_, layout_.index());
    ASSERT_THAT(index, IsOk());
    const auto place = (*index)->Applied();
    ASSERT_TRUE(place.ok() && place->has_value());
    const auto record = (*index)->Find(1);
    ASSERT_TRUE(record.ok() && record->has_value());
    ASSERT_THAT((*index)->Apply(**place, std::vector<Fact>{PinFact{.step = 1, .attempt = (*record)->info.attempt}}),
                IsOk());
    index->reset();
    ASSERT_THAT(MarkIndexClosed(files_, layout_.index(), *folder), IsOk());
  }
  EXPECT_FALSE(Open()->catalog().Find(1)->value().info.pinned);
  ExpectMended({"index index", "quarantine 2"});
}

TEST_F(RepairJournalTest, DoesNotTellOfDeletionsThatWereFinishedBeforeTheIndexWasLost) {
  ASSERT_THAT(Apply(), IsOk());
  {
    auto store = Open();
    const ShardIdentity four = CommitStep(*store, 4, 400, files_);
    CommitStep(*store, 5, 500, files_);
    const std::string attempt = ToHex(four.attempt.bytes);
    ASSERT_THAT(store->NoteSteps({{.step = 4, .attempt = attempt, .deleted = true, .reason = "too old"}}), IsOk());
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  }
  ASSERT_THAT(RemoveTree(files_, layout_.index()), IsOk());
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("index index"));
}

TEST_F(RepairTest, ConvertsAStoreOfTheFirstFormat) {
  MakeGoldenStore(files_, path_);
  const FileTree before = ReadTree(files_, path_);
  const auto plan = Plan();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(before.files, ReadTree(files_, path_).files);
  EXPECT_THAT(Of(plan->changes), ElementsAre("convert manifest", "again 40"));
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_EQ(Sentences(*applied), Sentences(*plan));
  EXPECT_EQ(applied->restores, 70);
  const auto again = Apply();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(Sentences(*again), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
