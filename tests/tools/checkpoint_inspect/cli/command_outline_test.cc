#include "tools/checkpoint_inspect/cli/command_outline.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CommandOutlineTest : public testing::Test {
 protected:
  const OptionOutline& OnlyOption() {
    app_.set_help_flag();
    outline_ = Outline(app_);
    return outline_.options.at(0);
  }

  CLI::App app_{"Does things.", "program"};
  std::string text_;
  bool flag_ = false;
  CommandOutline outline_;
};

TEST_F(CommandOutlineTest, HasFlagsWithoutAValue) {
  app_.add_flag("-f,--flag", flag_, "Say more");
  const OptionOutline& flag = OnlyOption();
  EXPECT_THAT(flag.names, ElementsAre("-f", "--flag"));
  EXPECT_FALSE(flag.takes_value());
  EXPECT_FALSE(flag.positional());
  EXPECT_EQ(flag.description, "Say more");
}

TEST_F(CommandOutlineTest, HasTheWordsThatAnOptionTakes) {
  app_.add_option("--format", text_, "Which one")->check(CLI::IsMember({"raw", "npz"}))->default_str("raw");
  const OptionOutline& option = OnlyOption();
  EXPECT_EQ(option.kind, ValueKind::kChoice);
  EXPECT_THAT(option.choices, ElementsAre("raw", "npz"));
  EXPECT_EQ(option.value_name, "TEXT");
  EXPECT_EQ(option.default_value, "raw");
}

TEST_F(CommandOutlineTest, HasTheWordsThatAnOptionTranslates) {
  int number = 0;
  app_.add_option("--level", number)
      ->transform(CLI::CheckedTransformer(std::map<std::string, int>{{"a", 0}, {"b", 1}}));
  EXPECT_THAT(OnlyOption().choices, ElementsAre("a", "b"));
}

TEST_F(CommandOutlineTest, HasTheWordsThatATypeNameConsistsOf) {
  app_.add_option("--sort", text_)->type_name("name|size");
  app_.add_option("--keep", text_)->type_name("KEY|[STEP]");
  app_.set_help_flag();
  const CommandOutline outline = Outline(app_);
  EXPECT_THAT(outline.options.at(0).choices, ElementsAre("name", "size"));
  EXPECT_EQ(outline.options.at(0).value_name, "name|size");
  EXPECT_EQ(outline.options.at(1).kind, ValueKind::kOther);
}

TEST_F(CommandOutlineTest, TellsDirectoriesFilesAndStepsFromOtherValues) {
  app_.add_option("--store", text_)->type_name("DIR");
  app_.add_option("-o,--output", text_)->type_name("FILE");
  app_.add_option("--text", text_)->type_name("TEXT");
  app_.add_option("--from", text_)->check(CLI::ExistingFile);
  MarkAsStep(app_.add_option("STEP", text_)->required()->type_name(""));
  app_.add_option("DIR", text_)->type_name("");
  app_.set_help_flag();
  const CommandOutline outline = Outline(app_);
  ASSERT_EQ(outline.options.size(), 4U);
  EXPECT_EQ(outline.options[0].kind, ValueKind::kDirectory);
  EXPECT_EQ(outline.options[1].kind, ValueKind::kFile);
  EXPECT_EQ(outline.options[2].kind, ValueKind::kOther);
  EXPECT_EQ(outline.options[3].kind, ValueKind::kFile);
  ASSERT_EQ(outline.arguments.size(), 2U);
  EXPECT_EQ(outline.arguments[0].kind, ValueKind::kStep);
  EXPECT_EQ(outline.arguments[0].value_name, "STEP");
  EXPECT_TRUE(outline.arguments[0].required);
  EXPECT_TRUE(outline.arguments[0].positional());
  EXPECT_EQ(outline.arguments[1].kind, ValueKind::kDirectory);
  EXPECT_FALSE(outline.arguments[1].required);
}

TEST_F(CommandOutlineTest, TellsMetricsAndPatternsOfEntriesFromOtherValues) {
  app_.add_option("--keep-best", text_)->type_name("METRIC[:lowest|:highest]");
  app_.add_option("--exclude", text_)->type_name("GLOB");
  app_.add_option("METRIC", text_)->type_name("");
  app_.set_help_flag();
  const CommandOutline outline = Outline(app_);
  EXPECT_EQ(outline.options.at(0).kind, ValueKind::kMetric);
  EXPECT_EQ(outline.options.at(1).kind, ValueKind::kEntry);
  EXPECT_EQ(outline.arguments.at(0).kind, ValueKind::kMetric);
}

TEST_F(CommandOutlineTest, KnowsWhatCanComeMoreThanOnceAndWhatNeedNotComeAtAll) {
  std::vector<std::string> many;
  app_.add_option("NAME", many);
  app_.add_option("--share", text_)->expected(0, 1);
  app_.set_help_flag();
  const CommandOutline outline = Outline(app_);
  EXPECT_TRUE(outline.arguments.at(0).repeated);
  EXPECT_TRUE(outline.options.at(0).takes_value());
  EXPECT_TRUE(outline.options.at(0).value_optional);
  EXPECT_FALSE(outline.options.at(0).repeated);
}

TEST_F(CommandOutlineTest, LeavesOutWhatIsHidden) {
  app_.add_option("--secret", text_)->group("");
  app_.add_subcommand("secret", "Hidden")->group("");
  app_.set_help_flag();
  const CommandOutline outline = Outline(app_);
  EXPECT_THAT(outline.options, IsEmpty());
  EXPECT_THAT(outline.commands, IsEmpty());
}

TEST_F(CommandOutlineTest, NamesCommandsWithinCommandsByBoth) {
  CLI::App* manifest = app_.add_subcommand("manifest", "Look into it")->group("Look");
  manifest->footer("\nExample:\n  program manifest dump\n");
  manifest->add_subcommand("dump", "Print it");
  const CommandOutline outline = Outline(app_);
  std::vector<std::string> names;
  for (const CommandOutline* command : Flatten(outline)) names.push_back(command->name);
  EXPECT_THAT(names, ElementsAre("", "manifest", "manifest dump"));
  EXPECT_EQ(outline.description, "Does things.");
  EXPECT_EQ(outline.commands[0].group, "Look");
  EXPECT_EQ(outline.commands[0].description, "Look into it");
  EXPECT_EQ(outline.commands[0].footer, "Example:\n  program manifest dump");
}

}  // namespace
}  // namespace tidemark::inspect
