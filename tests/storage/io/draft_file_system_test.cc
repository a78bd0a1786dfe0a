#include "storage/io/draft_file_system.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

std::vector<std::string> NamesIn(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  const auto entries = files.ListDirectory(path);
  EXPECT_THAT(entries, IsOk());
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

// The base has "file" with "old" and "folder" with "inner".
class DraftFileSystemTest : public testing::Test {
 protected:
  DraftFileSystemTest() : files_(PosixFileSystem(), directory_.path()) {
    std::ofstream(directory_ / "file") << "old";
    fs::create_directory(directory_ / "folder");
    std::ofstream(directory_ / "folder/inner") << "inner";
    before_ = ReadTree(PosixFileSystem(), directory_.path()).files;
  }
  ~DraftFileSystemTest() override {
    EXPECT_EQ(ReadTree(PosixFileSystem(), directory_.path()).files, before_) << "the base was changed";
  }
  std::string Read(const std::string& name) { return ReadSmallFile(files_, directory_ / name, 100).value_or("none"); }

  const TestDirectory directory_;
  DraftFileSystem files_;
  std::map<std::string, std::string> before_;
};

TEST_F(DraftFileSystemTest, ShowsTheBaseAndKeepsWhatIsMadeToItself) {
  EXPECT_EQ(Read("file"), "old");
  EXPECT_EQ(Read("folder/inner"), "inner");
  PutFile(files_, directory_ / "folder/more", "more");
  ASSERT_THAT(files_.CreateDirectory(directory_ / "made"), IsOk());
  PutFile(files_, directory_ / "made/here", "here");
  EXPECT_EQ(Read("folder/more"), "more");
  EXPECT_EQ(Read("made/here"), "here");
  EXPECT_THAT(NamesIn(files_, directory_.path()), ElementsAre("file", "folder", "made"));
  EXPECT_THAT(NamesIn(files_, directory_ / "folder"), ElementsAre("inner", "more"));
  EXPECT_THAT(files_.CreateDirectory(directory_ / "made"), StatusIs(StatusCode::kAlreadyExists, HasSubstr("made")));
  EXPECT_THAT(files_.Create(directory_ / "file", false), StatusIs(StatusCode::kAlreadyExists, HasSubstr("file")));
  EXPECT_THAT(files_.Create(directory_ / "none/x", false), StatusIs(StatusCode::kNotFound, HasSubstr("none/x")));
}

TEST_F(DraftFileSystemTest, WritesOverACopyOfAFile) {
  auto file = files_.OpenForRewrite(directory_ / "file", false);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->WriteAt(1, std::as_bytes(std::span("xyz", 3))), IsOk());
  EXPECT_EQ(Read("file"), "oxyz");
  ASSERT_THAT((*file)->Truncate(2), IsOk());
  ASSERT_THAT((*file)->Allocate(3), IsOk());
  EXPECT_EQ(Read("file"), std::string("ox\0", 3));
  std::byte byte;
  EXPECT_THAT((*file)->ReadAt(3, std::span(&byte, 1)), StatusIs(StatusCode::kDataLoss, HasSubstr("ends at 3")));
  auto reader = files_.OpenForRead(directory_ / "file", false);
  ASSERT_THAT(reader, IsOk());
  EXPECT_FALSE((*reader)->WriteAt(0, std::span(&byte, 1)).ok());
}

TEST_F(DraftFileSystemTest, RenamesAndRemovesFilesAndWholeFolders) {
  ASSERT_THAT(files_.Rename(directory_ / "folder", directory_ / "moved"), IsOk());
  EXPECT_EQ(Read("moved/inner"), "inner");
  EXPECT_EQ(Read("folder/inner"), "none");
  ASSERT_THAT(files_.Rename(directory_ / "file", directory_ / "moved/inner"), IsOk());
  EXPECT_EQ(Read("moved/inner"), "old");
  EXPECT_THAT(NamesIn(files_, directory_.path()), ElementsAre("moved"));
  EXPECT_THAT(files_.RemoveDirectory(directory_ / "moved"), StatusIs(StatusCode::kAlreadyExists, HasSubstr("moved")));
  EXPECT_FALSE(files_.RemoveFile(directory_ / "moved").ok());
  ASSERT_THAT(RemoveTree(files_, directory_ / "moved"), IsOk());
  EXPECT_THAT(NamesIn(files_, directory_.path()), ElementsAre());
  EXPECT_THAT(files_.RemoveFile(directory_ / "file"), StatusIs(StatusCode::kNotFound, HasSubstr("file")));
  EXPECT_THAT(files_.Rename(directory_ / "file", directory_ / "x"), StatusIs(StatusCode::kNotFound, HasSubstr("file")));
}

TEST_F(DraftFileSystemTest, GivesFilesSecondNames) {
  ASSERT_THAT(files_.HardLink(directory_ / "file", directory_ / "folder/second"), IsOk());
  EXPECT_EQ(*ReadSmallFile(files_, directory_ / "folder/second", 100), "old");
  EXPECT_THAT(files_.OpenForRewrite(directory_ / "file", false),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("it has 2 names")));
  ASSERT_THAT(files_.Rename(directory_ / "file", directory_ / "folder/second"), IsOk());
  EXPECT_THAT(files_.TypeOf(directory_ / "file"), IsOk()) << "both stay";
  EXPECT_THAT(files_.HardLink(directory_ / "file", directory_ / "folder/inner"),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("inner")));
  EXPECT_THAT(files_.HardLink(directory_ / "folder", directory_ / "x"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("folder is not a regular file")));
  EXPECT_THAT(files_.HardLink(directory_ / "none", directory_ / "x"), StatusIs(StatusCode::kNotFound, HasSubstr("x")));
  ASSERT_THAT(files_.RemoveFile(directory_ / "file"), IsOk());
  EXPECT_THAT(files_.OpenForRewrite(directory_ / "folder/second", false), IsOk());
  EXPECT_FALSE(fs::exists(directory_ / "folder/second")) << "only in the draft";
}

TEST_F(DraftFileSystemTest, RefusesARenameOntoAFolderThatIsNotEmpty) {
  ASSERT_THAT(files_.CreateDirectory(directory_ / "made"), IsOk());
  EXPECT_THAT(files_.Rename(directory_ / "made", directory_ / "folder"),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("folder")));
  EXPECT_THAT(files_.Rename(directory_ / "file", directory_ / "folder"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("folder")));
  EXPECT_FALSE(files_.Rename(directory_ / "folder", directory_ / "folder/inside").ok());
  ASSERT_THAT(files_.RemoveFile(directory_ / "folder/inner"), IsOk());
  ASSERT_THAT(files_.Rename(directory_ / "made", directory_ / "folder"), IsOk());
}

TEST_F(DraftFileSystemTest, LocksWhatNobodyHoldsOnEither) {
  {
    const auto lock = files_.TryLock(directory_ / "file");
    ASSERT_THAT(lock, IsOk());
    ASSERT_THAT((*lock)->WriteNote("me"), IsOk());
    EXPECT_EQ(*files_.ReadNote(directory_ / "file", 10), "me");
    EXPECT_THAT(files_.TryLock(directory_ / "file"), StatusIs(StatusCode::kUnavailable, HasSubstr("held by me")));
    EXPECT_THAT(files_.OpenForRead(directory_ / "file", false), StatusIs(StatusCode::kNotFound, HasSubstr("locked")));
  }
  EXPECT_THAT(files_.TryLock(directory_ / "file"), IsOk());
  EXPECT_THAT(files_.TryLock(directory_ / "new"), IsOk());
}

TEST(DraftFileSystemLock, IsRefusedWhereSomebodyHoldsItOnTheBase) {
  const TestDirectory directory;
  const auto held = PosixFileSystem().TryLock(directory / "LOCK");
  ASSERT_THAT(held, IsOk());
  ASSERT_THAT((*held)->WriteNote("the trainer"), IsOk());
  DraftFileSystem files(PosixFileSystem(), directory.path());
  EXPECT_THAT(files.TryLock(directory / "LOCK"), StatusIs(StatusCode::kUnavailable, HasSubstr("held by the trainer")));
  EXPECT_EQ(*files.ReadNote(directory / "LOCK", 100), "the trainer");
}

TEST_F(DraftFileSystemTest, TransfersWhatItHasAndWhatTheBaseHas) {
  PutFile(files_, directory_ / "made", "made");
  auto made = files_.OpenForRead(directory_ / "made", false);
  auto base = files_.OpenForRead(directory_ / "file", false);
  auto queue = files_.NewIoQueue(IoQueueKind::kThreads, 2);
  ASSERT_THAT(queue, IsOk());
  char read[2][4] = {};
  (*queue)->Submit({.file = made->get(), .data = reinterpret_cast<std::byte*>(read[0]), .size = 4, .tag = 1});
  (*queue)->Submit({.file = base->get(), .data = reinterpret_cast<std::byte*>(read[1]), .size = 3, .tag = 2});
  EXPECT_EQ((*queue)->in_flight(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_THAT((*queue)->Wait().status, IsOk());
  EXPECT_EQ(std::string(read[0], 4), "made");
  EXPECT_EQ(std::string(read[1], 3), "old");
}

TEST_F(DraftFileSystemTest, ReadsWhatLiesElsewhereAndChangesNothingThere) {
  const TestDirectory elsewhere;
  std::ofstream(elsewhere / "x") << "x";
  EXPECT_EQ(*ReadSmallFile(files_, elsewhere / "x", 10), "x");
  EXPECT_THAT(files_.RemoveFile(elsewhere / "x"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("tried out")));
  EXPECT_THAT(files_.CreateDirectory(elsewhere / "y"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("tried out")));
  EXPECT_THAT(files_.SyncDirectory(elsewhere.path()), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
