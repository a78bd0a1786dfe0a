// Pins of a store: what keeps them, and what a failure or a crash in between makes of them.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/store.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/manifest/store_pin_testing.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

TEST_F(StorePinTest, LastsUntilTheStepIsDeleted) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Pin(1, "the paper's"), IsOk());
    ASSERT_THAT(store->Pin(1, "the paper's best"), IsOk());
  }
  {
    auto store = Open();
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_EQ(InfoOf(*store, 1).pin_note, "the paper's best");
    ASSERT_THAT(store->Unpin(1), IsOk());
    ASSERT_THAT(store->Unpin(1), IsOk());
  }
  EXPECT_FALSE(InfoOf(*Open(), 1).pinned);
  EXPECT_FALSE(fs::exists(PinOf(identity)));
  EXPECT_EQ(warnings_, "");
}

TEST_F(StorePinTest, IsForCommittedSteps) {
  auto store = Open();
  ASSERT_THAT(store->RecordUnsaved({.step = 1, .state = StepState::kUnsaved}), IsOk());
  const ShardIdentity damaged = CommitStep(*store, 2, 200);
  ASSERT_THAT(store->Pin(2, ""), IsOk());
  ASSERT_THAT(store->MarkStep(2, ToHex(damaged.attempt.bytes), StepState::kDamaged, "x"), IsOk());
  for (const int64_t step : {1, 2, 3}) {
    EXPECT_THAT(store->Pin(step, ""), StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not committed"))) << step;
  }
  for (const int64_t step : {1, 3}) {
    EXPECT_THAT(store->Unpin(step), StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not committed"))) << step;
  }
  ASSERT_THAT(store->Unpin(2), IsOk());
  EXPECT_FALSE(InfoOf(*store, 2).pinned);
}

TEST_F(StorePinTest, RefusesANoteThatIsTooLong) {
  auto store = Open();
  CommitStep(*store, 1, 100);
  EXPECT_THAT(store->Pin(1, std::string(kPinNoteBytesMax + 1, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65537 bytes; at most 65536")));
  EXPECT_FALSE(InfoOf(*store, 1).pinned);
}

TEST_F(StorePinTest, OutlivesTheManifest) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("rebuilt"));
  EXPECT_TRUE(InfoOf(*store, 1).pinned);
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "keep");
  EXPECT_FALSE(InfoOf(*store, 2).pinned);
}

TEST_F(StorePinTest, StaysWithAStepThatIsSavedAnew) {
  ShardIdentity adopted;
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
    const ShardIdentity second = CommitStep(*store, 1, 101);
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_TRUE(fs::exists(PinOf(second)));
    ASSERT_THAT(Commit(*store, second), IsOk());
    EXPECT_TRUE(InfoOf(*store, 1).pinned) << "the same attempt once more";
    adopted = WriteAttempt(*store, 1, 102);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 102);
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "keep");
  EXPECT_TRUE(InfoOf(*store, 1).pinned);
  EXPECT_TRUE(fs::exists(PinOf(adopted)));
}

TEST_F(StorePinTest, StaysInTheRecordWhereTheNewFolderRefusesIt) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  CommitStep(**store, 1, 100);
  ASSERT_THAT((*store)->Pin(1, "keep"), IsOk());
  files.FailOperation("Create", absl::ResourceExhaustedError("disk full"));
  CommitStep(**store, 1, 101);
  EXPECT_THAT(warnings_, HasSubstr("step 1 stays pinned, but a rebuild of the manifest would lose the pin: disk full"));
  EXPECT_TRUE(InfoOf(**store, 1).pinned);
}

TEST_F(StorePinTest, StaysThroughARebuildWithAnAttemptThatWasNeverCommitted) {
  ShardIdentity later;
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
    later = WriteAttempt(*store, 1, 101);
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_TRUE(InfoOf(*store, 1).pinned);
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "keep");
  EXPECT_TRUE(fs::exists(PinOf(later)));
}

TEST_F(StorePinTest, KeepsAStepFromDeletionWhereOnlyTheFolderSaysSo) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity pinned = CommitStep(**store, 1, 100);
  CommitStep(**store, 2, 200);
  ASSERT_THAT((*store)->Pin(1, "keep"), IsOk());
  files.FailOperation("RemoveFile", absl::InternalError("EIO"));
  ASSERT_FALSE((*store)->Unpin(1).ok());
  ASSERT_FALSE(InfoOf(**store, 1).pinned);
  const std::vector<Store::StepNote> notes = {
      {.step = 1, .attempt = ToHex(pinned.attempt.bytes), .deleted = true, .reason = "too old"}};
  const auto noted = (*store)->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_TRUE(noted->deleted.empty());
  EXPECT_EQ(ValueAt(**store, 1), 100);
  EXPECT_TRUE(InfoOf(**store, 1).pinned);
  EXPECT_EQ(InfoOf(**store, 1).pin_note, "keep");
}

TEST_F(StorePinTest, KeepsAStepFromDeletionWhereNobodyCanSayWhetherItIsPinned) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  const ShardIdentity second = CommitStep(**store, 2, 200);
  CommitStep(**store, 3, 300);
  std::vector<Store::StepNote> notes;
  for (const ShardIdentity& identity : {first, second}) {
    notes.push_back(
        {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"});
  }
  files.SetRule([pin = PinOf(first)](const FailingFileSystem::Call& call) {
    return call.path == pin ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const auto noted = (*store)->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_EQ(noted->deleted, std::set<int64_t>{2});
  ASSERT_TRUE(noted->unsure.contains(1));
  EXPECT_THAT(noted->unsure.at(1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("step 1 stays, because its pin cannot be read: EIO")));
  EXPECT_EQ(ValueAt(**store, 1), 100);
  EXPECT_FALSE(InfoOf(**store, 1).pinned);
}

TEST_F(StorePinTest, LetsTheStoreBeOpenedWhereTheDiskDoesNotGiveItOut) {
  FailingFileSystem files(PosixFileSystem());
  ShardIdentity identity;
  {
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    identity = CommitStep(**store, 1, 100);
    ASSERT_THAT((*store)->Pin(1, "keep"), IsOk());
    files.FailOperation("RemoveFile", absl::InternalError("EIO"));
    ASSERT_FALSE((*store)->Unpin(1).ok());  // so that the next Open looks at the folders
  }
  for (const bool rebuilt : {false, true}) {
    SCOPED_TRACE(rebuilt);
    if (rebuilt) fs::remove_all(layout_.manifest());
    files.SetRule([&](const FailingFileSystem::Call& call) {
      return call.operation == "OpenForRead" && call.path == PinOf(identity) ? absl::InternalError("EIO")
                                                                             : absl::OkStatus();
    });
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    EXPECT_TRUE(InfoOf(**store, 1).pinned);
    EXPECT_THAT(warnings_, HasSubstr("pin.json, which cannot be read: EIO"));
    warnings_.clear();
  }
}

// Whichever call fails, the step is pinned or not, record and folder agree after the next Open, and what was said to
// have worked has.
TEST_F(StorePinTest, IsSettledByTheNextOpenWhicheverCallFails) {
  ShardIdentity identity;
  { identity = CommitStep(*Open(), 1, 100); }
  for (const bool pin : {true, false}) {
    size_t worked = 0;
    const DrawnCalls drawn;
    for (size_t call = drawn.first; worked < 2; call += drawn.stride) {
      SCOPED_TRACE(testing::Message() << (pin ? "pin" : "unpin") << ", call " << call);
      ASSERT_LT(call, 100u);
      {
        auto store = Open();
        ASSERT_THAT(pin ? store->Unpin(1) : store->Pin(1, "keep"), IsOk());
      }
      absl::Status status;
      {
        FailingFileSystem files(PosixFileSystem());
        auto store = OpenStore(path_, &warnings_, files);
        ASSERT_THAT(store, IsOk());
        files.FailCall(files.calls().size() + call, absl::InternalError("EIO"));
        status = pin ? (*store)->Pin(1, "keep") : (*store)->Unpin(1);
        worked += status.ok() ? 1 : 0;
      }
      auto store = Open();
      EXPECT_EQ(warnings_, "");
      EXPECT_EQ(InfoOf(*store, 1).pinned, fs::exists(PinOf(identity)));
      EXPECT_TRUE(!status.ok() || InfoOf(*store, 1).pinned == pin);
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
