#include "tools/checkpoint_inspect/progress_line.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

TEST(ProgressText, TellsRateAndTimeLeft) {
  EXPECT_EQ(ProgressText("step 1000", uint64_t{1} << 30, uint64_t{4} << 30, absl::Seconds(2)),
            "step 1000: 1.0 GiB of 4.0 GiB (25%), 512.0 MiB/s, 6 s left");
}

TEST(ProgressText, GuessesNothingBeforeTheFirstByte) {
  EXPECT_EQ(ProgressText("step 7", 0, 2048, absl::Seconds(2)), "step 7: 0 B of 2.0 KiB (0%)");
  EXPECT_EQ(ProgressText("step 7", 1024, 2048, absl::ZeroDuration()), "step 7: 1.0 KiB of 2.0 KiB (50%)");
}

TEST(ProgressText, IsDoneWhereThereIsNothingToRead) {
  EXPECT_EQ(ProgressText("step 7", 0, 0, absl::Seconds(1)), "step 7: 0 B of 0 B (100%)");
}

}  // namespace
}  // namespace tidemark::inspect
