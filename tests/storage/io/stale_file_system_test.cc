#include "tests/storage/io/stale_file_system.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

class StaleFileSystemTest : public testing::Test {
 protected:
  StaleFileSystemTest() {
    EXPECT_THAT(server_.CreateDirectory("/d"), IsOk());
    PutFile(server_, "/d/old", "1");
  }

  static std::vector<std::string> NamesIn(FileSystem& files, const std::string& directory) {
    std::vector<std::string> names;
    const std::vector<DirectoryEntry> entries = files.ListDirectory(directory).value();
    for (const DirectoryEntry& entry : entries) names.push_back(entry.name);
    return names;
  }

  size_t age_ = 2;
  SimulatedDisk server_;
  const std::unique_ptr<FileSystem> client_ = server_.NewClient();
  StaleFileSystem files_{*client_, [this](const std::string&) { return age_; }, "/d/fresh"};
};

TEST_F(StaleFileSystemTest, ListsADirectoryAsItWas) {
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  PutFile(server_, "/d/new", "2");
  ASSERT_THAT(server_.RemoveFile("/d/old"), IsOk());
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("new"));
}

TEST_F(StaleFileSystemTest, FindsNoNameThatTheOldListingLacks) {
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  PutFile(server_, "/d/new", "2");
  EXPECT_THAT(files_.TypeOf("/d/new"), StatusIs(StatusCode::kNotFound, HasSubstr("/d/new")));
  EXPECT_THAT(files_.OpenForRead("/d/new", false), StatusIs(StatusCode::kNotFound, HasSubstr("/d/new")));
  EXPECT_THAT(files_.OpenForRead("/d/new", false), IsOk());
  ASSERT_THAT(server_.CreateDirectory("/d/below"), IsOk());
  EXPECT_THAT(files_.ListDirectory("/d/below"), StatusIs(StatusCode::kNotFound, HasSubstr("/d/below")));
  EXPECT_THAT(NamesIn(files_, "/"), ElementsAre("d"));
  EXPECT_THAT(files_.TypeOf("/"), IsOk());
}

TEST_F(StaleFileSystemTest, OpensWhatIsThereWithItsPresentContents) {
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  ASSERT_THAT(server_.RemoveFile("/d/old"), IsOk());
  PutFile(server_, "/d/old", "2");
  EXPECT_EQ(*ReadSmallFile(files_, "/d/old", 10), "2");
  ASSERT_THAT(server_.RemoveFile("/d/old"), IsOk());
  EXPECT_THAT(files_.OpenForRead("/d/old", false), StatusIs(StatusCode::kNotFound, HasSubstr("/d/old")));
}

TEST_F(StaleFileSystemTest, KnowsADirectoryThatItChanges) {
  age_ = 100;
  const std::vector<std::function<absl::Status()>> changes = {
      [&] { return files_.Create("/d/a", false).status(); },
      [&] { return files_.CreateReadable("/d/b").status(); },
      [&] { return files_.CreateDirectory("/d/c"); },
      [&] { return files_.HardLink("/d/a", "/d/d"); },
      [&] { return files_.Rename("/d/a", "/d/e"); },
      [&] { return files_.RenameToNew("/d/b", "/d/f"); },
      [&] { return files_.RemoveFile("/d/e"); },
      [&] { return files_.RemoveDirectory("/d/c"); },
      [&] { return files_.TryLock("/d/lock").status(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    NamesIn(files_, "/d");
    const std::string other = "/d/other" + std::to_string(i);
    PutFile(server_, other, "");
    EXPECT_THAT(files_.TypeOf(other), StatusIs(StatusCode::kNotFound, HasSubstr(other)));
    ASSERT_THAT(changes[i](), IsOk()) << i;
    EXPECT_THAT(files_.TypeOf(other), IsOk()) << i;
    EXPECT_EQ(NamesIn(files_, "/d"), NamesIn(server_, "/d")) << i;
  }
}

TEST_F(StaleFileSystemTest, TheServerDecidesWhoHasAName) {
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old"));
  PutFile(server_, "/d/new", "2");
  const auto taken = StatusIs(StatusCode::kAlreadyExists, HasSubstr("/d/new"));
  EXPECT_THAT(files_.Create("/d/new", false), taken);
  EXPECT_THAT(files_.RenameToNew("/d/old", "/d/new"), taken);
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("old")) << "a change that fails tells nothing";
}

TEST_F(StaleFileSystemTest, ALockFileThatIsThereChangesNoName) {
  PutFile(server_, "/d/lock", "");
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("lock", "old"));
  PutFile(server_, "/d/new", "2");
  EXPECT_THAT(files_.TryLock("/d/lock"), IsOk());
  EXPECT_THAT(NamesIn(files_, "/d"), ElementsAre("lock", "old"));
}

TEST_F(StaleFileSystemTest, IsNeverOldWhereItIsAskedNotToBe) {
  ASSERT_THAT(server_.CreateDirectory("/d/fresh"), IsOk());
  for (int i = 0; i < 3; ++i) {
    const std::string path = "/d/fresh/" + std::to_string(i);
    EXPECT_THAT(files_.TypeOf(path), StatusIs(StatusCode::kNotFound, HasSubstr(path)));
    PutFile(server_, path, "");
    EXPECT_THAT(files_.TypeOf(path), IsOk());
    EXPECT_THAT(files_.OpenForRead(path, false), IsOk());
    EXPECT_EQ(NamesIn(files_, "/d/fresh").size(), i + 1u);
  }
}

}  // namespace
}  // namespace tidemark::storage
