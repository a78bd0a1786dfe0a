// What every FileSystem promises of names and directories.

#include "tests/storage/io/file_system_contract.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST_P(FileSystemContractTest, CreateDirectoryRefusesAnyNameThatIsThere) {
  for (const std::string& path : {file_, folder_, link_, folder_ + "/"}) {
    EXPECT_THAT(files_.CreateDirectory(path),
                StatusIs(StatusCode::kAlreadyExists, "create directory " + path + ": File exists (EEXIST)"));
  }
  EXPECT_THAT(files_.CreateDirectory(none_ + "/x"), StatusIs(StatusCode::kNotFound, HasSubstr(none_ + "/x")));
  EXPECT_THAT(files_.CreateDirectory(file_ + "/x"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
  EXPECT_THAT(files_.CreateDirectory("/"), StatusIs(StatusCode::kAlreadyExists, HasSubstr("EEXIST")));
  EXPECT_THAT(files_.CreateDirectory(""), StatusIs(StatusCode::kNotFound, HasSubstr("ENOENT")));
}

TEST_P(FileSystemContractTest, PathsMayHaveSlashesAndDots) {
  EXPECT_THAT(files_.CreateDirectory(root_ + "//folder/./x/"), IsOk());
  EXPECT_EQ(*files_.TypeOf(folder_ + "/x/../../folder/x/."), FileType::kDirectory);
  EXPECT_EQ(*files_.TypeOf("/.."), FileType::kDirectory);
  EXPECT_THAT(files_.TypeOf(none_ + "/.."), StatusIs(StatusCode::kNotFound, HasSubstr("ENOENT")));
  EXPECT_THAT(files_.TypeOf(root_ + "/" + std::string(256, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ENAMETOOLONG")));
}

TEST_P(FileSystemContractTest, ListDirectoryGivesNamesInByteOrderWithTypes) {
  Put(root_ + "/Zed", "");
  auto entries = files_.ListDirectory(root_);
  ASSERT_THAT(entries, IsOk());
  std::vector<std::pair<std::string, FileType>> seen;
  for (const DirectoryEntry& entry : *entries) seen.emplace_back(entry.name, entry.type);
  EXPECT_THAT(seen, ElementsAre(Pair("Zed", FileType::kRegular), Pair("file", FileType::kRegular),
                                Pair("folder", FileType::kDirectory), Pair("link", FileType::kOther)));
  EXPECT_THAT(Names(folder_), ElementsAre());
}

TEST_P(FileSystemContractTest, ListDirectoryRefusesWhatIsNone) {
  EXPECT_THAT(files_.ListDirectory(none_),
              StatusIs(StatusCode::kNotFound, "open directory " + none_ + ": No such file or directory (ENOENT)"));
  for (const std::string& path : {file_, link_}) {
    EXPECT_THAT(files_.ListDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path)));
  }
}

TEST_P(FileSystemContractTest, TypeOfDoesNotFollowLinks) {
  EXPECT_EQ(*files_.TypeOf(file_), FileType::kRegular);
  EXPECT_EQ(*files_.TypeOf(folder_), FileType::kDirectory);
  EXPECT_EQ(*files_.TypeOf(link_), FileType::kOther);
  EXPECT_THAT(files_.TypeOf(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
}

TEST_P(FileSystemContractTest, IdentifyTellsOneFileFromAnother) {
  const auto id = files_.Identify(file_);
  ASSERT_THAT(id, IsOk());
  EXPECT_NE(*files_.Identify(folder_), *id);
  EXPECT_THAT(files_.Identify(none_), StatusIs(StatusCode::kNotFound, HasSubstr("stat " + none_)));
  Put(folder_ + "/other", "");
  const auto other = files_.Identify(folder_ + "/other");
  ASSERT_THAT(files_.Rename(file_, none_), IsOk());
  EXPECT_EQ(*files_.Identify(none_), *id) << "renamed";
  ASSERT_THAT(files_.Rename(folder_ + "/other", file_), IsOk());
  EXPECT_EQ(*files_.Identify(file_), *other) << "another in its place";
}

TEST_P(FileSystemContractTest, CreateRefusesAnyNameThatIsThere) {
  for (const std::string& path : {file_, folder_, link_}) {
    for (const bool direct : {false, true}) {
      EXPECT_THAT(files_.Create(path, direct),
                  StatusIs(StatusCode::kAlreadyExists, "create " + path + ": File exists (EEXIST)"));
    }
    EXPECT_THAT(files_.CreateReadable(path),
                StatusIs(StatusCode::kAlreadyExists, "create " + path + ": File exists (EEXIST)"));
  }
  EXPECT_EQ(Get(file_), "old");
  EXPECT_THAT(files_.Create(none_ + "/x", false), StatusIs(StatusCode::kNotFound, HasSubstr(none_ + "/x")));
}

TEST_P(FileSystemContractTest, RenameReplacesAFile) {
  Put(none_, "new");
  EXPECT_THAT(files_.Rename(none_, file_), IsOk());
  EXPECT_EQ(Get(file_), "new");
  EXPECT_THAT(files_.TypeOf(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  EXPECT_THAT(files_.Rename(file_, file_), IsOk());
  EXPECT_EQ(Get(file_), "new");
}

TEST_P(FileSystemContractTest, RenameReplacesOnlyAnEmptyDirectory) {
  const std::string other = root_ + "/other";
  ASSERT_THAT(files_.CreateDirectory(other), IsOk());
  EXPECT_THAT(files_.Rename(other, folder_), IsOk());
  Put(folder_ + "/x", "");
  ASSERT_THAT(files_.CreateDirectory(other), IsOk());
  EXPECT_THAT(files_.Rename(other, folder_), StatusIs(StatusCode::kAlreadyExists, HasSubstr("rename " + other)));
  EXPECT_THAT(files_.Rename(none_, file_), StatusIs(StatusCode::kNotFound, HasSubstr("rename " + none_)));
  EXPECT_THAT(files_.Rename(file_, none_ + "/x"), StatusIs(StatusCode::kNotFound, HasSubstr("rename " + file_)));
}

TEST_P(FileSystemContractTest, RenameRefusesWhatDoesNotFit) {
  EXPECT_THAT(files_.Rename(file_, folder_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("EISDIR")));
  EXPECT_THAT(files_.Rename(folder_, file_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
  EXPECT_THAT(files_.Rename(file_ + "/x", none_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
  EXPECT_THAT(files_.Rename(folder_, folder_ + "/x"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("EINVAL")));
  EXPECT_THAT(Names(root_), ElementsAre("file", "folder", "link"));
}

TEST_P(FileSystemContractTest, RenameMovesAcrossDirectoriesWithWhatIsInside) {
  Put(folder_ + "/x", "x");
  ASSERT_THAT(files_.CreateDirectory(none_), IsOk());
  EXPECT_THAT(files_.Rename(folder_, none_ + "/moved/"), IsOk());
  EXPECT_THAT(files_.Rename(link_, none_ + "/link"), IsOk());
  EXPECT_EQ(Get(none_ + "/moved/x"), "x");
  EXPECT_EQ(*files_.TypeOf(none_ + "/link"), FileType::kOther);
  EXPECT_THAT(Names(root_), ElementsAre("file", "none"));
}

TEST_P(FileSystemContractTest, RenameToNewReplacesNothing) {
  Put(none_, "new");
  for (const std::string& path : {file_, folder_, link_, none_}) {
    EXPECT_THAT(files_.RenameToNew(none_, path),
                StatusIs(StatusCode::kAlreadyExists, "rename " + none_ + " to new " + path + ": File exists (EEXIST)"));
  }
  EXPECT_EQ(Get(file_), "old");
  EXPECT_THAT(files_.RenameToNew(none_, folder_ + "/x"), IsOk());
  EXPECT_EQ(Get(folder_ + "/x"), "new");
  EXPECT_THAT(files_.RenameToNew(none_, root_ + "/other"), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  EXPECT_THAT(files_.RenameToNew(file_, none_ + "/x"), StatusIs(StatusCode::kNotFound, HasSubstr(file_)));
  EXPECT_THAT(Names(root_), ElementsAre("file", "folder", "link"));
}

TEST_P(FileSystemContractTest, HardLinkGivesASecondName) {
  EXPECT_THAT(files_.HardLink(file_, folder_ + "/x"), IsOk());
  EXPECT_EQ(Get(folder_ + "/x"), "old");
  EXPECT_EQ(*files_.Identify(file_), *files_.Identify(folder_ + "/x"));
  // A rename of one onto the other leaves both.
  EXPECT_THAT(files_.Rename(file_, folder_ + "/x"), IsOk());
  EXPECT_EQ(Get(file_), "old");
  ASSERT_THAT(files_.RemoveFile(file_), IsOk());
  EXPECT_EQ(Get(folder_ + "/x"), "old");
  Put(none_, "new");
  ASSERT_THAT(files_.HardLink(none_, root_ + "/other"), IsOk());
  EXPECT_THAT(files_.Rename(root_ + "/other", folder_ + "/x"), IsOk());
  EXPECT_EQ(Get(folder_ + "/x"), "new");
  EXPECT_EQ(Get(none_), "new");
  EXPECT_THAT(Names(root_), ElementsAre("folder", "link", "none"));
}

TEST_P(FileSystemContractTest, HardLinkReplacesNothingAndTakesFilesAlone) {
  for (const std::string& path : {file_, folder_, link_}) {
    EXPECT_THAT(files_.HardLink(file_, path),
                StatusIs(StatusCode::kAlreadyExists, "link " + file_ + " to " + path + ": File exists (EEXIST)"));
  }
  for (const std::string& path : {folder_, link_}) {
    EXPECT_THAT(files_.HardLink(path, none_),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path + " is not a regular file")));
  }
  EXPECT_THAT(files_.HardLink(none_, root_ + "/other"), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  EXPECT_THAT(files_.HardLink(file_, none_ + "/x"), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
}

TEST_P(FileSystemContractTest, RemoveFileTakesLinksAndLeavesTheirTargets) {
  EXPECT_THAT(files_.RemoveFile(link_), IsOk());
  EXPECT_EQ(*files_.TypeOf(file_), FileType::kRegular);
  EXPECT_THAT(files_.RemoveFile(file_), IsOk());
  EXPECT_THAT(files_.RemoveFile(file_), StatusIs(StatusCode::kNotFound, HasSubstr("remove " + file_)));
  EXPECT_THAT(files_.RemoveFile(folder_), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("EISDIR")));
}

TEST_P(FileSystemContractTest, RemoveDirectoryTakesOnlyAnEmptyOne) {
  Put(folder_ + "/x", "");
  EXPECT_THAT(files_.RemoveDirectory(folder_), StatusIs(StatusCode::kAlreadyExists, HasSubstr("ENOTEMPTY")));
  for (const std::string& path : {file_, link_}) {
    EXPECT_THAT(files_.RemoveDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
  }
  EXPECT_THAT(files_.RemoveDirectory(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  ASSERT_THAT(files_.RemoveFile(folder_ + "/x"), IsOk());
  EXPECT_THAT(files_.RemoveDirectory(folder_), IsOk());
  EXPECT_THAT(files_.TypeOf(folder_), StatusIs(StatusCode::kNotFound, HasSubstr(folder_)));
}

TEST_P(FileSystemContractTest, AnOpenDirectoryIsSyncedWhateverItsName) {
  const auto directory = files_.OpenDirectory(folder_);
  ASSERT_THAT(directory, IsOk());
  EXPECT_THAT((*directory)->Sync(), IsOk());
  ASSERT_THAT(files_.Rename(folder_, none_), IsOk());
  EXPECT_THAT((*directory)->Sync(), IsOk());
  EXPECT_THAT(files_.OpenDirectory(folder_), StatusIs(StatusCode::kNotFound, HasSubstr(folder_)));
  for (const std::string& path : {file_, link_}) {
    EXPECT_THAT(files_.OpenDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path)));
  }
}

TEST_P(FileSystemContractTest, SyncDirectorySyncsDirectoriesAlone) {
  EXPECT_THAT(files_.SyncDirectory(folder_), IsOk());
  EXPECT_THAT(files_.SyncDirectory(none_), StatusIs(StatusCode::kNotFound, HasSubstr(none_)));
  for (const std::string& path : {file_, link_}) {
    EXPECT_THAT(files_.SyncDirectory(path), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path)));
  }
}

TEST_P(FileSystemContractTest, NewIoQueueRefusesDepthsOutOfRange) {
  for (const size_t depth : {size_t{0}, size_t{257}}) {
    EXPECT_THAT(
        files_.NewIoQueue(IoQueueKind::kAuto, depth),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("depth " + std::to_string(depth) + ": it must be 1 to 256")));
  }
  for (const size_t depth : {size_t{1}, size_t{256}}) {
    auto queue = files_.NewIoQueue(IoQueueKind::kAuto, depth);
    ASSERT_THAT(queue, IsOk());
    EXPECT_EQ((*queue)->depth(), depth);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FileSystemContractTest, ContractKinds(), ContractKindName);

}  // namespace
}  // namespace tidemark::storage
