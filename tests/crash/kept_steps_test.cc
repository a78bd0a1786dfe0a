#include "tests/crash/kept_steps.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::crash {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

KeptSteps KeptAfter(const std::vector<int64_t>& saves) {
  KeptSteps steps;
  for (const int64_t step : saves) steps.Saved(step);
  return steps;
}

TEST(KeptSteps, AreThoseThatWereCommittedLast) {
  EXPECT_THAT(KeptAfter({1, 2}).Due(2), IsEmpty());
  EXPECT_THAT(KeptAfter({1, 2, 3}).Due(2), ElementsAre(1));
  EXPECT_THAT(KeptAfter({1, 2, 3, 1}).Due(2), ElementsAre(2)) << "it was committed before step 1 was replaced";
}

TEST(KeptSteps, AreAllWithoutARule) { EXPECT_THAT(KeptAfter({1, 2, 3}).Due(0), IsEmpty()); }

TEST(KeptSteps, HaveTheHighestAmongThem) { EXPECT_THAT(KeptAfter({1, 2, 5, 1, 2}).Due(2), IsEmpty()); }

TEST(KeptSteps, HaveThePinnedAmongThemUntilTheyAreDeleted) {
  KeptSteps steps = KeptAfter({1, 2, 3, 4});
  steps.Pinned(1, true);
  EXPECT_THAT(steps.Due(2), ElementsAre(2));
  steps.Pinned(1, false);
  EXPECT_THAT(steps.Due(2), ElementsAre(1, 2));
}

TEST(KeptSteps, KnowWhetherOneBehindAStepIsPinned) {
  KeptSteps kept = KeptAfter({1, 2, 3});
  EXPECT_FALSE(kept.PinnedAfter(1));
  kept.Pinned(2, true);
  EXPECT_TRUE(kept.PinnedAfter(1));
  EXPECT_FALSE(kept.PinnedAfter(2));
}

TEST(KeptSteps, HaveNothingToDoWithWhatIsGone) {
  KeptSteps steps = KeptAfter({1, 2, 3, 4});
  steps.Gone(1);
  EXPECT_THAT(steps.Due(2), ElementsAre(2));
}

}  // namespace
}  // namespace tidemark::crash
