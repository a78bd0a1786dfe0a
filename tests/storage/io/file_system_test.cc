#include "storage/io/file_system.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

const absl::Status kBroken = absl::InternalError("broken");

class FileSystemTest : public testing::Test {
 protected:
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto entries = PosixFileSystem().ListDirectory(directory_.path());
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  std::string Contents() { return *ReadSmallFile(PosixFileSystem(), path_, 100); }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "x";
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(FileSystemTest, ReadSmallFileReadsAllUpToItsLimit) {
  std::ofstream(path_) << "hello";
  EXPECT_EQ(*ReadSmallFile(files_, path_, 5), "hello");
  EXPECT_THAT(ReadSmallFile(files_, path_, 4),
              StatusIs(StatusCode::kResourceExhausted, "read " + path_ + ": 5 bytes, where at most 4 are expected"));
  std::ofstream(path_, std::ios::trunc) << "";
  EXPECT_EQ(*ReadSmallFile(files_, path_, 0), "");
}

TEST_F(FileSystemTest, ReadSmallFileReportsEachStepThatFails) {
  EXPECT_THAT(ReadSmallFile(files_, path_, 5), StatusIs(StatusCode::kNotFound, HasSubstr(path_)));
  std::ofstream(path_) << "hello";
  for (const char* operation : {"OpenForRead", "Size", "ReadAt"}) {
    files_.FailOperation(operation, kBroken);
    EXPECT_THAT(ReadSmallFile(files_, path_, 5), StatusIs(StatusCode::kInternal, "broken")) << operation;
  }
}

TEST_F(FileSystemTest, WriteFileDurablyCreatesAndReplaces) {
  EXPECT_THAT(WriteFileDurably(files_, path_, "old"), IsOk());
  EXPECT_EQ(Contents(), "old");
  EXPECT_THAT(WriteFileDurably(files_, path_, "new and longer"), IsOk());
  EXPECT_EQ(Contents(), "new and longer");
  EXPECT_THAT(WriteFileDurably(files_, path_, ""), IsOk());
  EXPECT_EQ(Contents(), "");
  EXPECT_THAT(Names(), ElementsAre("x"));
}

TEST_F(FileSystemTest, WriteFileDurablyLeavesOtherWritersTemporaryFilesAlone) {
  std::ofstream(path_ + ".tmp") << "another's";
  EXPECT_THAT(WriteFileDurably(files_, path_, path_ + ".mine", "new"), IsOk());
  EXPECT_EQ(Contents(), "new");
  EXPECT_THAT(Names(), ElementsAre("x", "x.tmp"));
}

// What makes it durable is the order, which no look at the files afterwards can see.
TEST_F(FileSystemTest, WriteFileDurablySyncsTheFileBeforeAndTheDirectoryAfterTheRename) {
  ASSERT_THAT(WriteFileDurably(files_, path_, "new"), IsOk());
  EXPECT_THAT(files_.operations(),
              ElementsAre("RemoveFile", "Create", "WriteAt", "SyncData", "Close", "Rename", "SyncDirectory"));
  EXPECT_EQ(files_.calls().back().path, directory_.path());
}

TEST_F(FileSystemTest, WriteFileDurablySyncsTheDirectoryOfARelativePath) {
  const auto synced = [&](const std::string& path) {
    return InChild([&] {
      std::filesystem::current_path(directory_.path());
      const absl::Status status = WriteFileDurably(files_, path, "new");
      return status.ok() ? files_.calls().back().path : status.ToString();
    });
  };
  std::filesystem::create_directory(directory_ / "sub");
  EXPECT_EQ(synced("x"), ".");
  EXPECT_EQ(synced("sub/x"), "sub");
  EXPECT_THAT(Names(), ElementsAre("sub", "x"));
}

TEST_F(FileSystemTest, WriteFileDurablySyncsTheRootDirectory) {
  const std::string answer = InChild([&]() -> std::string {
    if (!EnterMountNamespace() || chroot(directory_.path().c_str()) != 0) return "SKIP";
    const absl::Status status = WriteFileDurably(files_, "/x", "new");
    return status.ok() ? files_.calls().back().path : status.ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not change its root directory";
  EXPECT_EQ(answer, "/");
}

TEST_F(FileSystemTest, WriteFileDurablyLeavesTheOldContentsWhenAStepFails) {
  for (const char* operation : {"RemoveFile", "Create", "WriteAt", "SyncData", "Close", "Rename"}) {
    SCOPED_TRACE(operation);
    ASSERT_THAT(WriteFileDurably(PosixFileSystem(), path_, "old"), IsOk());
    files_.FailOperation(operation, kBroken);
    EXPECT_THAT(WriteFileDurably(files_, path_, "new"), StatusIs(StatusCode::kInternal, "broken"));
    EXPECT_EQ(Contents(), "old");
    EXPECT_THAT(Names(), ElementsAre("x"));
  }
}

TEST_F(FileSystemTest, WriteFileDurablyReportsADirectoryThatIsNotSynced) {
  ASSERT_THAT(WriteFileDurably(files_, path_, "old"), IsOk());
  files_.FailOperation("SyncDirectory", kBroken);
  EXPECT_THAT(WriteFileDurably(files_, path_, "new"), StatusIs(StatusCode::kInternal, "broken"));
  EXPECT_EQ(Contents(), "new");
}

TEST_F(FileSystemTest, WriteFileDurablyReplacesWhatACrashLeft) {
  ASSERT_THAT(WriteFileDurably(files_, path_, "old"), IsOk());
  files_.Reset();
  files_.FailFrom(3, kBroken);  // nothing after the write: the temporary file stays
  ASSERT_THAT(WriteFileDurably(files_, path_, "torn"), StatusIs(StatusCode::kInternal, "broken"));
  ASSERT_THAT(Names(), ElementsAre("x", "x.tmp"));
  files_.Reset();
  EXPECT_THAT(WriteFileDurably(files_, path_, "new"), IsOk());
  EXPECT_EQ(Contents(), "new");
  EXPECT_THAT(Names(), ElementsAre("x"));
}

class RemoveTreeTest : public FileSystemTest {
 protected:
  // x/{a,sub/{b,c/},link -> ../kept}, and kept/y beside it.
  RemoveTreeTest() {
    std::filesystem::create_directory(directory_ / "kept");
    std::ofstream(directory_ / "kept/y") << "y";
    Fill();
  }

  void Fill() {
    std::filesystem::create_directories(path_ + "/sub/c");
    std::ofstream(path_ + "/a") << "a";
    std::ofstream(path_ + "/sub/b") << "b";
    std::filesystem::create_symlink("../kept", path_ + "/link");
  }
};

TEST_F(RemoveTreeTest, TakesEverythingBelowAndFollowsNoLink) {
  EXPECT_THAT(RemoveTree(files_, path_), IsOk());
  EXPECT_THAT(Names(), ElementsAre("kept"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "kept/y"));
  EXPECT_THAT(RemoveTree(files_, path_), IsOk());
}

TEST_F(RemoveTreeTest, TakesALinkOrFileOfThatName) {
  std::filesystem::create_symlink("kept", directory_ / "top-link");
  EXPECT_THAT(RemoveTree(files_, directory_ / "top-link"), IsOk());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "kept/y"));
  EXPECT_THAT(RemoveTree(files_, directory_ / "kept/y"), IsOk());
  EXPECT_THAT(Names(), ElementsAre("kept", "x"));
}

TEST_F(RemoveTreeTest, StopsAtTheFirstErrorAndGoesOnWhenCalledAgain) {
  ASSERT_THAT(RemoveTree(files_, path_), IsOk());
  const size_t calls = files_.calls().size();
  for (size_t i = 0; i < calls; ++i) {
    Fill();
    files_.Reset();
    files_.FailCall(i, kBroken);
    EXPECT_THAT(RemoveTree(files_, path_), StatusIs(StatusCode::kInternal, "broken")) << i;
    EXPECT_EQ(files_.calls().size(), i + 1);
    EXPECT_THAT(RemoveTree(files_, path_), IsOk());
    EXPECT_THAT(Names(), ElementsAre("kept"));
  }
}

TEST_F(RemoveTreeTest, DoesNotMindThatSomebodyElseRemovesToo) {
  ASSERT_THAT(RemoveTree(files_, path_), IsOk());
  const size_t calls = files_.calls().size();
  for (size_t i = 0; i < calls; ++i) {
    Fill();
    files_.Reset();
    files_.SetRule([i](const FailingFileSystem::Call& call) {
      if (call.index != i) return absl::OkStatus();
      std::filesystem::remove_all(call.path);
      return absl::NotFoundError("gone");
    });
    EXPECT_THAT(RemoveTree(files_, path_), IsOk()) << i;
    EXPECT_THAT(Names(), ElementsAre("kept"));
  }
}

}  // namespace
}  // namespace tidemark::storage
