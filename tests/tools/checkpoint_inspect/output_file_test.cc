#include "tools/checkpoint_inspect/output_file.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
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

TEST_F(OutputFileTest, IsNeverStandardOutputForAnyCommand) {
  TestStore run;
  run.Save({1});
  for (const std::vector<std::string>& command : {std::vector<std::string>{"export", "1"},
                                                  {"export", "1", "--format", "raw"},
                                                  {"report", "--no-tensors"},
                                                  {"trace", "1"}}) {
    SCOPED_TRACE(testing::PrintToString(command));
    const auto write_to = [&](const std::string& path) {
      std::vector<std::string> arguments = {"--store", run.directory()};
      arguments.insert(arguments.end(), command.begin(), command.end());
      arguments.insert(arguments.end(), {"-o", path});
      return RunInspect(arguments, {.directory = folder_});
    };
    const std::string begin = "checkpoint-inspect: error: --output: ";
    const std::string end = "; see 'checkpoint-inspect " + command[0] + " --help'\n";
    const Finished dash = write_to("-");
    EXPECT_EQ(dash.exit_code, 2);
    EXPECT_EQ(dash.err, begin + "nothing is written to standard output; './-' is the file of that name" + end);
    const Finished empty = write_to("");
    EXPECT_EQ(empty.exit_code, 2);
    EXPECT_EQ(empty.err, begin + "an empty path names no file" + end);
    EXPECT_EQ(Names(), 0);
    const Finished file = write_to("./-");
    EXPECT_EQ(file.exit_code, 0) << file.err;
    EXPECT_TRUE(fs::exists(folder_ + "/-"));
    fs::remove_all(folder_ + "/-");
  }
}

TEST_F(OutputFileTest, RefusesPlacesThatAreNone) {
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create("/dev/null", /*replace=*/true).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(OutputFile::Create(folder_, /*replace=*/true).status()));
  EXPECT_TRUE(absl::IsNotFound(OutputFile::Create(folder_ + "/none/file", /*replace=*/false).status()));
}

}  // namespace
}  // namespace tidemark::inspect
