// A store whose journal is lost or damaged opens with what the index, the entries before the damage and the shards say.

#include "storage/store/rebuild.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/manifest.h"
#include "storage/journal/journal.h"
#include "storage/store/garbage.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RebuildTest : public testing::Test {
 protected:
  // Steps 1 (pinned), 2 (deleted, its files still there) and 3, each with a value 100 times as high.
  void SetUp() override {
    const auto store = Open();
    first_ = SaveStep(*store, 1, 100);
    second_ = SaveStep(*store, 2, 200);
    third_ = SaveStep(*store, 3, 300);
    ASSERT_THAT(store->Pin(1, "kept"), IsOk());
    ASSERT_THAT(
        store->NoteSteps({{.step = 2, .attempt = ToHex(second_.attempt.bytes), .deleted = true, .reason = "a rule's"}}),
        IsOk());
  }

  std::unique_ptr<Store> Open() {
    auto store = OpenStore(directory_.path(), &warnings_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  // It goes on with these steps, and attempts are new ones.
  void ExpectGoesOn(Store& store) {
    EXPECT_THAT(ReadValue(store, 1), IsOkAndHolds(100));
    EXPECT_THAT(ReadValue(store, 3), IsOkAndHolds(300));
    const ShardIdentity next = SaveStep(store, 4, 400);
    EXPECT_GT(EpochOf(next.attempt), EpochOf(third_.attempt));
    EXPECT_GT(next.sequence, third_.sequence);
    EXPECT_THAT(store.SweepUncommitted(), IsOk());
    EXPECT_THAT(ReadValue(store, 1), IsOkAndHolds(100));
    EXPECT_THAT(ReadValue(store, 3), IsOkAndHolds(300));
    EXPECT_THAT(ReadValue(store, 4), IsOkAndHolds(400));
  }

  std::string EntryPath(int number) const {
    std::string found;
    const std::string name = fmt::format("{:010}", number);
    for (const auto& entry : fs::recursive_directory_iterator(layout_.journal())) {
      if (entry.is_regular_file() && entry.path().filename() == name) found = entry.path();
    }
    return found;
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
  ShardIdentity first_, second_, third_;
};

TEST_F(RebuildTest, AJournalThatIsGoneIsMadeAnewFromTheIndex) {
  fs::remove_all(layout_.journal());
  auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("was made anew from the index, up to entry")));
  EXPECT_TRUE(store->catalog().Find(1)->value().info.pinned);
  EXPECT_EQ(store->catalog().Find(2)->value().info.state, StepState::kDeleted);
  ExpectGoesOn(*store);
  // What was deleted stays so, and its files go.
  EXPECT_FALSE(fs::exists(layout_.attempt(2, second_.attempt)));
  store.reset();
  warnings_.clear();
  EXPECT_THAT(ReadValue(*Open(), 4), IsOkAndHolds(400));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(RebuildTest, AJournalThatIsGoneWithItsIndexIsMadeAnewFromTheShards) {
  fs::remove_all(layout_.journal());
  fs::remove_all(layout_.index());
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("was made anew from nothing, up to entry 0, and from 3 attempts")));
  ExpectGoesOn(*store);
  // Only the journal knew of the pin and the deletion.
  EXPECT_FALSE(store->catalog().Find(1)->value().info.pinned);
  EXPECT_THAT(ReadValue(*store, 2), IsOkAndHolds(200));
}

TEST_F(RebuildTest, ADamagedEntryThatTheIndexHasAppliedDoesNoHarmToTheHolder) {
  fs::resize_file(EntryPath(2), 10);
  const auto store = Open();
  EXPECT_THAT(warnings_, IsEmpty());
  ExpectGoesOn(*store);
}

TEST_F(RebuildTest, ADamagedEntryWithoutAnIndexIsMadeUpForByTheShards) {
  fs::remove_all(layout_.index());
  // Of step 3's commit.
  fs::resize_file(EntryPath(4), 10);
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the journal cannot be read any further")));
  EXPECT_THAT(warnings_, Contains(HasSubstr("from the journal's entries, up to entry 2, and from 2 attempts")));
  EXPECT_THAT(JournalsPutAside(directory_.path()), ElementsAre(testing::StartsWith("journal.broken-")));
  ExpectGoesOn(*store);
}

TEST_F(RebuildTest, AJournalThatLacksItsEndIsMadeUpForByTheIndex) {
  for (const int number : {4, 5, 6}) fs::remove(EntryPath(number));
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the index has applied entry 6")));
  EXPECT_TRUE(store->catalog().Find(1)->value().info.pinned);
  ExpectGoesOn(*store);
}

TEST_F(RebuildTest, AnEmptyJournalWithoutAnIndexIsMadeUpForByTheShards) {
  fs::remove_all(layout_.index());
  fs::remove_all(layout_.journal());
  fs::create_directory(layout_.journal());
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the journal cannot be read and is made anew: it is lost")));
  ExpectGoesOn(*store);
}

// A crash came before the first entry.
TEST_F(RebuildTest, AnEmptyJournalWithoutAttemptsIsThatOfANewStore) {
  for (const std::string& path : {layout_.index(), layout_.journal(), layout_.steps()}) fs::remove_all(path);
  fs::create_directory(layout_.journal());
  const auto store = Open();
  EXPECT_THAT(warnings_, IsEmpty());
  SaveStep(*store, 1, 100);
  EXPECT_THAT(ReadValue(*store, 1), IsOkAndHolds(100));
}

TEST_F(RebuildTest, AnAttemptWhoseBytesAreDamagedIsNotAdopted) {
  fs::remove_all(layout_.journal());
  fs::remove_all(layout_.index());
  fs::resize_file(layout_.shard(2, second_.attempt, 0, 1), 5000);
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("step 2 is incomplete or damaged and was moved to quarantine")));
  ExpectGoesOn(*store);
  EXPECT_FALSE(store->catalog().Find(2)->has_value());
  EXPECT_TRUE(fs::exists(layout_.quarantine()));
}

TEST_F(RebuildTest, OfTwoAttemptsAtAStepTheLaterOneIsAdopted) {
  {
    const auto store = Open();
    SaveStep(*store, 3, 300);
  }
  fs::remove_all(layout_.journal());
  fs::remove_all(layout_.index());
  const auto store = Open();
  ExpectGoesOn(*store);
  EXPECT_NE(store->catalog().Find(3)->value().info.attempt, ToHex(third_.attempt.bytes));
}

TEST_F(RebuildTest, AnotherStoresAttemptsAreNoReasonForAnEmptyJournal) {
  TestDirectory other;
  {
    std::vector<std::string> warnings;
    ASSERT_THAT(OpenStore(other.path(), &warnings), IsOk());
  }
  const StoreLayout layout(other.path());
  fs::copy(layout_.attempt(1, first_.attempt), layout.attempt(1, first_.attempt), fs::copy_options::recursive);
  fs::remove_all(layout.journal());
  fs::remove_all(layout.index());
  EXPECT_THAT(OpenStore(other.path(), &warnings_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("belong to another store")));
}

TEST_F(RebuildTest, IsFinishedWhereItWasCutShortBetweenItsRenames) {
  fs::rename(layout_.journal(), layout_.journal() + ".new-1234");
  fs::create_directory(layout_.journal() + ".broken-1234");
  fs::remove_all(layout_.index());
  const auto store = Open();
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_TRUE(store->catalog().Find(1)->value().info.pinned);
  EXPECT_EQ(store->catalog().Find(2)->value().info.state, StepState::kDeleted);
  ExpectGoesOn(*store);
}

// A person has put it in the place of this store's.
TEST_F(RebuildTest, TheJournalOfAnotherStoreIsNotBelieved) {
  const TestDirectory elsewhere;
  const StoreLayout other(elsewhere.path());
  StoreId id;
  {
    auto store = OpenStore(other.directory(), &warnings_);
    ASSERT_THAT(store, IsOk());
    for (int64_t step = 1; step < 6; ++step) SaveStep(**store, step, 7 * step);
    id = Open()->id();
  }
  fs::remove_all(layout_.journal());
  fs::copy(other.journal(), layout_.journal(), fs::copy_options::recursive);
  EXPECT_THAT(StoreJournal::Open(PosixFileSystem(), layout_, id, {.warn = [](std::string_view) {}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("the journal belongs to store ")));
  warnings_.clear();
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the journal belongs to store ")));
  EXPECT_THAT(warnings_, Contains(HasSubstr("was made anew from the index")));
  EXPECT_EQ(store->catalog().Find(1)->value().info.pin_note, "kept");
  EXPECT_FALSE(store->catalog().Find(5)->has_value());
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  ExpectGoesOn(*store);
}

// As after a power loss. It may lack facts, but not invent entries.
TEST_F(RebuildTest, AnIndexThatIsNotBelievedShowsThatEntriesAreLost) {
  { ExpectGoesOn(*Open()); }
  std::string last;
  for (const auto& entry : fs::recursive_directory_iterator(layout_.journal())) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() && name.find_first_not_of("0123456789") == std::string::npos) {
      last = std::max(last, entry.path().string());
    }
  }
  fs::remove(last);
  ASSERT_TRUE(fs::remove(layout_.index() + "/state"));
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the index has applied entry")));
  EXPECT_THAT(ReadValue(*store, 4), IsOkAndHolds(400));
}

// The index is behind the journal that was made anew, and yet has a higher number.
TEST_F(RebuildTest, AJournalThatWasMadeAnewIsBelievedBeforeAnOlderIndex) {
  {
    const auto store = Open();
    for (int i = 0; i < 10; ++i) ASSERT_THAT(store->Pin(1, fmt::format("pin {}", i)), IsOk());
  }
  fs::copy(layout_.index(), layout_.directory() + "/older", fs::copy_options::recursive);
  {
    const auto store = Open();
    ASSERT_THAT(store->Pin(1, "the last"), IsOk());
    const auto facts = FactsOf(store->catalog());
    ASSERT_THAT(facts, IsOk());
    ASSERT_THAT(ReplaceJournal(PosixFileSystem(), layout_, store->id(), *facts, 2), IsOk());
  }
  fs::remove_all(layout_.index());
  fs::rename(layout_.directory() + "/older", layout_.index());
  const auto store = Open();
  EXPECT_EQ(store->catalog().Find(1)->value().info.pin_note, "the last");
  ExpectGoesOn(*store);
}

// As after a power loss: the index is behind, and not believed.
TEST_F(RebuildTest, KeepsWhatCanBeReadAfterTheIndexesLastEntry) {
  fs::resize_file(EntryPath(2), 10);
  fs::copy(layout_.index(), layout_.directory() + "/older", fs::copy_options::recursive);
  {
    const auto store = Open();
    ASSERT_THAT(store->Pin(3, "late"), IsOk());
    ASSERT_THAT(store->Tag(3, "best"), IsOk());
    ASSERT_THAT(store->Unpin(1), IsOk());
    ASSERT_THAT(store->Tag(3, "later"), IsOk());
  }
  fs::remove_all(layout_.index());
  fs::rename(layout_.directory() + "/older", layout_.index());
  ASSERT_TRUE(fs::remove(layout_.index() + "/state"));
  fs::resize_file(EntryPath(11), 10);
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("cannot be read any further")).Times(2));
  EXPECT_THAT(warnings_,
              Contains(HasSubstr("from the index and the entries after its last one, up to entry 9, and from 0 att")));
  EXPECT_EQ(store->catalog().Find(3)->value().info.pin_note, "late");
  EXPECT_THAT(store->catalog().Find(3)->value().info.tags, ElementsAre("best"));
  EXPECT_TRUE(store->catalog().Find(1)->value().info.pinned) << "only the damaged entry says that entry 10 survives";
  EXPECT_EQ(store->catalog().Find(2)->value().info.state, StepState::kDeleted);
  ExpectGoesOn(*store);
}

TEST_F(RebuildTest, RefusesAFactOfANewerVersionAfterTheIndexesLastEntry) {
  {
    const auto index = Manifest::OpenReadOnly(PosixFileSystem(), layout_.index());
    ASSERT_THAT(index, IsOk());
    const auto journal = Journal::Open(PosixFileSystem(), layout_.journal(), (*index)->Applied()->value());
    ASSERT_THAT(journal, IsOk());
    for (const char* const fact : {"\x7f\x01", "after it", "damaged"}) {
      ASSERT_TRUE((*journal)->Append({.facts = {fact}}, [](const JournalView&) { return absl::OkStatus(); }).ok());
    }
  }
  for (const int number : {2, 9}) fs::resize_file(EntryPath(number), 10);
  ASSERT_TRUE(fs::remove(layout_.index() + "/state"));
  EXPECT_THAT(OpenStore(layout_.directory(), &warnings_),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("journal entry 7")));
  EXPECT_THAT(JournalsPutAside(directory_.path()), IsEmpty());
}

TEST_F(RebuildTest, ADamagedAttemptStaysWhereAnotherOneHasSoundChunksInIt) {
  ShardIdentity user;
  {
    const auto store = Open();
    user = CommitReferringStep(*store, 4, first_);
  }
  fs::remove_all(layout_.journal());
  fs::remove_all(layout_.index());
  const std::string shard = layout_.shard(1, first_.attempt, 0, 1);
  {
    // Its footer.
    std::fstream file(shard);
    file.seekp(static_cast<std::streamoff>(fs::file_size(shard) - 4096));
    file << "damaged";
  }
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("step 1 is incomplete or damaged, but stays, because another step")));
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_TRUE(fs::exists(shard));
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
  EXPECT_FALSE(store->catalog().Find(1)->has_value());
  EXPECT_THAT(ReadValue(*store, 4), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(*store, 3), IsOkAndHolds(300));
}

TEST_F(RebuildTest, AnAttemptWhoseChunksAreInAFileThatIsGoneIsNotAdopted) {
  ShardIdentity user;
  {
    const auto store = Open();
    user = CommitReferringStep(*store, 4, first_);
  }
  fs::remove_all(layout_.journal());
  fs::remove_all(layout_.index());
  fs::remove_all(layout_.attempt(1, first_.attempt));
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("step 4 is incomplete or damaged and was moved to quarantine")));
  EXPECT_TRUE(fs::exists(layout_.quarantine() + "/" + StepFolderName(4, user.attempt)));
  EXPECT_FALSE(fs::exists(layout_.attempt(4, user.attempt)));
  EXPECT_FALSE(store->catalog().Find(4)->has_value());
  EXPECT_THAT(ReadValue(*store, 3), IsOkAndHolds(300));
}

// Both were deleted, and the new journal does not say so of their files.
TEST_F(RebuildTest, TheFilesThatALeasedAttemptRefersToStay) {
  ShardIdentity base, user;
  {
    const auto store = Open();
    base = SaveStep(*store, 4, 400);
    user = CommitReferringStep(*store, 5, base);
    SaveStep(*store, 6, 600);
    for (const ShardIdentity& gone : {base, user}) {
      const StepNote note{
          .step = gone.step, .attempt = ToHex(gone.attempt.bytes), .deleted = true, .reason = "a rule's"};
      ASSERT_THAT(store->NoteSteps({note}), IsOk());
    }
  }
  fs::create_directories(layout_.leases());
  const std::string lease = layout_.leases() + "/" + LeaseFileName(user.attempt, "validation");
  std::ofstream(lease) << "{}";
  fs::remove_all(layout_.journal());
  {
    const auto store = Open();
    ASSERT_THAT(store->SweepUncommitted(), IsOk());
    EXPECT_EQ(store->catalog().Find(5)->value().info.state, StepState::kDeleted);
    EXPECT_FALSE(fs::exists(layout_.attempt(2, second_.attempt)));
    for (const ShardIdentity& one : {base, user}) EXPECT_TRUE(fs::exists(layout_.attempt(one.step, one.attempt)));
  }
  fs::remove(lease);
  ASSERT_THAT(Open()->SweepUncommitted(), IsOk());
  for (const ShardIdentity& one : {base, user}) EXPECT_FALSE(fs::exists(layout_.attempt(one.step, one.attempt)));
}

// Steps 1 (pinned) and 2. The journal has lost its last entry, the pin, which the index has applied.
class RebuildCrashTest : public testing::Test {
 protected:
  RebuildCrashTest() {
    SimulatedDisk first;
    {
      auto store = OpenStore("/store", &warnings_, first);
      EXPECT_THAT(store, IsOk());
      for (const int64_t step : {1, 2}) SaveStep(**store, step, 100 * step, first);
      EXPECT_THAT((*store)->Pin(1, "kept"), IsOk());
    }
    EXPECT_THAT(first.RemoveFile("/store/journal/0000/00/0000000004"), IsOk());
    disk_.emplace(first.image());
  }

  static void ExpectSteps(Store& store, FileSystem& files) {
    EXPECT_THAT(ReadValue(store, 1, files), IsOkAndHolds(100));
    EXPECT_THAT(ReadValue(store, 2, files), IsOkAndHolds(200));
    EXPECT_THAT(TrySave(store, 3, 300, files), IsOk());
  }

  std::vector<std::string> warnings_;
  std::optional<SimulatedDisk> disk_;
};

TEST_F(RebuildCrashTest, NothingThatIsKnownIsLost) {
  const StoreLayout layout("/store");
  const auto id = ReadStoreIdentity(*disk_, layout);
  ASSERT_THAT(id, IsOk());
  ASSERT_THAT(RebuildJournal(*disk_, layout, *id, {.io = IoQueueKind::kThreads},
                             [&](std::string_view line) { warnings_.emplace_back(line); }),
              IsOk());
  EXPECT_THAT(warnings_, Contains(HasSubstr("was made anew from the index")));
  const size_t states = OpenAfterCrashes(*disk_, OneOf(2, 4), [](Store& store, FileSystem& after) {
    EXPECT_TRUE(store.catalog().Find(1)->value().info.pinned);
    ExpectSteps(store, after);
  });
  EXPECT_GT(states, 5u);
}

// Before the rebuild the index, which alone knows of the pin, is opened to be written; a power loss there is one fault
// more.
TEST_F(RebuildCrashTest, NoStepIsLostByACrashOfTheOpening) {
  ASSERT_THAT(OpenStore("/store", &warnings_, *disk_), IsOk());
  EXPECT_THAT(warnings_, Contains(HasSubstr("was made anew from the index")));
  EXPECT_GT(OpenAfterCrashes(*disk_, OneOf(2, 20), ExpectSteps), 5u);
}

// With the index, which alone knows of the pin; and without it, where another entry is missing too. An index that
// cannot be read shows no loss of the journal's last entry, so the pin is lost with both.
TEST_F(RebuildCrashTest, NoStepIsLostWhicheverCallOfTheOpeningFails) {
  const DrawnCalls drawn{.stride = OneOf(5, 15)};
  for (const bool has_index : {true, false}) {
    if (!has_index) {
      ASSERT_THAT(RemoveTree(*disk_, "/store/index"), IsOk());
      ASSERT_THAT(disk_->RemoveFile("/store/journal/0000/00/0000000002"), IsOk());
    }
    const DiskImage image = disk_->image();
    size_t refused = 0;
    size_t opened = 0;
    for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
      SCOPED_TRACE(testing::Message() << "call " << call << (has_index ? " with" : " without") << " the index");
      ASSERT_LT(call, 5000u);
      SimulatedDisk disk(image);
      FailingFileSystem failing(disk);
      failing.FailCall(call, absl::InternalError("EIO"));
      warnings_.clear();
      const absl::Status status = OpenStore("/store", &warnings_, failing).status();
      refused += status.ok() ? 0 : 1;
      const std::vector<FailingFileSystem::Call> calls = failing.calls();
      const std::string failed = calls.size() > call ? calls[call].operation + " " + calls[call].path : "";
      SCOPED_TRACE(testing::Message() << failed << ": " << status << "; " << testing::PrintToString(warnings_));
      opened = calls.size() <= call ? opened + 1 : 0;
      const auto store = OpenStore("/store", &warnings_, disk);
      ASSERT_THAT(store, IsOk());
      ASSERT_THAT((*store)->SweepUncommitted(), IsOk());
      ExpectSteps(**store, disk);
      EXPECT_THAT(disk.TypeOf("/store/quarantine"), StatusIs(StatusCode::kNotFound, testing::_));
      if (failed.find("/store/index") != std::string::npos) continue;
      EXPECT_EQ((*store)->catalog().Find(1)->value().info.pinned, has_index);
    }
    EXPECT_GT(refused, 0u);
  }
}

TEST_F(RebuildTest, WhatAnInterruptedRebuildHasLeftIsRemoved) {
  fs::create_directory(layout_.journal() + ".new-1234");
  ExpectGoesOn(*Open());
  EXPECT_THAT(JournalsPutAside(directory_.path()), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
