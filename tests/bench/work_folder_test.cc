#include "bench/work_folder.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::bench {
namespace {

namespace fs = std::filesystem;
using ::tidemark::storage::IsOk;

TEST(WorkFolder, IsMadeWithItsParentsAndRemovedWithAllThatIsInIt) {
  const storage::TestDirectory parent;
  std::string path;
  {
    absl::StatusOr<WorkFolder> folder = WorkFolder::Create(parent.path() + "/a/b");
    ASSERT_THAT(folder, IsOk());
    path = folder->path();
    fs::create_directory(path + "/store");
    std::ofstream(path + "/store/file") << "text";
    const WorkFolder moved = *std::move(folder);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(parent.path() + "/a/b"));
}

TEST(WorkFolder, SaysWhereItCannotBeMade) {
  const absl::StatusOr<WorkFolder> folder = WorkFolder::Create("/proc/no/such/folder");
  EXPECT_FALSE(folder.ok());
  EXPECT_THAT(folder.status().message(), testing::HasSubstr("/proc/no/such/folder"));
}

TEST(WorkFolderDeathTest, IsRemovedByASignalThatEndsTheProcess) {
  const storage::TestDirectory parent;
  const auto wait_for_the_signal = [&] {
    const absl::StatusOr<WorkFolder> folder = WorkFolder::Create(parent.path());
    if (!folder.ok()) _exit(1);
    std::ofstream(folder->path() + "/file") << "text";
    WorkFolder::RemoveAllOnSignal();
    kill(getpid(), SIGINT);
    while (true) pause();
  };
  EXPECT_EXIT(wait_for_the_signal(), testing::ExitedWithCode(128 + SIGINT), "ended by signal 2; .* is removed");
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(DropCaches, LeavesTheFilesAsTheyAre) {
  const storage::TestDirectory folder;
  std::ofstream(folder.path() + "/file") << "text";
  ASSERT_THAT(DropCaches(folder.path()), IsOk());
  std::string text;
  std::ifstream(folder.path() + "/file") >> text;
  EXPECT_EQ(text, "text");
}

TEST(DropCaches, SaysWhichFolderIsNotThere) {
  EXPECT_THAT(DropCaches("/no/such/folder").message(), testing::HasSubstr("/no/such/folder"));
}

TEST(SyncFileSystem, SaysWhichPathIsNotThere) {
  EXPECT_THAT(SyncFileSystem("/"), IsOk());
  EXPECT_EQ(SyncFileSystem("/no/such/folder").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidemark::bench
