#include "storage/manifest/pin.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

namespace fs = std::filesystem;

// As many tags as a step may have, in order.
std::vector<std::string> Many(const std::string& begin) {
  std::vector<std::string> tags;
  for (size_t i = 0; i < kTagsPerStepMax; ++i) tags.push_back(begin + std::to_string(10 + i));
  return tags;
}

class PinTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(layout_.attempt(folder_.step, folder_.attempt)); }

  std::string Path() { return layout_.attempt(folder_.step, folder_.attempt) + "/pin.json"; }
  absl::StatusOr<std::optional<std::string>> Read(FileSystem& files = PosixFileSystem()) {
    return ReadPin(files, layout_, folder_);
  }

  StepInfo OwnInfo() { return {.step = folder_.step, .attempt = ToHex(folder_.attempt.bytes)}; }
  absl::StatusOr<bool> Take(StepInfo& info, FileSystem& files = PosixFileSystem(), std::string* warnings = nullptr,
                            bool must_be_given_out = false) {
    const auto warn = [&](std::string_view line) {
      if (warnings != nullptr) *warnings += line;
    };
    return JoinPinOfFolder(files, layout_, warn, info, must_be_given_out);
  }

  absl::Status Inherit(const StepInfo& replaced, StepInfo& info, FileSystem& files = PosixFileSystem()) {
    const auto warn = [&](std::string_view line) { warnings_ += line; };
    return InheritPin(files, layout_, replaced, warn, info);
  }

  std::string Bytes() {
    std::stringstream text;
    text << std::ifstream(Path()).rdbuf();
    return text.str();
  }

  // One bit, in the name of a tag.
  void Damage(const std::string& tag) {
    std::string bytes = Bytes();
    bytes.at(bytes.find(tag)) ^= 1;
    std::ofstream(Path()) << bytes;
  }

  // Of another attempt at the step.
  const StepInfo tagged_{
      .step = 1000, .attempt = ToHex(AttemptId{{1}}.bytes), .pinned = true, .pin_note = "old", .tags = {"v1"}};

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  const StepFolder folder_{1000, AttemptId{{7}}};
  std::string warnings_;
};

TEST_F(PinTest, IsThereFromWritingToRemoving) {
  EXPECT_EQ(*Read(), std::nullopt);
  EXPECT_THAT(CheckPin(PosixFileSystem(), layout_, folder_), IsOk()) << "there is none";
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "the paper's \"best\""), IsOk());
  EXPECT_THAT(*Read(), Optional(std::string("the paper's \"best\"")));
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, ""), IsOk());
  EXPECT_THAT(*Read(), Optional(std::string()));
  for (int i = 0; i < 2; ++i) ASSERT_THAT(RemovePin(PosixFileSystem(), layout_, folder_), IsOk());
  EXPECT_EQ(*Read(), std::nullopt);
}

TEST_F(PinTest, IsOneLineOfJson) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a"), IsOk());
  EXPECT_EQ(Bytes(), "{\"note\":\"a\",\"version\":1}\n");
}

TEST_F(PinTest, KeepsTheLongestNoteWhateverItsBytes) {
  const std::string note(kPinNoteBytesMax, '\x01');  // the ones that JSON makes the most of
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, note), IsOk());
  EXPECT_THAT(*Read(), Optional(note));
}

TEST_F(PinTest, IsThereEvenWhereItCannotBeUnderstood) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("{\"note\": 1}"),
                                  std::string("{\"version\": 2}"), std::string(10 * kPinNoteBytesMax, ' ')}) {
    std::ofstream(Path()) << text;
    EXPECT_THAT(*Read(), Optional(std::string())) << text;
  }
  fs::remove(Path());
  fs::create_directory(Path());
  EXPECT_THAT(*Read(), Optional(std::string()));
}

TEST_F(PinTest, IsThereEvenWhereTheDiskDoesNotGiveItOut) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a"), IsOk());
  for (const char* operation : {"OpenForRead", "ReadAt"}) {
    SCOPED_TRACE(operation);
    FailingFileSystem files(PosixFileSystem());
    files.FailOperation(operation, absl::InternalError("EIO"));
    EXPECT_THAT(*Read(files), Optional(std::string()));
    files.FailOperation(operation, absl::InternalError("EIO"));
    StepInfo info = OwnInfo();
    std::string warnings;
    EXPECT_TRUE(*Take(info, files, &warnings));
    EXPECT_TRUE(info.pinned);
    EXPECT_EQ(info.pin_note, "");
    EXPECT_EQ(warnings, "step 1000 is pinned by " + Path() + ", which cannot be read: EIO");
  }
}

TEST_F(PinTest, IsNotKnownWhereNobodyCanSayWhetherItIsThere) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a"), IsOk());
  FailingFileSystem files(PosixFileSystem());
  files.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "TypeOf" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(Read(files), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT(CheckPin(files, layout_, folder_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  StepInfo info = OwnInfo();
  EXPECT_THAT(Take(info, files), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE(info.pinned);
}

TEST_F(PinTest, IsTakenOnceFromTheFolder) {
  StepInfo info = OwnInfo();
  EXPECT_FALSE(*Take(info));
  EXPECT_FALSE(info.pinned);
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a"), IsOk());
  std::string warnings;
  EXPECT_TRUE(*Take(info, PosixFileSystem(), &warnings));
  EXPECT_TRUE(info.pinned);
  EXPECT_EQ(info.pin_note, "a");
  EXPECT_EQ(warnings, "");
  EXPECT_THAT(info.tags, IsEmpty());
  EXPECT_FALSE(*Take(info)) << "nothing new";
  StepInfo unsaved{.step = 1000};
  EXPECT_FALSE(*Take(unsaved));
}

TEST_F(PinTest, IsTakenWithItsTags) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a", {"paper", "v1"}), IsOk());
  StepInfo info = OwnInfo();
  EXPECT_TRUE(*Take(info));
  EXPECT_THAT(info.tags, ElementsAre("paper", "v1"));
  EXPECT_FALSE(*Take(info)) << "nothing new";
}

// As a crash leaves it between the folder and the record.
TEST_F(PinTest, AddsTheTagsOfItsFolderToThoseOfARecordThatIsPinned) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "the folder's", {"new", "old"}), IsOk());
  StepInfo info = OwnInfo();
  info.pinned = true;
  info.pin_note = "the record's";
  info.tags = {"old", "only-in-the-record"};
  EXPECT_TRUE(*Take(info));
  EXPECT_THAT(info.tags, ElementsAre("new", "old", "only-in-the-record"));
  EXPECT_EQ(info.pin_note, "the record's");
}

TEST_F(PinTest, CostsNothingWhereTheRecordHasItAndTheDiskDoesNotGiveItOut) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a", {"v2"}), IsOk());
  for (const char* operation : {"TypeOf", "OpenForRead"}) {
    SCOPED_TRACE(operation);
    FailingFileSystem files(PosixFileSystem());
    files.FailOperation(operation, absl::InternalError("EIO"));
    StepInfo info = OwnInfo();
    info.pinned = true;
    info.tags = {"v1"};
    std::string warnings;
    const auto taken = Take(info, files, &warnings);
    ASSERT_THAT(taken, IsOk());
    EXPECT_FALSE(*taken);
    EXPECT_THAT(info.tags, ElementsAre("v1"));
    EXPECT_EQ(warnings, "step 1000 is pinned by " + Path() + ", which cannot be read: EIO");
  }
}

TEST_F(PinTest, IsThereWithoutTagsWhereItsBytesAreWrong) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a", {"paper", "v1"}), IsOk());
  EXPECT_THAT(CheckPin(PosixFileSystem(), layout_, folder_), IsOk());
  Damage("paper");
  EXPECT_THAT(*Read(), Optional(std::string()));
  EXPECT_THAT(CheckPin(PosixFileSystem(), layout_, folder_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its check does not match its bytes")));
  for (const bool must_be_given_out : {false, true}) {
    SCOPED_TRACE(must_be_given_out);
    StepInfo info = OwnInfo();
    std::string warnings;
    EXPECT_TRUE(*Take(info, PosixFileSystem(), &warnings, must_be_given_out));
    EXPECT_TRUE(info.pinned);
    EXPECT_EQ(info.pin_note, "");
    EXPECT_THAT(info.tags, IsEmpty());
    EXPECT_THAT(warnings, HasSubstr("step 1000 is pinned by " + Path() + ", which cannot be read: note of "));
    EXPECT_THAT(warnings, HasSubstr("its check does not match its bytes"));
  }
}

TEST_F(PinTest, MustBeGivenOutToWhoIsToWriteItAnew) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a", {"v1"}), IsOk());
  for (const char* operation : {"TypeOf", "OpenForRead"}) {
    for (const bool pinned : {false, true}) {
      SCOPED_TRACE(operation);
      FailingFileSystem files(PosixFileSystem());
      files.FailOperation(operation, absl::InternalError("EIO"));
      StepInfo info = OwnInfo();
      info.pinned = pinned;
      EXPECT_THAT(Take(info, files, nullptr, /*must_be_given_out=*/true),
                  StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
      EXPECT_EQ(info.pinned, pinned);
    }
  }
}

TEST_F(PinTest, LeavesOutTagsOfItsFolderThatThereIsNoRoomFor) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "a", {"t10", "x", "y"}), IsOk());
  StepInfo info = OwnInfo();
  info.pinned = true;
  info.tags = Many("t");
  const std::vector<std::string> before = info.tags;
  std::string warnings;
  EXPECT_FALSE(*Take(info, PosixFileSystem(), &warnings));
  EXPECT_EQ(info.tags, before);
  EXPECT_EQ(warnings, "step 1000 loses 2 of its tags, because it may have at most 64");
}

TEST_F(PinTest, HasGoneWithItsFolder) {
  fs::remove_all(layout_.steps());
  EXPECT_EQ(*Read(), std::nullopt);
  EXPECT_THAT(RemovePin(PosixFileSystem(), layout_, folder_), IsOk());
}

TEST_F(PinTest, IsNotGoneBeforeThatIsSynced) {
  FailingFileSystem files(PosixFileSystem());
  for (const char* operation : {"RemoveFile", "SyncDirectory"}) {
    ASSERT_THAT(WritePin(files, layout_, folder_, "a"), IsOk());
    files.FailOperation(operation, absl::InternalError("EIO"));
    EXPECT_THAT(RemovePin(files, layout_, folder_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
}

TEST_F(PinTest, IsInheritedByWhatTakesTheStepsPlace) {
  const StepInfo plain{.step = 1000, .attempt = ToHex(AttemptId{{1}}.bytes)};
  StepInfo pinned = plain;
  pinned.pinned = true;
  pinned.pin_note = "a";
  StepInfo info{.step = 1000, .attempt = ToHex(folder_.attempt.bytes)};
  ASSERT_THAT(Inherit(plain, info), IsOk());
  EXPECT_FALSE(info.pinned);
  ASSERT_THAT(Inherit(pinned, info), IsOk());
  EXPECT_TRUE(info.pinned);
  EXPECT_EQ(info.pin_note, "a");
  EXPECT_THAT(*Read(), Optional(std::string("a")));
}

TEST_F(PinTest, IsInheritedWithItsTags) {
  StepInfo info = OwnInfo();
  ASSERT_THAT(Inherit(tagged_, info), IsOk());
  EXPECT_THAT(info.tags, ElementsAre("v1"));
  StepInfo taken = OwnInfo();
  EXPECT_TRUE(*Take(taken));
  EXPECT_THAT(taken.tags, ElementsAre("v1")) << "the folder has them";
}

// A save may have written the pin, and failed; the tag came later.
TEST_F(PinTest, BringsItsTagsToAnAttemptThatIsPinnedAlready) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "new", {"v2"}), IsOk());
  StepInfo info = OwnInfo();
  ASSERT_TRUE(*Take(info));
  ASSERT_THAT(Inherit(tagged_, info), IsOk());
  EXPECT_THAT(info.tags, ElementsAre("v1", "v2"));
  EXPECT_EQ(info.pin_note, "new");
  StepInfo taken = OwnInfo();
  EXPECT_TRUE(*Take(taken));
  EXPECT_THAT(taken.tags, ElementsAre("v1", "v2"));
}

// Whether in a rebuild, in an adoption or in a save: what the file has besides is known to nothing else.
TEST_F(PinTest, IsNotWrittenOverByAnInheritedOneWhereItCannotBeRead) {
  for (const bool damaged : {false, true}) {
    SCOPED_TRACE(damaged);
    warnings_.clear();
    ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "new", {"v2"}), IsOk());
    FailingFileSystem files(PosixFileSystem());
    if (damaged) {
      Damage("v2");
    } else {
      files.SetRule([](const FailingFileSystem::Call& call) {
        return call.operation == "OpenForRead" ? absl::InternalError("EIO") : absl::OkStatus();
      });
    }
    const std::string bytes = Bytes();
    StepInfo info = OwnInfo();
    ASSERT_TRUE(*Take(info, files));
    ASSERT_THAT(Inherit(tagged_, info, files), IsOk());
    EXPECT_THAT(info.tags, ElementsAre("v1"));
    EXPECT_EQ(Bytes(), bytes);
    EXPECT_THAT(warnings_, HasSubstr("step 1000 inherits tags that a rebuild of the manifest would lose, because " +
                                     Path() + " cannot be read: "));
    EXPECT_THAT(warnings_, HasSubstr(damaged ? "its check does not match" : "EIO"));
  }
}

TEST_F(PinTest, IsNotInheritedByAFolderOfWhichNobodyCanSayWhetherItHasOne) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "new", {"v2"}), IsOk());
  const std::string bytes = Bytes();
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("TypeOf", absl::InternalError("EIO"));
  StepInfo info = OwnInfo();
  EXPECT_THAT(Inherit(tagged_, info, files), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_TRUE(info.pinned);
  EXPECT_EQ(Bytes(), bytes);
}

TEST_F(PinTest, AddsTheTagsThatTheDiskGivesOutAtTheSecondLook) {
  ASSERT_THAT(WritePin(PosixFileSystem(), layout_, folder_, "new", {"v2"}), IsOk());
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  StepInfo info = OwnInfo();
  ASSERT_TRUE(*Take(info, files));
  ASSERT_THAT(info.tags, IsEmpty());
  ASSERT_THAT(Inherit(tagged_, info, files), IsOk());
  EXPECT_THAT(info.tags, ElementsAre("v1", "v2"));
  StepInfo taken = OwnInfo();
  EXPECT_TRUE(*Take(taken));
  EXPECT_THAT(taken.tags, ElementsAre("v1", "v2"));
}

TEST(JoinPin, SaysWhetherItChangedAnything) {
  const auto warn = [](std::string_view line) { ADD_FAILURE() << line; };
  StepInfo info;
  EXPECT_FALSE(JoinPin({.pin_note = "a", .tags = {}}, warn, info)) << "not pinned";
  EXPECT_FALSE(info.pinned);
  const StepInfo tagged{.pinned = true, .pin_note = "a", .tags = {"v1"}};
  EXPECT_TRUE(JoinPin(tagged, warn, info));
  EXPECT_FALSE(JoinPin(tagged, warn, info));
  EXPECT_FALSE(JoinPin({.pinned = true, .pin_note = "b", .tags = {}}, warn, info));
  EXPECT_EQ(info.pin_note, "a");
  EXPECT_THAT(info.tags, ElementsAre("v1"));
}

TEST(JoinPin, PutsTheTagsOfTheReplacedStepFirstAndSaysHowManyItLeavesOut) {
  std::string warnings;
  const auto warn = [&](std::string_view line) { warnings += line; };
  StepInfo info{.step = 7, .pinned = true, .tags = {"a", "b", "t10"}};
  const StepInfo replaced{.step = 7, .pinned = true, .tags = Many("t")};
  EXPECT_TRUE(JoinPin(replaced, warn, info));
  EXPECT_EQ(info.tags, replaced.tags);
  EXPECT_EQ(warnings, "step 7 loses 2 of its tags, because it may have at most 64");
}

TEST_F(PinTest, IsInheritedByTheRecordEvenWhereTheFolderRefusesIt) {
  const StepInfo pinned{.step = 1000, .attempt = ToHex(AttemptId{{1}}.bytes), .pinned = true};
  StepInfo info{.step = 1000, .attempt = ToHex(folder_.attempt.bytes)};
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("Create", absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Inherit(pinned, info, files), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
  EXPECT_TRUE(info.pinned);
}

}  // namespace
}  // namespace tidemark::storage
