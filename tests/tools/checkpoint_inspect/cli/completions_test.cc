// The completion of a made-up program, which has what the real one may get. shell_pages_test.py completes the real one.

#include "tools/checkpoint_inspect/cli/completions.h"

#include "gmock/gmock.h"
#include "tests/storage/io/child_process.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;
using testing::Not;

class CompletionsTest : public testing::Test {
 protected:
  CompletionsTest() {
    app_.add_option("--store", text_, "Where it's kept")->type_name("DIR");
    CLI::App* exports = app_.add_subcommand("export", "Write [it]: all");
    exports->add_option("-f,--format", text_, "Which")->check(CLI::IsMember({"raw", "npz"}));
    exports->add_option("-o,--output", text_, "Where to")->type_name("FILE");
    exports->add_option("--share", text_, "How much")->expected(0, 1);
    exports->add_option("WHAT", text_, "What")->required()->check(CLI::IsMember({"some", "all"}));
    exports->add_option("FILE", files_, "Into what");
    CLI::App* manifest = app_.add_subcommand("manifest", "The manifest");
    manifest->add_subcommand("dump", "Print it")->add_flag("--raw", flag_, "As it is");
    manifest->add_subcommand("check", "Check it");
    app_.add_subcommand("secret", "Hidden")->group("");
  }

  // What bash completes the last word to, one a line. Runs in the test's folder, which has one file in it.
  std::string Bash(const std::vector<std::string>& words) {
    WriteWhole(folder_.directory() + "/out.bin", "");
    const std::string script = folder_.directory() + "/script";
    WriteWhole(script, BashCompletion(app_));
    std::vector<std::string> arguments = {
        "--norc", "-uc",
        "cd \"$1\"; source ./script; rm script; shift; COMP_WORDS=(my-program \"$@\"); COMP_CWORD=$#; _my_program; "
        "printf '%s\\n' \"${COMPREPLY[@]:-nothing}\"",
        "bash", folder_.directory()};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return storage::InProgram("/bin/bash", arguments);
  }

  const TestStore folder_;
  CLI::App app_{"Does things.", "my-program"};
  std::string text_;
  std::vector<std::string> files_;
  bool flag_ = false;
};

TEST_F(CompletionsTest, BashKnowsCommandsWithinCommands) {
  EXPECT_EQ(Bash({""}), "export\nmanifest\n");
  EXPECT_EQ(Bash({"manifest", ""}), "dump\ncheck\n");
  EXPECT_EQ(Bash({"manifest", "dump", "--r"}), "--raw\n");
  EXPECT_EQ(Bash({"manifest", "--r"}), "nothing\n");
  EXPECT_EQ(Bash({"dump", "--r"}), "nothing\n");
}

TEST_F(CompletionsTest, BashKnowsTheWordsThatAnOptionOrArgumentTakes) {
  EXPECT_EQ(Bash({"export", "--format", ""}), "raw\nnpz\n");
  EXPECT_EQ(Bash({"export", "--format", "=", "r"}), "raw\n");
  EXPECT_EQ(Bash({"export", "--format", "="}), "raw\nnpz\n");
  EXPECT_EQ(Bash({"export", "-f", "n"}), "npz\n");
  EXPECT_EQ(Bash({"export", "--format", "raw", "s"}), "some\n");
  EXPECT_EQ(Bash({"export", "--share", "a"}), "all\n");
  EXPECT_EQ(Bash({"manifest", "--format", "r"}), "nothing\n");
}

TEST_F(CompletionsTest, BashKnowsFiles) {
  EXPECT_EQ(Bash({"export", "-o", "o"}), "out.bin\n");
  EXPECT_EQ(Bash({"export", "all", ""}), "out.bin\n");
  EXPECT_EQ(Bash({"export", "all", "out.bin", "o"}), "out.bin\n");
  EXPECT_EQ(Bash({"--store", "o"}), "nothing\n");
}

TEST_F(CompletionsTest, ZshGetsWhatItsOwnMarksNeed) {
  const std::string script = ZshCompletion(app_);
  EXPECT_THAT(script, HasSubstr("#compdef my-program\n"));
  EXPECT_THAT(script, HasSubstr("'--store=[Where it'\\''s kept]:DIR:_directories'"));
  EXPECT_THAT(script, HasSubstr("'export:Write \\[it\\]\\: all'"));
  EXPECT_THAT(script, HasSubstr("'-f+[Which]:TEXT:(raw npz)'"));
  EXPECT_THAT(script, HasSubstr("'--share=-[How much]::TEXT: '"));
  EXPECT_THAT(script, HasSubstr("':WHAT:(some all)'"));
  EXPECT_THAT(script, HasSubstr("'*:FILE:_files'"));
  EXPECT_THAT(script, HasSubstr("_my-program__manifest__dump() {"));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

TEST_F(CompletionsTest, FishGetsWhatItsOwnMarksNeed) {
  const std::string script = FishCompletion(app_);
  EXPECT_THAT(
      script,
      HasSubstr("complete -c my-program -l store -x -a '(__fish_complete_directories)' -d 'Where it\\'s kept'\n"));
  EXPECT_THAT(script,
              HasSubstr("complete -c my-program -n '__my_program_at \"export\"' -s f -l format -x -a 'raw npz'"));
  EXPECT_THAT(script, HasSubstr("complete -c my-program -n '__my_program_at \"export\"' -s o -l output -r -F -d"));
  EXPECT_THAT(script, HasSubstr("complete -c my-program -n '__my_program_at \"manifest\"' -a dump -d 'Print it'\n"));
  EXPECT_THAT(script, HasSubstr("            case 'manifest dump'\n                set command 'manifest dump'\n"));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tidemark::inspect
