#include "storage/records/tag.h"

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckTag, TakesNamesOfPlainCharacters) {
  for (const std::string& name : {std::string("a"), std::string("v1.0"), std::string("paper/figure-3_b"),
                                  std::string("0"), std::string("."), std::string(kTagBytesMax, 'Z')}) {
    EXPECT_THAT(CheckTag(name), IsOk()) << name;
  }
}

TEST(CheckTag, SaysWhatIsWrongWithOthers) {
  const auto expect = [](const std::string& name, const std::string& why) {
    EXPECT_THAT(CheckTag(name), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why))) << name;
  };
  expect("", "a tag is empty");
  expect(std::string(kTagBytesMax + 1, 'a'), "a tag has 129 bytes; at most 128");
  expect("-v1", "tag '-v1' begins with '-'");
  for (const std::string& name : {std::string("a b"), std::string("a:b"), std::string("größe"), std::string("a\n"),
                                  std::string("a\0b", 3), std::string("a\xff")}) {
    expect(name, "has a character other than letters, digits");
  }
  expect("\x1b[2J", "tag '\\x1b[2J'");
}

TEST(CheckTags, WantsThemSortedAndEachOnce) {
  EXPECT_THAT(CheckTags({}), IsOk());
  EXPECT_THAT(CheckTags({"a", "b"}), IsOk());
  for (const std::vector<std::string>& tags : {std::vector<std::string>{"b", "a"}, {"a", "a"}}) {
    EXPECT_THAT(CheckTags(tags), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not in ascending order")));
  }
  EXPECT_THAT(CheckTags({"a", "b c"}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tag 'b c'")));
}

TEST(CheckTags, WantsNoMoreThanThereMayBe) {
  std::vector<std::string> tags;
  for (size_t i = 0; i < kTagsPerStepMax; ++i) tags.push_back(fmt::format("{:03}", i));
  EXPECT_THAT(CheckTags(tags), IsOk());
  tags.push_back("x");
  EXPECT_THAT(CheckTags(tags), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65 tags; at most 64")));
}

TEST(Tags, StaySortedWhereNamesComeAndGo) {
  std::vector<std::string> tags;
  for (const char* name : {"m", "a", "z"}) EXPECT_TRUE(AddTag(tags, name));
  EXPECT_FALSE(AddTag(tags, "a"));
  EXPECT_FALSE(AddTag(tags, "no name"));
  EXPECT_THAT(tags, ElementsAre("a", "m", "z"));
  EXPECT_TRUE(HasTag(tags, "m"));
  EXPECT_TRUE(RemoveTag(tags, "m"));
  EXPECT_FALSE(RemoveTag(tags, "m"));
  EXPECT_FALSE(HasTag(tags, "m"));
  EXPECT_THAT(tags, ElementsAre("a", "z"));
}

TEST(Tags, AreNoMoreThanThereMayBe) {
  std::vector<std::string> tags;
  for (size_t i = 0; i < kTagsPerStepMax; ++i) ASSERT_TRUE(AddTag(tags, fmt::format("{}", i)));
  EXPECT_FALSE(AddTag(tags, "one-more"));
  EXPECT_THAT(CheckTags(tags), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
