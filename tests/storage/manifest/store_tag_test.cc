// Tags of a store's steps: what keeps them, and what a failure or a crash in between makes of them.

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/manifest/store_pin_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

class StoreTagTest : public StorePinTest {
 protected:
  static std::string BytesOf(const std::string& path) {
    std::stringstream bytes;
    bytes << std::ifstream(path).rdbuf();
    return bytes.str();
  }
};

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

TEST_F(StoreTagTest, IsKeptByAnotherNoteWhereOnlyTheFolderHasIt) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 100);
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, {1, identity.attempt}, "old", {"v1"}), IsOk());
  ASSERT_THAT(store->Pin(1, "new"), IsOk());
  for (const StepInfo& info : {InfoOf(*store, 1), InfoInFolder(identity)}) {
    EXPECT_EQ(info.pin_note, "new");
    EXPECT_THAT(info.tags, ElementsAre("v1"));
  }
}

// So that no step is pinned, or loses a name, by a look at the folder that failed.
TEST_F(StoreTagTest, ChangesNothingWhereNobodyCanSayWhatTheFolderHas) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity identity = CommitStep(**store, 1, 100);
  files.SetRule([pin = PinOf(identity)](const FailingFileSystem::Call& call) {
    return call.path == pin && call.operation == "TypeOf" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT((*store)->Tag(1, "v1"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT((*store)->Untag(1, "v1"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT((*store)->Pin(1, "a"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE(InfoOf(**store, 1).pinned);
  EXPECT_FALSE(fs::exists(PinOf(identity)));
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
  EXPECT_THAT(store->Tag(2, "v1", other),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("another attempt has replaced")));
  EXPECT_THAT(store->Untag(2, "v1", other),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("another attempt has replaced")));
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
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tag of step 1: tag 'the best' has a character other than")));
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

// What the disk does not give out may have tags: it is not written over, and is looked for again.
TEST_F(StoreTagTest, IsNotLostWhereARebuildCannotReadTheFolder) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  }
  fs::remove_all(layout_.manifest());
  {
    FailingFileSystem files(PosixFileSystem());
    const std::string pin = PinOf(identity);
    files.SetRule([pin](const FailingFileSystem::Call& call) {
      return call.operation == "OpenForRead" && call.path == pin ? absl::InternalError("EIO") : absl::OkStatus();
    });
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    EXPECT_TRUE(InfoOf(**store, 1).pinned);
    EXPECT_THAT((*store)->Pin(1, "a note"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
    EXPECT_THAT((*store)->Tag(1, "v2"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
    EXPECT_THAT((*store)->Untag(1, "v2"), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
  EXPECT_THAT(InfoOf(*Open(), 1).tags, ElementsAre("v1"));
}

// The same where the file is that of a later attempt, which a rebuild or an adoption puts in the step's place.
TEST_F(StoreTagTest, IsNotWrittenOverByAnInheritedOneWhereTheDiskDoesNotGiveItOut) {
  for (const bool rebuilt : {false, true}) {
    SCOPED_TRACE(rebuilt);
    const int64_t step = rebuilt ? 2 : 1;
    ShardIdentity later;
    {
      auto store = Open();
      CommitStep(*store, step, 100);
      ASSERT_THAT(store->Tag(step, "v1"), IsOk());
      later = WriteAttempt(*store, step, 101);
      ASSERT_THAT(WritePin(PosixFileSystem(), layout_, {step, later.attempt}, "keep", {"v2"}), IsOk());
    }
    if (rebuilt) fs::remove_all(layout_.manifest());
    const std::string bytes = BytesOf(PinOf(later));
    {
      FailingFileSystem files(PosixFileSystem());
      files.SetRule([pin = PinOf(later)](const FailingFileSystem::Call& call) {
        return call.operation == "OpenForRead" && call.path == pin ? absl::InternalError("EIO") : absl::OkStatus();
      });
      warnings_.clear();
      auto store = OpenStore(path_, &warnings_, files);
      ASSERT_THAT(store, IsOk());
      EXPECT_EQ(ValueAt(**store, step), 101);
      EXPECT_THAT(InfoOf(**store, step).tags, ElementsAre("v1"));
      EXPECT_THAT(warnings_, HasSubstr(PinOf(later) + ", which cannot be read: EIO"));
    }
    EXPECT_EQ(BytesOf(PinOf(later)), bytes);
    EXPECT_THAT(InfoOf(*Open(), step).tags, ElementsAre("v1", "v2"));
  }
}

TEST_F(StoreTagTest, IsNotBelievedByARebuildWhereOneBitIsWrong) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = CommitStep(*store, 1, 100);
    ASSERT_THAT(store->Tag(1, "v1"), IsOk());
  }
  fs::remove_all(layout_.manifest());
  std::string bytes = BytesOf(PinOf(identity));
  bytes.at(bytes.find("v1") + 1) ^= 2;
  std::ofstream(PinOf(identity)) << bytes;
  const std::string problem = "step 1 is pinned by " + PinOf(identity) + ", which cannot be read: ";
  for (const bool rebuilt : {true, false}) {
    SCOPED_TRACE(rebuilt);
    auto store = Open();
    EXPECT_EQ(warnings_.find("rebuilt") != std::string::npos, rebuilt);
    EXPECT_THAT(warnings_, HasSubstr(problem));
    EXPECT_TRUE(InfoOf(*store, 1).pinned);
    EXPECT_THAT(InfoOf(*store, 1).tags, IsEmpty());
    EXPECT_EQ(BytesOf(PinOf(identity)), bytes);
  }
  {
    auto store = Open();
    warnings_.clear();
    ASSERT_THAT(store->Tag(1, "v2"), IsOk());
    EXPECT_THAT(warnings_, HasSubstr(problem)) << "it is written anew";
  }
  EXPECT_THAT(InfoOf(*Open(), 1).tags, ElementsAre("v2"));
  EXPECT_EQ(warnings_, "");
  EXPECT_THAT(InfoInFolder(identity).tags, ElementsAre("v2"));
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
    const DrawnCalls drawn;
    for (size_t call = drawn.first; worked < 2; call += drawn.stride) {
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
