#include "tools/checkpoint_inspect/output_file.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  size_t Names() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  TestStore store_;  // a folder that is removed afterwards
  const std::string folder_ = [this] {
    fs::create_directories(store_.directory() + "/out");
    return store_.directory() + "/out";
  }();
  const std::string path_ = folder_ + "/file";
};

TEST_F(OutputFileTest, IsThereOnceItIsCommitted) {
  auto file = OutputFile::Create(path_, /*replace=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write("....tail").ok());
  ASSERT_TRUE((*file)->WriteAt(0, std::as_bytes(std::span("head", 4))).ok());
  EXPECT_EQ(Names(), 0);
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadWhole(path_), "headtail");
  file->reset();
  EXPECT_EQ(Names(), 1);
}

TEST_F(OutputFileTest, LeavesNothingWhereItIsNotCommitted) {
  auto file = OutputFile::Create(path_, /*replace=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write("half").ok());
  file->reset();
  EXPECT_EQ(Names(), 0);
}

TEST_F(OutputFileTest, ReplacesOnlyWhereItIsToldTo) {
  WriteWhole(path_, "old");
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create(path_, /*replace=*/false).status()));
  auto file = OutputFile::Create(path_, /*replace=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write("new").ok());
  EXPECT_EQ(ReadWhole(path_), "old");
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadWhole(path_), "new");
  file->reset();
  EXPECT_EQ(Names(), 1);
}

TEST_F(OutputFileTest, DoesNotReplaceWhatHasComeMeanwhile) {
  auto file = OutputFile::Create(path_, /*replace=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  WriteWhole(path_, "theirs");
  EXPECT_TRUE(absl::IsAlreadyExists((*file)->Commit()));
  file->reset();
  EXPECT_EQ(ReadWhole(path_), "theirs");
  EXPECT_EQ(Names(), 1);
}

TEST_F(OutputFileTest, RefusesPlacesThatAreNone) {
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create(folder_, /*replace=*/true).status()));
  EXPECT_TRUE(absl::IsNotFound(OutputFile::Create(folder_ + "/none/file", /*replace=*/false).status()));
}

}  // namespace
}  // namespace tidemark::inspect
