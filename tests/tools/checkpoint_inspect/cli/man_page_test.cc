#include "tools/checkpoint_inspect/cli/man_page.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(RoffText, PrintsWhatRoffWouldTakeForItsOwn) {
  EXPECT_EQ(RoffText("a-b"), "a\\-b");
  EXPECT_EQ(RoffText("a\\b"), "a\\(rsb");
  EXPECT_EQ(RoffText(".TH"), "\\&.TH");
  EXPECT_EQ(RoffText("a.\n.b"), "a.\n\\&.b");
  EXPECT_EQ(RoffText("'a'"), "\\&\\(aqa\\(aq");
  EXPECT_EQ(RoffText("`~^"), "\\(ga\\(ti\\(ha");
  EXPECT_EQ(RoffText("$HOME \"x\" 10%"), "$HOME \"x\" 10%");
}

TEST(RoffText, IsAsciiWhateverTheTextIs) { EXPECT_EQ(RoffText("é…😀"), "\\[u00E9]\\[u2026]\\[u1F600]"); }

TEST(ManPage, SaysWhatTheCommandLineSays) {
  CLI::App app("Does things.", "my-program");
  app.footer("\nExamples:\n  my-program run\n  my-program run --fast\n\nThat is all.\n");
  bool fast = false;
  std::string place;
  std::vector<std::string> names;
  CLI::App* run = app.add_subcommand("run", "Run it")->group("Work");
  run->add_flag("-f,--fast", fast, "Hurry");
  run->add_option("--place", place, "Where")->check(CLI::IsMember({"here", "there"}))->default_str("here");
  run->add_option("NAME", names, "Whom");
  app.add_subcommand("secret", "Hidden")->group("");
  const std::string page = ManPage(app, "1.2.3");
  EXPECT_THAT(page, StartsWith(".TH MY-PROGRAM 1 \"\" \"Tidemark 1.2.3\" \"User Commands\"\n"));
  EXPECT_THAT(page, HasSubstr(".SH NAME\nmy\\-program \\- Does things.\n"));
  EXPECT_THAT(page, HasSubstr(".nf\nmy\\-program run\nmy\\-program run \\-\\-fast\n.fi\n.RE\n.PP\nThat is all.\n"));
  EXPECT_THAT(page,
              HasSubstr(".SH COMMANDS: WORK\n.SS \\fBmy\\-program run\\fR [\\fIoptions\\fR] [\\fINAME\\fR...]\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-f\\fR, \\fB\\-\\-fast\\fR\nHurry\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-place\\fR \\fITEXT\\fR\nWhere, one of: here there (by default here)\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST(ManPage, KeepsTheLinesOfALegendThatCommandsBeginWith) {
  CLI::App app("Does things.", "my-program");
  app.add_subcommand("ls", "List")->group("Look")->footer("\n  SIZE   in bytes\n  AGE    in days\nThat is all.\n");
  EXPECT_THAT(ManPage(app, "1.2.3"), HasSubstr(".nf\nSIZE   in bytes\nAGE    in days\n.fi\n.RE\nThat is all.\n"));
}

}  // namespace
}  // namespace tidemark::inspect
