#include "examples/char_lm/text.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace char_lm {
namespace {

using ::testing::HasSubstr;

// Tests run at the same time, each in a process of its own.
std::string WriteFile(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + "-" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Text, NumbersTheDistinctCharactersInAscendingOrder) {
  const auto text = Text::Read(WriteFile("banana.txt", "banana\xff"), TextPart::kTraining, 1);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->vocabulary(), "abn\xff");
  EXPECT_EQ(text->length(), 7);
}

TEST(Text, DrawsTargetsThatFollowTheirInputs) {
  const auto text = Text::Read(WriteFile("digits.txt", "0123456789a"), TextPart::kTraining, 1);
  ASSERT_TRUE(text.ok()) << text.status();
  at::manual_seed(7);
  const Batch batch = text->Draw(/*batch=*/50, /*context=*/9);
  EXPECT_EQ(batch.input.sizes(), (std::vector<int64_t>{50, 9}));
  EXPECT_TRUE(batch.target.equal(batch.input + 1)) << "in a text of ascending digits the next character is one more";
  EXPECT_EQ(batch.target.max().item<int64_t>(), 9) << "the last character is reached";
}

TEST(Text, DrawsTheSameBatchFromTheSameGeneratorState) {
  const auto text = Text::Read(WriteFile("digits.txt", "0123456789a"), TextPart::kTraining, 1);
  ASSERT_TRUE(text.ok()) << text.status();
  at::manual_seed(7);
  const Batch first = text->Draw(20, 3);
  const Batch second = text->Draw(20, 3);
  at::manual_seed(7);
  EXPECT_TRUE(text->Draw(20, 3).input.equal(first.input));
  EXPECT_FALSE(first.input.equal(second.input));
}

TEST(Text, HoldsOutTheLastTenthAndNumbersItAlike) {
  const std::string path = WriteFile("held_out.txt", std::string(27, 'b') + "xya");
  const auto training = Text::Read(path, TextPart::kTraining, 1);
  const auto held_out = Text::Read(path, TextPart::kHeldOut, 1);
  ASSERT_TRUE(training.ok()) << training.status();
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_EQ(training->length(), 27);
  EXPECT_EQ(held_out->length(), 3);
  EXPECT_EQ(training->vocabulary(), "abxy");
  EXPECT_EQ(held_out->vocabulary(), "abxy");
  EXPECT_TRUE(training->Draw(100, 26).target.eq(1).all().item<bool>()) << "nothing that is held out is drawn";
  const std::vector<Batch> batches = held_out->Walk(8, 2);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_TRUE(batches[0].input.equal(torch::tensor({{2, 3}}, torch::kInt64)));
  EXPECT_TRUE(batches[0].target.equal(torch::tensor({{3, 0}}, torch::kInt64)));
}

TEST(Text, WalksThroughAllWindowsInOrder) {
  const auto text = Text::Read(WriteFile("walk.txt", "01234567"), TextPart::kTraining, 1);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::vector<Batch> batches = text->Walk(/*batch=*/2, /*context=*/2);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].input.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(batches[1].input.sizes(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(batches[1].input.equal(torch::tensor({{4, 5}}, torch::kInt64)));
  EXPECT_TRUE(batches[1].target.equal(torch::tensor({{5, 6}}, torch::kInt64)));
}

TEST(Text, RefusesATextWithTooLittleToValidateWith) {
  const auto text = Text::Read(WriteFile("short.txt", "0123456789"), TextPart::kHeldOut, 4);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()),
              HasSubstr("expected at least 4 characters to validate with, found 1"));
}

TEST(Text, RefusesAFileThatIsNotThere) {
  const auto text = Text::Read("/no/such/text", TextPart::kTraining, 1);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("/no/such/text"));
}

TEST(Text, RefusesAFileShorterThanAWindow) {
  const auto text = Text::Read(WriteFile("short.txt", "abc"), TextPart::kTraining, 4);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("expected at least 4 characters to train on, found 3"));
}

}  // namespace
}  // namespace char_lm
