// Stores and journals behind the old listings of a file server, and a holder that another one has overtaken.

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/step_changes.h"
#include "storage/store/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/sharing_client.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// Every listing that B has seen serves for long.
class OldListingTest : public testing::Test {
 protected:
  OldListingTest() : a_(disk_, "A", 0, 0), b_(disk_, "B", 0, kAlwaysOld) {
    EXPECT_THAT(disk_.CreateDirectory(kSharedStore), IsOk());
  }

  // One step, and changes up to the journal's entry `last`.
  void FillFromA(EntryNumber last) {
    ASSERT_THAT(a_.OpenStore(), IsOk());
    Store& store = *a_.store();
    layout_ = store.layout();
    id_ = store.id();
    attempt_ = SaveStep(store, 1, 100, a_.files());
    for (EntryNumber entry = 3; entry <= last; ++entry) {
      ASSERT_THAT(store.Pin(1, fmt::format("pin {}", entry)), IsOk());
    }
  }

  SimulatedDisk disk_;
  SharingClient a_, b_;
  std::optional<StoreLayout> layout_;
  StoreId id_;
  ShardIdentity attempt_;
};

TEST_F(OldListingTest, OfAnEmptyDirectoryMakesNoOtherStore) {
  ASSERT_THAT(b_.files().ListDirectory(kSharedStore), IsOk());
  FillFromA(3);
  a_.CloseStore();
  ASSERT_THAT(b_.OpenStore(), IsOk());
  EXPECT_EQ(b_.store()->id(), id_);
  EXPECT_EQ(b_.store()->catalog().Find(1)->value().info.pin_note, "pin 3");
}

TEST_F(OldListingTest, OfAStoreThatHadNoJournalYetDoesNotMakeItAnew) {
  ASSERT_THAT(a_.OpenStore(), IsOk());
  // What a crash leaves of a new store.
  ASSERT_THAT(RemoveTree(disk_, StoreLayout(kSharedStore).journal()), IsOk());
  ASSERT_THAT(RemoveTree(disk_, StoreLayout(kSharedStore).index()), IsOk());
  a_.CloseStore();
  ASSERT_THAT(b_.files().ListDirectory(kSharedStore), IsOk());
  FillFromA(3);
  a_.CloseStore();
  ASSERT_THAT(b_.OpenStore(), IsOk());
  EXPECT_EQ(b_.store()->catalog().Find(1)->value().info.pin_note, "pin 3");
}

TEST_F(OldListingTest, OfAJournalBehindTheIndexDoesNotMakeItAnew) {
  FillFromA(5);
  ASSERT_THAT(b_.OpenJournal(*layout_, id_), IsOk());
  for (int i = 0; i < 3; ++i) ASSERT_THAT(a_.store()->Pin(1, fmt::format("later pin {}", i)), IsOk());
  a_.CloseStore();
  ASSERT_THAT(b_.OpenStore(), IsOk());
  EXPECT_EQ(b_.store()->catalog().Find(1)->value().info.pin_note, "later pin 2");
}

TEST_F(OldListingTest, OfAJournalBehindAnIndexThatIsOpenElsewhereDoesNotMakeItAnew) {
  FillFromA(5);
  ASSERT_THAT(b_.OpenJournal(*layout_, id_), IsOk());
  for (int i = 0; i < 3; ++i) ASSERT_THAT(a_.store()->Pin(1, fmt::format("later pin {}", i)), IsOk());
  ASSERT_THAT(b_.OpenStore(), IsOk());
  EXPECT_EQ(b_.store()->catalog().Find(1)->value().info.pin_note, "later pin 2");
}

TEST_F(OldListingTest, OfTheFolderBeforeTheLastOneDoesNotMakeTheJournalAnew) {
  FillFromA(60);
  ASSERT_THAT(b_.OpenJournal(*layout_, id_), IsOk());
  for (int i = 0; i < 8; ++i) ASSERT_THAT(a_.store()->Pin(1, fmt::format("later pin {}", i)), IsOk());
  a_.CloseStore();
  ASSERT_THAT(RemoveTree(disk_, layout_->index()), IsOk());
  // Of the listings only that of the first folder stays old.
  b_.files().Create(layout_->journal() + "/0000/x", false).status().IgnoreError();
  ASSERT_THAT(b_.OpenStore(), IsOk());
  EXPECT_EQ(b_.store()->catalog().Find(1)->value().info.pin_note, "later pin 7");
}

TEST_F(OldListingTest, DoesNotAnswerAChangeThatNeedsNoEntry) {
  FillFromA(2);
  ASSERT_THAT(b_.OpenJournal(*layout_, id_), IsOk());
  const auto unpin = [&] {
    return b_.journal()->Change([](const StepCatalog& catalog) { return UnpinFacts(catalog, 1, std::nullopt); });
  };
  ASSERT_THAT(a_.store()->Pin(1, "by A"), IsOk());
  EXPECT_THAT(unpin(), IsOk());
  ASSERT_THAT(a_.store()->Look(), IsOk());
  EXPECT_FALSE(a_.store()->catalog().Find(1)->value().info.pinned);
  // Neither does it refuse one.
  SaveStep(*a_.store(), 2, 200, a_.files());
  EXPECT_THAT(
      b_.journal()->Change([](const StepCatalog& catalog) { return PinFacts(catalog, 2, "by B", std::nullopt); }),
      IsOk());
}

TEST_F(OldListingTest, TellsAHolderThatAnotherOneHasBegunEvenWhereNothingIsToBeDone) {
  ASSERT_THAT(b_.OpenStore(), IsOk());
  attempt_ = SaveStep(*b_.store(), 1, 100, b_.files());
  ASSERT_THAT(b_.store()->Look(), IsOk());
  ASSERT_THAT(a_.OpenStore(), IsOk());
  const auto refused =
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process has opened the store /store for writing"));
  EXPECT_THAT(b_.store()->Unpin(1), refused);
  EXPECT_THAT(b_.store()->Pin(1, ""), refused);
  EXPECT_THAT(b_.store()->RemoveDeleted({}), refused);
  EXPECT_THAT(TrySave(*b_.store(), 2, 200, b_.files()), refused);
}

TEST(FencedHolderTest, WritesNoIndexAnyMore) {
  SimulatedDisk disk;
  SharingClient first(disk, "A", 0, 0), second(disk, "B", 0, 0);
  ASSERT_THAT(first.OpenStore(), IsOk());
  SaveStep(*first.store(), 1, 100, first.files());
  ASSERT_THAT(second.OpenStore(), IsOk());
  ASSERT_THAT(first.store()->Look(), IsOk());
  first.files().Reset();
  SaveStep(*second.store(), 2, 200, second.files());
  ASSERT_THAT(first.store()->Look(), IsOk());
  EXPECT_EQ(first.store()->catalog().LatestCommitted().value(), 2);
  first.CloseStore();
  const std::set<std::string> changes = {"Create", "WriteAt", "Rename", "RemoveFile", "RemoveDirectory"};
  for (const FailingFileSystem::Call& call : first.files().calls()) {
    EXPECT_FALSE(changes.contains(call.operation) && call.path.starts_with("/store/index"))
        << call.operation << " " << call.path;
  }
}

}  // namespace
}  // namespace tidemark::storage
