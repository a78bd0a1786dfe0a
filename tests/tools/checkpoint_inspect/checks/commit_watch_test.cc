#include "tools/checkpoint_inspect/checks/commit_watch.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

StepInfo Attempt(int64_t step, uint64_t sequence, StepState state = StepState::kCommitted) {
  return {.step = step, .state = state, .sequence = sequence};
}

std::vector<int64_t> Take(CommitWatch& watch, const std::vector<StepInfo>& steps) {
  std::vector<int64_t> numbers;
  for (const StepInfo& info : watch.Take(steps)) numbers.push_back(info.step);
  return numbers;
}

TEST(CommitWatch, TellsOfEachAttemptOnceInTheOrderOfTheSaves) {
  CommitWatch watch({Attempt(10, 1)});
  EXPECT_THAT(Take(watch, {Attempt(10, 1)}), IsEmpty());
  EXPECT_THAT(Take(watch, {Attempt(5, 3), Attempt(10, 1), Attempt(20, 2)}), ElementsAre(20, 5));
  EXPECT_THAT(Take(watch, {Attempt(5, 3), Attempt(10, 1), Attempt(20, 2)}), IsEmpty());
  // Another attempt in the place of one that was committed.
  EXPECT_THAT(Take(watch, {Attempt(5, 3), Attempt(10, 4), Attempt(20, 2)}), ElementsAre(10));
}

TEST(CommitWatch, TellsOfCommittedStepsOnly) {
  CommitWatch watch({});
  EXPECT_THAT(Take(watch, {Attempt(1, 1, StepState::kFailed), Attempt(2, 2, StepState::kDamaged)}), IsEmpty());
  EXPECT_THAT(Take(watch, {Attempt(1, 1, StepState::kFailed), Attempt(2, 2)}), ElementsAre(2));
}

TEST(CommitWatch, TellsOfAStepThatWasFoundSoundAgain) {
  CommitWatch watch({Attempt(1, 1)});
  EXPECT_THAT(Take(watch, {Attempt(1, 1, StepState::kDamaged)}), IsEmpty());
  EXPECT_THAT(Take(watch, {Attempt(1, 1)}), ElementsAre(1));
}

}  // namespace
}  // namespace tidemark::inspect
