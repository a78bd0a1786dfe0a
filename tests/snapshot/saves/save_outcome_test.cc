#include "snapshot/saves/save_outcome.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

SaveOutcome Outcome() {
  SaveOutcome outcome;
  outcome.step = 1200;
  outcome.held.total = absl::Microseconds(12'300);
  outcome.held.copy = absl::Microseconds(12'100);
  outcome.behind = absl::Milliseconds(840);
  outcome.write = absl::Milliseconds(820);
  outcome.commit = absl::Milliseconds(20);
  outcome.info.logical_bytes = uint64_t{2} << 30;
  outcome.info.stored_bytes = (uint64_t{4} << 30) / 3;
  outcome.info.reused_bytes = (uint64_t{4} << 30) / 10;
  return outcome;
}

TEST(SaveLine, OfACommittedSaveHasTimesSizesAndWhatWasLeftOut) {
  SaveOutcome outcome = Outcome();
  outcome.notes = {"validation skipped: lagging"};
  EXPECT_EQ(SaveLine(outcome),
            "step 1200 committed: blocked 12.3 ms (copy 12.1), behind 0.84 s (write 0.82, commit 0.02), "
            "2.00 GiB -> 1.33 GiB (0.67), 409.60 MiB reused; validation skipped: lagging");
}

TEST(SaveLine, NamesEveryPhaseThatHeldTheTrainer) {
  SaveOutcome outcome = Outcome();
  outcome.held = {.total = absl::Milliseconds(60),
                  .consumers = absl::Milliseconds(10),
                  .room = absl::Milliseconds(20),
                  .copy = absl::Milliseconds(30)};
  outcome.info.reused_bytes = 0;
  EXPECT_EQ(SaveLine(outcome),
            "step 1200 committed: blocked 60.0 ms (consumers 10.0, room 20.0, copy 30.0), behind 0.84 s "
            "(write 0.82, commit 0.02), 2.00 GiB -> 1.33 GiB (0.67)");
}

TEST(SaveLine, OfAStateWithoutBytesHasNoRatio) {
  SaveOutcome outcome = Outcome();
  outcome.info = {};
  outcome.info.stored_bytes = 4096;
  EXPECT_THAT(SaveLine(outcome), testing::EndsWith("commit 0.02), 0 bytes -> 4.00 KiB"));
}

TEST(SaveLine, OfAFailedSaveHasTheReason) {
  SaveOutcome outcome = Outcome();
  outcome.status = absl::ResourceExhaustedError("step 1200 was not committed: no space");
  EXPECT_EQ(SaveLine(outcome),
            "step 1200 failed: blocked 12.3 ms (copy 12.1), behind 0.84 s; step 1200 was not committed: no space");
}

TEST(SaveLine, OfASnapshotForEvaluatorsSaysThatItIsNotSaved) {
  SaveOutcome outcome = Outcome();
  outcome.persist = false;
  EXPECT_EQ(SaveLine(outcome), "step 1200 not saved, only evaluated: blocked 12.3 ms (copy 12.1), behind 0.84 s");
}

TEST(SaveLine, OfASkippedSaveHasTheReason) {
  EXPECT_EQ(SkippedSaveLine(3, absl::Milliseconds(1), "no room"), "step 3 skipped: blocked 1.0 ms; no room");
}

}  // namespace
}  // namespace tidemark
