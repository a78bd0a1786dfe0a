#include "storage/store/index_state.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

class IndexStateTest : public testing::Test {
 protected:
  IndexStateTest() {
    EXPECT_THAT(disk_.CreateDirectory("/index"), IsOk());
    PutFile(disk_, "/index/000001.log", "a log");
    PutFile(disk_, "/index/CURRENT", "MANIFEST-000001");
  }
  bool IsBelieved(std::string_view machine = "this boot") { return IsBelieved(disk_, machine); }
  static bool IsBelieved(FileSystem& files, std::string_view machine = "this boot") {
    const absl::StatusOr<bool> believed = IsIndexBelieved(files, "/index", machine);
    EXPECT_THAT(believed, IsOk());
    return believed.ok() && *believed;
  }
  void Close() { EXPECT_THAT(MarkIndexClosed(disk_, "/index", *disk_.Identify("/index")), IsOk()); }

  SimulatedDisk disk_;
};

TEST_F(IndexStateTest, NoneIsNotBelieved) {
  EXPECT_FALSE(IsBelieved());
  PutFile(disk_, "/index/state", "closed");
  EXPECT_FALSE(IsBelieved());
  PutFile(disk_, "/index/state", "");
  EXPECT_FALSE(IsBelieved());
}

TEST_F(IndexStateTest, AClosedOneIsBelievedWhileItsFilesAreThose) {
  Close();
  EXPECT_TRUE(IsBelieved());
  EXPECT_TRUE(IsBelieved("another boot"));
  EXPECT_TRUE(IsBelieved(*std::make_unique<SimulatedDisk>(disk_.image()))) << "a copy";
  PutFile(disk_, "/index/000001.log", "a lo");
  EXPECT_FALSE(IsBelieved());
  PutFile(disk_, "/index/000001.log", "a log");
  EXPECT_TRUE(IsBelieved());
  PutFile(disk_, "/index/000002.log", "");
  EXPECT_FALSE(IsBelieved());
  ASSERT_THAT(disk_.RemoveFile("/index/000002.log"), IsOk());
  ASSERT_THAT(disk_.RemoveFile("/index/000001.log"), IsOk());
  EXPECT_FALSE(IsBelieved());
}

TEST_F(IndexStateTest, AnOpenOneIsBelievedByTheSameBootInItsFolder) {
  Close();
  ASSERT_THAT(MarkIndexOpen(disk_, "/index", "this boot"), IsOk());
  EXPECT_TRUE(IsBelieved());
  PutFile(disk_, "/index/000002.log", "more");
  EXPECT_TRUE(IsBelieved()) << "as a kill leaves it";
  EXPECT_FALSE(IsBelieved("another boot"));
  SimulatedDisk copy(disk_.image());
  EXPECT_FALSE(IsBelieved(copy));
  Close();
  EXPECT_TRUE(IsBelieved("another boot"));
}

TEST_F(IndexStateTest, AnOpenOneIsNotBelievedWhereTheSystemHasNoBootId) {
  ASSERT_THAT(MarkIndexOpen(disk_, "/index", ""), IsOk());
  EXPECT_FALSE(IsBelieved(""));
  Close();
  EXPECT_TRUE(IsBelieved(""));
}

TEST_F(IndexStateTest, OneWhoseRemovalIsCutShortIsNotBelieved) {
  for (size_t before = 1; before <= 2; ++before) {
    Close();
    ASSERT_THAT(MarkIndexOpen(disk_, "/index", "this boot"), IsOk());
    FailingFileSystem files(disk_);
    files.FailOperation("RemoveFile", absl::InternalError("EIO"), before);
    EXPECT_THAT(RemoveIndex(files, "/index"), StatusIs(StatusCode::kInternal, "EIO"));
    EXPECT_FALSE(IsBelieved());
  }
  for (int i = 0; i < 2; ++i) EXPECT_THAT(RemoveIndex(disk_, "/index"), IsOk());
  EXPECT_THAT(disk_.TypeOf("/index"), StatusIs(StatusCode::kNotFound, testing::_));
}

TEST_F(IndexStateTest, WhatIsInThePlaceOfAnIndexIsRemovedToo) {
  PutFile(disk_, "/file", "no index");
  EXPECT_THAT(RemoveIndex(disk_, "/file"), IsOk());
  EXPECT_THAT(disk_.TypeOf("/file"), StatusIs(StatusCode::kNotFound, testing::_));
}

TEST_F(IndexStateTest, ADamagedOneIsNotBelieved) {
  Close();
  for (int i = 0; i < 2; ++i) EXPECT_THAT(MarkIndexDamaged(disk_, "/index"), IsOk());
  EXPECT_FALSE(IsBelieved());
}

TEST_F(IndexStateTest, AnotherFolderIsNotCalledClosed) {
  const FileId opened = *disk_.Identify("/index");
  ASSERT_THAT(disk_.Rename("/index", "/moved"), IsOk());
  ASSERT_THAT(disk_.CreateDirectory("/index"), IsOk());
  EXPECT_THAT(MarkIndexClosed(disk_, "/index", opened), StatusIs(StatusCode::kFailedPrecondition, testing::_));
  EXPECT_FALSE(IsBelieved());
}

TEST_F(IndexStateTest, AnErrorOfTheDiskSaysNothing) {
  Close();
  FailingFileSystem files(disk_);
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  EXPECT_THAT(IsIndexBelieved(files, "/index", "this boot"), StatusIs(StatusCode::kInternal, "EIO"));
  files.Reset();
  files.FailOperation("ListDirectory", absl::InternalError("EIO"));
  EXPECT_THAT(IsIndexBelieved(files, "/index", "this boot"), StatusIs(StatusCode::kInternal, "EIO"));
  files.Reset();
  files.FailOperation("WriteAt", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(MarkIndexOpen(files, "/index", "this boot"), StatusIs(StatusCode::kResourceExhausted, "ENOSPC"));
  EXPECT_TRUE(IsBelieved()) << "it is as it was";
}

}  // namespace
}  // namespace tidemark::storage
