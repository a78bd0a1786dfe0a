#include "snapshot/exchange/output_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "storage/io/unique_fd.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteWhole(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

class OutputFileTest : public testing::Test {
 protected:
  size_t Names() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const storage::TestDirectory directory_;
  const std::string folder_ = directory_.path();
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

TEST_F(OutputFileTest, GivesANameWhereTheKernelCannotLook) {
  for (const bool kernel_looks : {true, false}) {
    SCOPED_TRACE(kernel_looks);
    WriteWhole(folder_ + "/a", "a");
    WriteWhole(folder_ + "/b", "b");
    EXPECT_TRUE(absl::IsAlreadyExists(NameAnew(folder_ + "/a", folder_ + "/b", kernel_looks)));
    EXPECT_EQ(ReadWhole(folder_ + "/b"), "b");
    EXPECT_TRUE(NameAnew(folder_ + "/a", folder_ + "/c", kernel_looks).ok());
    EXPECT_EQ(ReadWhole(folder_ + "/c"), "a");
    EXPECT_FALSE(fs::exists(folder_ + "/a"));
    fs::create_directory(folder_ + "/d");
    EXPECT_TRUE(absl::IsAlreadyExists(NameAnew(folder_ + "/d", folder_ + "/b", kernel_looks)));
    EXPECT_TRUE(NameAnew(folder_ + "/d", folder_ + "/e", kernel_looks).ok());
    EXPECT_TRUE(fs::is_directory(folder_ + "/e"));
    EXPECT_TRUE(absl::IsNotFound(NameAnew(folder_ + "/d", folder_ + "/f", kernel_looks)));
    for (const char* name : {"/b", "/c", "/e"}) fs::remove(folder_ + name);
  }
}

TEST_F(OutputFileTest, RemovesWhatAKilledProcessHasLeft) {
  const std::string digits = "0123456789abcdef0123456789abcdef";
  const std::string left = folder_ + "/.file." + digits;
  WriteWhole(left, "half");
  for (const char* other : {"/.file.x", "/.other.", "/file.", "/.file.x."}) WriteWhole(folder_ + other + digits, "");
  fs::create_directory(folder_ + "/.file.0000000000000000000000000000000f");
  const size_t others = Names() - 1;
  {
    const storage::UniqueFd live(open(left.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(flock(live.get(), LOCK_EX), 0);
    EXPECT_TRUE(OutputFile::Create(path_, /*replace=*/true).ok());
    EXPECT_TRUE(fs::exists(left)) << "its process lives";
  }
  auto file = OutputFile::Create(path_, /*replace=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(Names(), others);
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(Names(), others + 1);
}

TEST_F(OutputFileTest, RefusesPlacesThatAreNone) {
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create("/dev/null", /*replace=*/true).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create(folder_, /*replace=*/true).status()));
  EXPECT_TRUE(absl::IsNotFound(OutputFile::Create(folder_ + "/none/file", /*replace=*/false).status()));
}

}  // namespace
}  // namespace tidemark
