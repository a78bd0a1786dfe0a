#include "tools/checkpoint_inspect/cli/output_path.h"

#include <filesystem>
#include <iterator>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

TEST(OutputPath, IsNeverStandardOutputForAnyCommand) {
  TestStore outside;
  fs::create_directories(outside.directory());
  const std::string folder = outside.directory();
  const auto files = [&] { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); };
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
      return RunInspect(arguments, {.directory = folder});
    };
    const std::string begin = "checkpoint-inspect: error: --output: ";
    const std::string end = "; see 'checkpoint-inspect " + command[0] + " --help'\n";
    const Finished dash = write_to("-");
    EXPECT_EQ(dash.exit_code, 2);
    EXPECT_EQ(dash.err, begin + "cannot write to standard output; './-' is a file of that name" + end);
    const Finished empty = write_to("");
    EXPECT_EQ(empty.exit_code, 2);
    EXPECT_EQ(empty.err, begin + "an empty path names no file" + end);
    EXPECT_EQ(files(), 0);
    const Finished file = write_to("./-");
    EXPECT_EQ(file.exit_code, 0) << file.err;
    EXPECT_TRUE(fs::exists(folder + "/-"));
    fs::remove_all(folder + "/-");
  }
}

}  // namespace
}  // namespace tidemark::inspect
