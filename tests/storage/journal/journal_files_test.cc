#include "storage/journal/journal_files.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class JournalFilesTest : public testing::Test {
 protected:
  JournalFilesTest() { EXPECT_THAT(disk_.CreateDirectory("/journal"), IsOk()); }
  void Put(const std::string& path) { EXPECT_THAT(disk_.Create(path, /*direct=*/false), IsOk()); }

  SimulatedDisk disk_;
  JournalFiles files_{disk_, "/journal"};
};

TEST_F(JournalFilesTest, ANumberHasOnePlace) {
  EXPECT_EQ(files_.PathOf(1), "/journal/0000/00/0000000001");
  EXPECT_EQ(files_.PathOf(64), "/journal/0000/00/0000000064");
  EXPECT_EQ(files_.PathOf(65), "/journal/0000/01/0000000065");
  EXPECT_EQ(files_.PathOf(4096), "/journal/0000/63/0000004096");
  EXPECT_EQ(files_.PathOf(4097), "/journal/0001/00/0000004097");
  EXPECT_EQ(files_.PathOf(40'960'001), "/journal/10000/00/0040960001");
  EXPECT_EQ(LastOfFolder(64), 64u);
  EXPECT_EQ(LastOfFolder(65), 128u);
}

TEST_F(JournalFilesTest, TheHighestNumberIsFoundBehindFoldersThatHaveNone) {
  EXPECT_EQ(*files_.Highest(), 0u);
  for (const EntryNumber number : {1, 65, 129, 4097}) ASSERT_THAT(files_.MakeFolder(number), IsOk());
  EXPECT_EQ(*files_.Highest(), 0u);
  EXPECT_EQ(*files_.HighestAfter(0), 0u);
  Put(files_.PathOf(3));
  EXPECT_EQ(*files_.Highest(), 3u) << "the folders made ahead have none";
  // A power loss may take all names of a folder.
  Put(files_.PathOf(130));
  EXPECT_EQ(*files_.Highest(), 130u);
  EXPECT_EQ(*files_.HighestAfter(128), 130u);
  Put(files_.PathOf(70));
  EXPECT_EQ(*files_.HighestAfter(2), 130u);
  ASSERT_THAT(disk_.RemoveFile(files_.PathOf(3)), IsOk());
  EXPECT_EQ(*files_.HighestAfter(2), 130u) << "the first folder has none";
}

TEST_F(JournalFilesTest, OtherNamesAreNoNumbers) {
  ASSERT_THAT(files_.MakeFolder(1), IsOk());
  for (const char* name : {"0000000065", "00000000002", "2", "0000000002x", "new-0000000002"}) {
    Put(std::string("/journal/0000/00/") + name);
  }
  ASSERT_THAT(disk_.CreateDirectory("/journal/other"), IsOk());
  ASSERT_THAT(disk_.CreateDirectory("/journal/0000/64"), IsOk());
  // There is no number for what is in it.
  ASSERT_THAT(disk_.CreateDirectory("/journal/18446744073709551615"), IsOk());
  ASSERT_THAT(disk_.CreateDirectory("/journal/18446744073709551615/00"), IsOk());
  Put("/journal/0001");
  EXPECT_EQ(*files_.Highest(), 0u);
}

// What is behind a link must not be taken for missing.
TEST(JournalFilesOnDiskTest, ALinkInThePlaceOfAFolderIsAnError) {
  const TestDirectory directory;
  const std::string journal = directory / "journal";
  ASSERT_THAT(PosixFileSystem().CreateDirectory(journal), IsOk());
  JournalFiles files(PosixFileSystem(), journal);
  ASSERT_THAT(files.MakeFolder(1), IsOk());
  EXPECT_EQ(*files.Highest(), 0u);
  for (const std::string& folder : {files.FolderOf(1), files.UpperFolderOf(1)}) {
    const std::string elsewhere = directory / "elsewhere";
    std::filesystem::rename(folder, elsewhere);
    std::filesystem::create_directory_symlink(elsewhere, folder);
    EXPECT_THAT(files.Highest().status(), StatusIs(absl::StatusCode::kFailedPrecondition, testing::_)) << folder;
    std::filesystem::remove(folder);
    std::filesystem::rename(elsewhere, folder);
  }
}

TEST_F(JournalFilesTest, AFileThatIsTooLongIsNotRead) {
  ASSERT_THAT(files_.MakeFolder(1), IsOk());
  EXPECT_EQ(*files_.Read(1), std::nullopt);
  auto file = disk_.Create(files_.PathOf(1), /*direct=*/false);
  ASSERT_THAT((*file)->Truncate(kEntryFileBytesMax + 1), IsOk());
  EXPECT_THAT(files_.Read(1),
              StatusIs(StatusCode::kDataLoss, HasSubstr("journal entry 1: /journal/0000/00/0000000001 has")));
}

}  // namespace
}  // namespace tidemark::storage
