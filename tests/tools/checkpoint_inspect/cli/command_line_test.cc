#include "tools/checkpoint_inspect/cli/command_line.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AddTextsTest : public testing::Test {
 protected:
  AddTextsTest() {
    command_->fallthrough();
    app_.add_flag("--flag", flag_);
    AddTexts(command_, "NAME", names_, "Names");
    AddTexts(command_, "--option", options_, "Another name");
  }

  // CLI11 takes them from the end.
  void Parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app_.parse(words);
  }

  CLI::App app_{"Does things.", "program"};
  CLI::App* const command_ = app_.add_subcommand("command");
  std::vector<std::string> names_;
  std::vector<std::string> options_;
  bool flag_ = false;
};

TEST_F(AddTextsTest, TakesATextInBracketsAsItIs) {
  Parse({"command", "[a,b]", "[]", "--option", "[c,d]", "[ef]*", "--option=[g]", "h"});
  EXPECT_THAT(names_, ElementsAre("[a,b]", "[]", "[ef]*", "h"));
  EXPECT_THAT(options_, ElementsAre("[c,d]", "[g]"));
}

TEST_F(AddTextsTest, GivesAnOptionOneValueEachTime) {
  Parse({"command", "--option", "a", "b", "--flag", "c", "--option", "d"});
  EXPECT_THAT(names_, ElementsAre("b", "c"));
  EXPECT_THAT(options_, ElementsAre("a", "d"));
  EXPECT_TRUE(flag_);
}

TEST_F(AddTextsTest, TakesAllArgumentsBehindTwoDashes) {
  Parse({"command", "a", "--", "-b", "--flag", "[c]"});
  EXPECT_THAT(names_, ElementsAre("a", "-b", "--flag", "[c]"));
  EXPECT_FALSE(flag_);
}

TEST_F(AddTextsTest, NeedsNoneUnlessOneIsRequired) {
  Parse({"command"});
  EXPECT_THAT(names_, IsEmpty());
  EXPECT_THAT(options_, IsEmpty());
  command_->get_option("NAME")->required();
  EXPECT_THROW(Parse({"command", "--option", "a"}), CLI::RequiredError);
  Parse({"command", "--option", "a", "b"});
  EXPECT_THAT(names_, ElementsAre("b"));
}

TEST_F(AddTextsTest, LooksAtEachOfThem) {
  const auto check = [](const std::string& text) { return text.empty() ? "it is empty" : ""; };
  command_->get_option("NAME")->check(check);
  EXPECT_THROW(Parse({"command", "a", ""}), CLI::ValidationError);
}

}  // namespace
}  // namespace tidemark::inspect
