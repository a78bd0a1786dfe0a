#include "tests/crash/oracle.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::crash {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Oracle After(const std::vector<std::string>& marks) {
  Oracle oracle;
  for (const std::string& mark : marks) oracle.Hear(mark);
  return oracle;
}

SeenStep Step(int64_t step, int64_t content, Metrics metrics = {}) {
  metrics["loss"] = LossOf(step, content);
  return {.step = step, .metrics = metrics, .content = content};
}

// A store with these steps, the last of which is the latest.
Seen Store(std::vector<SeenStep> steps) {
  Seen seen;
  if (steps.empty()) {
    seen.found_latest = seen.restored_latest = absl::NotFoundError("nothing");
  } else {
    seen.latest = seen.restored_step = steps.back().step;
    seen.restored_content = steps.back().content;
  }
  seen.steps = std::move(steps);
  return seen;
}

SeenStep Gone(int64_t step, StepState state) {
  return {.step = step, .state = state, .restored = absl::NotFoundError("not committed")};
}

TEST(Oracle, WantsAnAcknowledgedStepWithItsContent) {
  const Oracle oracle = After({Saving(1, 7), Saved(1, 7)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({})), Contains(StartsWith("I1: step 1 was acknowledged, and nobody knows")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 8)})),
              Contains(StartsWith("I4: step 1 was restored, and is content 8")));
  Seen damaged = Store({Step(1, 7)});
  damaged.steps[0].restored = absl::DataLossError("a chunk");
  EXPECT_THAT(oracle.Violations(damaged),
              Contains(AllOf(StartsWith("I1: step 1 is committed, and restoring it says"), HasSubstr("a chunk"))));
}

TEST(Oracle, WantsAStepThatWasBegunWhollyOrNotAtAll) {
  const Oracle oracle = After({Saving(1, 7)});
  EXPECT_THAT(oracle.Violations(Store({})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  Seen lost = Store({});
  lost.steps = {Gone(1, StepState::kLost)};
  EXPECT_THAT(oracle.Violations(lost), ElementsAre("I2: step 1 is lost"));
  Seen restored = Store({});
  restored.steps = {{.step = 1, .state = StepState::kFailed, .content = 7}};
  EXPECT_THAT(oracle.Violations(restored), ElementsAre("I2: step 1 is failed, and was restored all the same"));
}

TEST(Oracle, WantsEitherContentOfAStepThatIsBeingReplacedAndNoOther) {
  const Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(1, 8)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 8)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({})), Contains(StartsWith("I1")));
  Oracle replaced = oracle;
  replaced.Hear(Saved(1, 8));
  EXPECT_THAT(replaced.Violations(Store({Step(1, 7)})), Contains(StartsWith("I4")));
}

TEST(Oracle, WantsNothingOfASaveThatWasRefused) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(1, 8), Refused(1, 8), Saving(2, 9), Refused(2, 9)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 8)})), Contains(StartsWith("I4: step 1 was restored")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 9)})), Contains(StartsWith("I4: step 2 was restored")));
}

TEST(Oracle, LetsADeletedStepBeBackWhereTheJournalIsLost) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(2, 7), Saved(2, 7), Deleting(1), LetGo(1)});
  Seen seen = Store({Gone(1, StepState::kLost), Step(2, 7)});
  EXPECT_THAT(oracle.Violations(seen), ElementsAre("I2: step 1 is lost"));
  oracle.LoseJournal();
  EXPECT_THAT(oracle.Violations(seen), IsEmpty());
  EXPECT_THAT(oracle.MarksOf(seen), ElementsAre(Saved(2, 7), Pinned(2, false)));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 8), Step(2, 7)})), Contains(StartsWith("I4: step 1 was restored")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Gone(2, StepState::kLost)})),
              Contains(StartsWith("I1: step 2 was acknowledged")));
}

TEST(Oracle, WantsNothingOfAStepThatNobodySaved) {
  EXPECT_THAT(Oracle().Violations(Store({Step(3, 7)})), Contains(StartsWith("I4: step 3 was restored")));
}

TEST(Oracle, WantsTheLatestStepToBeTheHighest) {
  const Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(2, 8), Saved(2, 8)});
  Seen behind = Store({Step(1, 7), Step(2, 8)});
  behind.latest = 1;
  EXPECT_THAT(oracle.Violations(behind), ElementsAre(StartsWith("I3: step 2 is committed, and the latest is 1")));
  Seen fallen_back = Store({Step(1, 7), Step(2, 8)});
  fallen_back.restored_step = 1;
  EXPECT_THAT(oracle.Violations(fallen_back),
              ElementsAre(StartsWith("I3: step 2 is committed, and the latest restored")));
  Seen wrong = Store({Step(1, 7), Step(2, 8)});
  wrong.restored_content.reset();
  EXPECT_THAT(oracle.Violations(wrong), ElementsAre(HasSubstr("bytes that were never saved")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), Contains(StartsWith("I3: the latest step is 1, behind step 2")));
}

TEST(Oracle, WantsNothingBackThatWasDeleted) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Deleting(1)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({})), IsEmpty());
  oracle.Hear(LetGo(1));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), Contains(StartsWith("I4: step 1")));
  Seen deleted = Store({});
  deleted.steps = {Gone(1, StepState::kDeleted)};
  EXPECT_THAT(oracle.Violations(deleted), IsEmpty());
}

TEST(Oracle, LetsStepsBeDiscardedFromTheHighestDown) {
  const Oracle oracle = After(
      {Saving(1, 7), Saved(1, 7), Saving(2, 7), Saved(2, 7), Saving(3, 7), Saved(3, 7), Saving(4, 7), Discarding(1)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 7), Step(3, 7), Step(4, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(3, 7)})),
              ElementsAre("discard: step 2 is gone, and step 3 behind it is not"));
  EXPECT_THAT(oracle.Violations(Store({})), Contains(StartsWith("I1: step 1 was acknowledged")));
}

TEST(Oracle, WantsNoStepBackThatWasDiscarded) {
  Oracle oracle =
      After({Saving(1, 7), Saved(1, 7), Saving(2, 7), Saved(2, 7), Saving(3, 7), Discarding(1), Discarded(1)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 7)})), Contains(StartsWith("I4: step 2 was restored")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(3, 7)})), Contains(StartsWith("I4: step 3 was restored")));
  Oracle rebuilt = oracle;
  rebuilt.LoseJournal();
  EXPECT_THAT(rebuilt.Violations(Store({Step(1, 7), Step(2, 7), Step(3, 7)})), IsEmpty());
  EXPECT_THAT(rebuilt.Violations(Store({Step(1, 7), Step(2, 8)})), Contains(StartsWith("I4: step 2 was restored")));
  oracle.Hear(Saving(2, 9));
  oracle.Hear(Saved(2, 9));
  oracle.LoseJournal();
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 9)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7), Step(2, 7)})), Contains(StartsWith("I4: step 2 was restored")));
}

TEST(Oracle, WantsADamagedStepToBeKnownAndKeptAndNeverRestored) {
  const Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(2, 8), Saved(2, 8), Damaged(1)});
  Seen seen = Store({Gone(1, StepState::kLost), Step(2, 8)});
  seen.with_shards = {1, 2};
  for (const StepState state : {StepState::kCommitted, StepState::kDamaged, StepState::kLost}) {
    seen.steps[0] = Gone(1, state);
    EXPECT_THAT(oracle.Violations(seen), IsEmpty()) << StepStateName(state);
  }
  EXPECT_THAT(oracle.MarksOf(seen), ElementsAre(Saved(2, 8), Pinned(2, false)));
  Seen gone = seen;
  gone.with_shards = {2};
  EXPECT_THAT(oracle.Violations(gone), ElementsAre("quarantine: step 1 was damaged, and its shard is gone"));
  Seen restored = seen;
  restored.steps[0] = Step(1, 7);
  EXPECT_THAT(oracle.Violations(restored), ElementsAre("I4: step 1 is damaged, and was restored all the same"));
  Seen other = seen;
  other.steps[1] = Gone(2, StepState::kLost);
  EXPECT_THAT(oracle.Violations(other), Contains(StartsWith("I1: step 2 was acknowledged, and is lost")));
}

TEST(Oracle, LetsADamagedStepBeForgottenWhereTheJournalIsLost) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Saving(2, 8), Saved(2, 8), Damaged(1)});
  Seen seen = Store({Gone(1, StepState::kFailed), Step(2, 8)});
  seen.with_shards = {1, 2};
  EXPECT_THAT(oracle.Violations(seen), ElementsAre("I1: step 1 was acknowledged and then damaged, and is failed"));
  oracle.LoseJournal();
  EXPECT_THAT(oracle.Violations(seen), IsEmpty());
  oracle.Hear(Damaged(1));
  EXPECT_THAT(oracle.Violations(seen), ElementsAre("I1: step 1 was acknowledged and then damaged, and is failed"));
}

TEST(Oracle, LetsWhatWasSaidOfAStepBeMissingOrOlderWhereTheJournalIsLost) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Reporting(1, "bench/score", 0.5), Reported(1, "bench/score", 0.5),
                         Reporting(1, "bench/score", 0.75), Reported(1, "bench/score", 0.75), Tagging(1, "v1", true),
                         Tagged(1, "v1", true), Pinning(1, false), Pinned(1, false)});
  SeenStep older = Step(1, 7, {{"bench/score", 0.5}});
  older.pinned = true;
  older.tags = {"v1"};
  EXPECT_THAT(oracle.Violations(Store({older})),
              ElementsAre(StartsWith("metrics: step 1"), "pins: step 1 is pinned", "tags: step 1 has v1"));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), ElementsAre(StartsWith("metrics: step 1")));
  oracle.LoseJournal();
  EXPECT_THAT(oracle.Violations(Store({older})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7, {{"bench/score", 0.25}})})),
              ElementsAre(StartsWith("metrics: step 1")));
  EXPECT_THAT(oracle.Violations(Store({})), Contains(StartsWith("I1: step 1 was acknowledged")));
  // What was seen since then holds.
  Seen seen = Store({older});
  for (const std::string& mark : oracle.MarksOf(seen)) oracle.Hear(mark);
  EXPECT_THAT(oracle.Violations(seen), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})),
              ElementsAre(StartsWith("metrics: step 1"), "pins: step 1 is not pinned", "tags: step 1 lacks v1"));
}

TEST(Oracle, WantsMetricsThatWereReported) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Reporting(1, "bench/score", 0.5)});
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7, {{"bench/score", 0.5}})})), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7, {{"bench/score", 0.25}})})),
              ElementsAre(StartsWith("metrics: step 1")));
  oracle.Hear(Reported(1, "bench/score", 0.5));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})),
              ElementsAre("metrics: step 1 has bench/score none; it may have 0.5"));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7, {{"bench/score", 0.5}, {"x", 1}})})),
              ElementsAre("metrics: step 1 has x, which nobody reported"));
  Seen wrong = Store({Step(1, 7, {{"bench/score", 0.5}})});
  wrong.steps[0].metrics["loss"] = 99;
  EXPECT_THAT(oracle.Violations(wrong), ElementsAre(StartsWith("I2: step 1 has loss 99")));
}

TEST(Oracle, WantsPinsAsTheyWereSet) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Pinning(1, true)});
  Seen pinned = Store({Step(1, 7)});
  pinned.steps[0].pinned = true;
  EXPECT_THAT(oracle.Violations(pinned), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  oracle.Hear(Pinned(1, true));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), ElementsAre("pins: step 1 is not pinned"));
  oracle.Hear(Pinning(1, false));
  oracle.Hear(Pinned(1, false));
  EXPECT_THAT(oracle.Violations(pinned), ElementsAre("pins: step 1 is pinned"));
}

TEST(Oracle, WantsTagsAsTheyWereGiven) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Tagging(1, "v1", true)});
  Seen tagged = Store({Step(1, 7)});
  tagged.steps[0].pinned = true;
  tagged.steps[0].tags = {"v1"};
  EXPECT_THAT(oracle.Violations(tagged), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  oracle.Hear(Tagged(1, "v1", true));
  EXPECT_THAT(oracle.Violations(tagged), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})),
              ElementsAre("pins: step 1 is not pinned", "tags: step 1 lacks v1"));
  tagged.steps[0].tags = {"v1", "v2"};
  EXPECT_THAT(oracle.Violations(tagged), ElementsAre("tags: step 1 has v2, which nobody gave it"));
  tagged.steps[0].tags = {"v1"};
  oracle.Hear(Tagging(1, "v1", false));
  EXPECT_THAT(oracle.Violations(tagged), IsEmpty());
  oracle.Hear(Tagged(1, "v1", false));
  EXPECT_THAT(oracle.Violations(tagged), ElementsAre("tags: step 1 has v1"));
}

TEST(Oracle, WantsTagsToGoWithThePin) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Tagging(1, "v1", true), Tagged(1, "v1", true)});
  Seen tagged = Store({Step(1, 7)});
  tagged.steps[0].tags = {"v1"};
  EXPECT_THAT(oracle.Violations(tagged),
              ElementsAre("pins: step 1 is not pinned", "tags: step 1 has tags, and is not pinned"));
  tagged.steps[0].pinned = true;
  oracle.Hear(Pinning(1, false));
  EXPECT_THAT(oracle.Violations(tagged), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7)})), IsEmpty());
  oracle.Hear(Pinned(1, false));
  EXPECT_THAT(oracle.Violations(tagged), ElementsAre("pins: step 1 is pinned", "tags: step 1 has v1"));
}

TEST(Oracle, HoldsAStoreToTheTagsThatItHasShown) {
  Oracle oracle = After({Saving(1, 7), Saved(1, 7), Tagging(1, "v1", true), Tagging(1, "v2", true)});
  Seen seen = Store({Step(1, 7)});
  seen.steps[0].pinned = true;
  seen.steps[0].tags = {"v2"};
  const std::vector<std::string> marks = oracle.MarksOf(seen);
  EXPECT_THAT(marks, ElementsAre(Saved(1, 7), Pinned(1, true), Tagged(1, "v1", false), Tagged(1, "v2", true)));
  for (const std::string& mark : marks) oracle.Hear(mark);
  EXPECT_THAT(oracle.Violations(seen), IsEmpty());
  seen.steps[0].tags = {"v1", "v2"};
  EXPECT_THAT(oracle.Violations(seen), ElementsAre("tags: step 1 has v1"));
}

TEST(Oracle, HoldsAStoreToWhatItHasShown) {
  Oracle oracle = After({Saving(1, 7), Saving(2, 8), Reporting(1, "bench/score", 0.5), Pinning(1, true)});
  Seen seen = Store({Step(1, 7, {{"bench/score", 0.5}})});
  seen.steps.push_back(Gone(2, StepState::kFailed));
  const std::vector<std::string> marks = oracle.MarksOf(seen);
  EXPECT_THAT(marks, ElementsAre(Saved(1, 7), Reported(1, "bench/score", 0.5), Pinned(1, false), LetGo(2)));
  for (const std::string& mark : marks) oracle.Hear(mark);
  EXPECT_THAT(oracle.Violations(seen), IsEmpty());
  EXPECT_THAT(oracle.Violations(Store({})), Contains(StartsWith("I1: step 1")));
  EXPECT_THAT(oracle.Violations(Store({Step(1, 7, {{"bench/score", 0.5}}), Step(2, 8)})),
              Contains(StartsWith("I4: step 2")));
}

}  // namespace
}  // namespace tidemark::crash
