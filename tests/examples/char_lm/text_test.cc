#include "examples/char_lm/text.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace char_lm {
namespace {

using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Text, NumbersTheDistinctCharactersInAscendingOrder) {
  const auto text = Text::Read(WriteFile("banana.txt", "banana\xff"), 1);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->vocabulary(), "abn\xff");
  EXPECT_EQ(text->length(), 7);
}

TEST(Text, DrawsTargetsThatFollowTheirInputs) {
  const auto text = Text::Read(WriteFile("digits.txt", "0123456789"), 1);
  ASSERT_TRUE(text.ok()) << text.status();
  at::manual_seed(7);
  const Batch batch = text->Draw(/*batch=*/50, /*context=*/9);
  EXPECT_EQ(batch.input.sizes(), (std::vector<int64_t>{50, 9}));
  EXPECT_TRUE(batch.target.equal(batch.input + 1)) << "in a text of ascending digits the next character is one more";
  EXPECT_EQ(batch.target.max().item<int64_t>(), 9) << "the last character is reached";
}

TEST(Text, DrawsTheSameBatchFromTheSameGeneratorState) {
  const auto text = Text::Read(WriteFile("digits.txt", "0123456789"), 1);
  ASSERT_TRUE(text.ok()) << text.status();
  at::manual_seed(7);
  const Batch first = text->Draw(20, 3);
  const Batch second = text->Draw(20, 3);
  at::manual_seed(7);
  EXPECT_TRUE(text->Draw(20, 3).input.equal(first.input));
  EXPECT_FALSE(first.input.equal(second.input));
}

TEST(Text, RefusesAFileThatIsNotThere) {
  const auto text = Text::Read("/no/such/text", 1);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("/no/such/text"));
}

TEST(Text, RefusesAFileShorterThanAWindow) {
  const auto text = Text::Read(WriteFile("short.txt", "abc"), 4);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("expected at least 4 characters, found 3"));
}

}  // namespace
}  // namespace char_lm
