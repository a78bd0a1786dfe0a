// Pins of a store and its tags: what keeps them, and what a failure or a crash in between makes of them.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/store.h"
#include "storage/manifest/tag.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

class StorePinTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  std::string PinOf(const ShardIdentity& identity) {
    return layout_.attempt(identity.step, identity.attempt) + "/pin.json";
  }

  static StepInfo InfoOf(const Store& store, int64_t step) {
    auto record = store.manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
  }

  // What a rebuild would know.
  StepInfo InfoInFolder(const ShardIdentity& identity) {
    StepInfo info{.step = identity.step, .attempt = ToHex(identity.attempt.bytes)};
    EXPECT_THAT(TakePin(
                    PosixFileSystem(), layout_, [](std::string_view) {}, info),
                IsOk());
    return info;
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(StorePinTest, LastsUntilTheStepIsLetGo) {
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
  EXPECT_THAT(warnings_, HasSubstr("step 1 stays pinned, but a rebuild of the manifest would not know: disk full"));
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
  EXPECT_THAT(noted->unsure.at(1), StatusIs(absl::StatusCode::kInternal,
                                            HasSubstr("step 1 stays, for nobody can say whether it is pinned: EIO")));
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
    for (size_t call = 0; worked < 2; ++call) {
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

class StoreTagTest : public StorePinTest {};

TEST_F(StoreTagTest, PinsAndLastsUntilItIsTakenAway) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
    ASSERT_THAT(store->Tag(1, "paper/figure-3"), IsOk());
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  }
  {
    auto store = Open();
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_EQ(InfoOf(*store, 1).pin_note, "");
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("paper/figure-3", "v1"));
    EXPECT_THAT(InfoInFolder(identity).tags, ElementsAre("paper/figure-3", "v1"));
    for (int i = 0; i < 2; ++i) ASSERT_THAT(store->Untag(1, "v1"), IsOk());
  }
  {
    auto store = Open();
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("paper/figure-3"));
    ASSERT_THAT(store->Untag(1, "paper/figure-3"), IsOk());
  }
  EXPECT_TRUE(InfoOf(*Open(), 1).pinned);
  EXPECT_THAT(InfoOf(*Open(), 1).tags, IsEmpty());
  EXPECT_THAT(InfoInFolder(identity).tags, IsEmpty());
  EXPECT_EQ(warnings_, "");
}

TEST_F(StoreTagTest, KeepsTheNoteAndIsKeptByAnotherNote) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 100);
  ASSERT_THAT(store->Pin(1, "a good one"), IsOk());
  ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  EXPECT_EQ(InfoOf(*store, 1).pin_note, "a good one");
  ASSERT_THAT(store->Pin(1, "the best"), IsOk());
  for (const StepInfo& info : {InfoOf(*store, 1), InfoInFolder(identity)}) {
    EXPECT_EQ(info.pin_note, "the best");
    EXPECT_THAT(info.tags, ElementsAre("v1"));
  }
}

TEST_F(StoreTagTest, GoesWithThePin) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 100);
  ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  ASSERT_THAT(store->Unpin(1), IsOk());
  EXPECT_THAT(InfoOf(*store, 1).tags, IsEmpty());
  EXPECT_FALSE(InfoOf(*store, 1).pinned);
  EXPECT_FALSE(fs::exists(PinOf(identity)));
  ASSERT_THAT(store->Pin(1, ""), IsOk());
  EXPECT_THAT(InfoOf(*store, 1).tags, IsEmpty());
}

TEST_F(StoreTagTest, IsForCommittedStepsAndTheirAttempts) {
  auto store = Open();
  ASSERT_THAT(store->RecordUnsaved({.step = 1, .state = StepState::kUnsaved}), IsOk());
  for (const int64_t step : {1, 3}) {
    EXPECT_THAT(store->Tag(step, "v1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not committed"))) << step;
    EXPECT_THAT(store->Untag(step, "v1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not committed"))) << step;
  }
  CommitStep(*store, 2, 200);
  const std::optional<AttemptId> other = AttemptId{{1}};
  EXPECT_THAT(store->Tag(2, "v1", other), StatusIs(absl::StatusCode::kNotFound, HasSubstr("not the step's any more")));
  EXPECT_THAT(store->Untag(2, "v1", other),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not the step's any more")));
  EXPECT_FALSE(InfoOf(*store, 2).pinned);
}

TEST_F(StoreTagTest, IsTakenFromALostStepToo) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 100);
  ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  ASSERT_THAT(store->MarkStep(1, ToHex(identity.attempt.bytes), StepState::kLost, "gone"), IsOk());
  fs::remove_all(layout_.attempt(1, identity.attempt));
  ASSERT_THAT(store->Untag(1, "v1"), IsOk());
  EXPECT_THAT(InfoOf(*store, 1).tags, IsEmpty());
}

TEST_F(StoreTagTest, IsAName) {
  auto store = Open();
  CommitStep(*store, 1, 100);
  EXPECT_THAT(store->Tag(1, "the best"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tag of step 1: tag 'the best' is not of")));
  EXPECT_FALSE(InfoOf(*store, 1).pinned);
}

TEST_F(StoreTagTest, IsOneOfAtMostSoMany) {
  auto store = Open();
  CommitStep(*store, 1, 100);
  for (size_t i = 0; i < kTagsPerStepMax; ++i) ASSERT_THAT(store->Tag(1, fmt::format("v{}", i)), IsOk());
  EXPECT_THAT(store->Tag(1, "one-more"), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("it has 64 tags")));
  EXPECT_THAT(store->Tag(1, "v0"), IsOk()) << "it has that";
  ASSERT_THAT(store->Untag(1, "v0"), IsOk());
  EXPECT_THAT(store->Tag(1, "one-more"), IsOk());
}

TEST_F(StoreTagTest, OutlivesTheManifest) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("rebuilt"));
  EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v1"));
  EXPECT_THAT(InfoOf(*store, 2).tags, IsEmpty());
}

TEST_F(StoreTagTest, StaysWithAStepThatIsSavedAnew) {
  ShardIdentity adopted;
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
    const ShardIdentity second = CommitStep(*store, 1, 101);
    EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v1"));
    EXPECT_THAT(InfoInFolder(second).tags, ElementsAre("v1"));
    adopted = WriteAttempt(*store, 1, 102);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 102);
  EXPECT_THAT(InfoOf(*store, 1).tags, ElementsAre("v1"));
  EXPECT_THAT(InfoInFolder(adopted).tags, ElementsAre("v1"));
}

// A save at a pinned step that failed after its folder got the pin, and whose folder could not be removed: the step is
// tagged after that, and then the next Open adopts the folder.
TEST_F(StoreTagTest, StaysWithAnAttemptThatHasAnEarlierPinOfItsOwn) {
  for (const bool rebuilt : {false, true}) {
    SCOPED_TRACE(rebuilt);
    const int64_t step = rebuilt ? 2 : 1;
    {
      auto store = Open();
      CommitStep(*store, step, 100);
      ASSERT_THAT(store->Pin(step, "keep"), IsOk());
      const ShardIdentity later = WriteAttempt(*store, step, 101);
      ASSERT_THAT(WritePin(PosixFileSystem(), layout_, {step, later.attempt}, "keep"), IsOk());
      ASSERT_THAT(store->Tag(step, "v1"), IsOk());
    }
    if (rebuilt) fs::remove_all(layout_.manifest());
    auto store = Open();
    EXPECT_EQ(ValueAt(*store, step), 101);
    EXPECT_THAT(InfoOf(*store, step).tags, ElementsAre("v1"));
  }
}

TEST_F(StoreTagTest, IsTakenAwayWhereOnlyTheFolderHasIt) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 100);
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, {1, identity.attempt}, "by hand", {"v1", "v2"}), IsOk());
  ASSERT_THAT(store->Untag(1, "v1"), IsOk());
  for (const StepInfo& info : {InfoOf(*store, 1), InfoInFolder(identity)}) {
    EXPECT_TRUE(info.pinned);
    EXPECT_EQ(info.pin_note, "by hand");
    EXPECT_THAT(info.tags, ElementsAre("v2"));
  }
}

// Whichever call fails, the step has the tag or not, record and folder agree after the next Open, no other tag is lost,
// and what was said to have worked has.
TEST_F(StoreTagTest, IsSettledByTheNextOpenWhicheverCallFails) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Tag(1, "stays"), IsOk());
  }
  for (const bool tag : {true, false}) {
    size_t worked = 0;
    for (size_t call = 0; worked < 2; ++call) {
      SCOPED_TRACE(testing::Message() << (tag ? "tag" : "untag") << ", call " << call);
      ASSERT_LT(call, 100u);
      {
        auto store = Open();
        ASSERT_THAT(tag ? store->Untag(1, "v1") : store->Tag(1, "v1"), IsOk());
      }
      absl::Status status;
      bool failed = false;
      {
        FailingFileSystem files(PosixFileSystem());
        auto store = OpenStore(path_, &warnings_, files);
        ASSERT_THAT(store, IsOk());
        const size_t before = files.calls().size();
        files.FailCall(before + call, absl::InternalError("EIO"));
        status = tag ? (*store)->Tag(1, "v1") : (*store)->Untag(1, "v1");
        // A pin.json that the disk does not give out is only a warning.
        failed = files.calls().size() > before + call;
        worked += failed ? 0 : 1;
      }
      EXPECT_TRUE(failed || status.ok()) << status;
      warnings_.clear();
      auto store = Open();
      EXPECT_EQ(warnings_, "");
      const std::vector<std::string> tags = InfoOf(*store, 1).tags;
      EXPECT_EQ(tags, InfoInFolder(identity).tags);
      EXPECT_TRUE(HasTag(tags, "stays"));
      EXPECT_TRUE(!status.ok() || HasTag(tags, "v1") == tag);
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
