#include "tools/checkpoint_inspect/cli/progress_line.h"

#include "gmock/gmock.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(ProgressText, TellsRateAndTimeLeft) {
  EXPECT_EQ(ProgressText("step 1000", kGiB, 4 * kGiB, absl::Seconds(2), 80),
            "step 1000: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left");
}

TEST(ProgressText, GuessesNothingBeforeTheFirstByte) {
  EXPECT_EQ(ProgressText("step 7", 0, 2048, absl::Seconds(2), 80), "step 7: 0 B of 2.0 KiB (0%)");
  EXPECT_EQ(ProgressText("step 7", 1024, 2048, absl::ZeroDuration(), 80), "step 7: 1.0 KiB of 2.0 KiB (50%)");
}

TEST(ProgressText, IsDoneWhereThereIsNothingToRead) {
  EXPECT_EQ(ProgressText("step 7", 0, 0, absl::Seconds(1), 80), "step 7: 0 B of 0 B (100%)");
}

TEST(ProgressText, CutsOffTheNameAndThenLeavesOutTheBytes) {
  const auto text = [](size_t columns_max) {
    return ProgressText("größe.layers.12.weight", kGiB, 4 * kGiB, absl::Seconds(2), columns_max);
  };
  EXPECT_EQ(text(71), "größe.layers.12.weight: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left");
  EXPECT_EQ(text(70), "größe.layers.12.weig…: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left");
  EXPECT_EQ(text(61), "größe.layer…: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left");
  EXPECT_EQ(text(60), "größe.layers.12.weight: 25%, 512.0 MiB/s, 6 s left");
  EXPECT_EQ(text(40), "größe.layer…: 25%, 512.0 MiB/s, 6 s left");
  EXPECT_EQ(text(39), "25%, 512.0 MiB/s, 6 s left");
}

TEST(ProgressText, IsNoWiderThanItMayBeWhileItsFiguresFit) {
  const std::string what(40, 'x');
  for (size_t columns_max = 26; columns_max < 120; ++columns_max) {
    const std::string text = ProgressText(what, kGiB, 4 * kGiB, absl::Seconds(2), columns_max);
    EXPECT_LE(DisplayWidth(text), columns_max) << text;
    EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("25%"), testing::EndsWith(", 512.0 MiB/s, 6 s left")));
  }
}

}  // namespace
}  // namespace tidemark::inspect
