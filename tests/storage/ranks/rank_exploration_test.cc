// The rules of the commit over ranks hold for every order of events of a few ranks, and each rule is needed. The suite
// explores a part of the larger settings in an order that it draws; with TIDEMARK_ALL_CASES=1 it explores twenty
// million states of each.

#include "tests/storage/ranks/rank_exploration.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::storage {
namespace {

using Rule = LeftOutOfRanks;

std::string Told(const Explored& explored) {
  return explored.violation + "\n  " + absl::StrJoin(explored.trace, "\n  ");
}

struct Bounds {
  std::string name;
  RanksSetting setting;
  bool all_in_time = false;  // the suite explores all of it, except under a sanitizer
};

std::vector<Bounds> AllBounds() {
  return {
      {"OneRank", {.ranks = 1}, true},
      {"OneRankTwice", {.ranks = 1, .attempts = 2}},
      {"TwoRanks", {.ranks = 2}},
      {"TwoRanksOldListings", {.ranks = 2, .old_listings = 1}},
      {"TwoRanksTwoFailedSyncs", {.ranks = 2, .failed_syncs = 2}},
      {"TwoRanksTwoTakers", {.ranks = 2, .takers = 2}},
      {"TwoRanksTwice", {.ranks = 2, .attempts = 2}},
      {"ThreeRanks", {.ranks = 3}},
      {"ThreeRanksTwice", {.ranks = 3, .attempts = 2, .old_listings = 1}},
      {"FourRanks", {.ranks = 4}},
  };
}

class RankExploration : public testing::TestWithParam<Bounds> {};

TEST_P(RankExploration, FindsNoBrokenPromise) {
  const auto seed = SeedOfCases();
  const bool has_time = OneOf(1, 5) == 1;  // not under a sanitizer
  const size_t in_time = GetParam().all_in_time ? 200'000 : 40'000;
  const size_t states_max = AllCasesAsked() ? 20'000'000 : has_time ? in_time : 2'000;
  const Explored explored = ExploreRanks(GetParam().setting, states_max, seed);
  EXPECT_EQ(explored.violation, "") << "TIDEMARK_SEED=" << seed << "\n" << Told(explored);
  EXPECT_TRUE(explored.all || explored.states == states_max);
  EXPECT_TRUE(explored.all || !has_time || !GetParam().all_in_time) << explored.states;
  std::printf("%zu states%s\n", explored.states, explored.all ? ", all that there are" : "");
}

INSTANTIATE_TEST_SUITE_P(All, RankExploration, testing::ValuesIn(AllBounds()),
                         [](const auto& info) { return info.param.name; });

struct Mutation {
  Rule rule;
  std::string violation;  // a part of what is found
  RanksSetting setting;
};

class RankRules : public testing::TestWithParam<Mutation> {};

TEST_P(RankRules, AreNeeded) {
  RanksSetting setting = GetParam().setting;
  setting.left_out = GetParam().rule;
  const Explored explored = ExploreRanks(setting, 1'000'000);
  EXPECT_TRUE(absl::StrContains(explored.violation, GetParam().violation)) << explored.states;
  std::printf("%zu states: %s\n", explored.states, Told(explored).c_str());
}

// Without what a violation does not need, so that its trace is short.
constexpr RanksSetting kPlain = {.takers = 0, .failed_syncs = 0, .power_losses = 0};
constexpr RanksSetting kTaken = {.takers = 1, .failed_syncs = 0, .power_losses = 0};
constexpr RanksSetting kTwice = {.attempts = 2, .takers = 0, .failed_syncs = 0, .power_losses = 0};
constexpr RanksSetting kFailing = {.takers = 0, .failed_syncs = 1, .power_losses = 0};

INSTANTIATE_TEST_SUITE_P(
    All, RankRules,
    testing::Values(Mutation{Rule::kVoteAfterSync, "committed without the shard of rank", kPlain},
                    Mutation{Rule::kFailedSyncIsNo, "committed without the shard of rank", kFailing},
                    Mutation{Rule::kOutcomeIdentity, "told", kTwice},
                    Mutation{Rule::kLookEstablished, "told committed, and can be lost", kPlain},
                    Mutation{Rule::kEpochEstablished, "told aborted, and is committed", {.power_losses = 1}},
                    Mutation{Rule::kDeadlineIsUnknown, "told aborted, and is committed", kPlain},
                    Mutation{Rule::kEveryVote, "committed without the shard of rank 1", kPlain},
                    Mutation{Rule::kVoteIdentity, "committed without the shard of rank", kTwice},
                    Mutation{Rule::kAbortIsFinal, "told aborted, and is committed", kPlain},
                    Mutation{Rule::kFence, "told aborted, and is committed", kTaken},
                    Mutation{Rule::kOutcomeEstablished, "told committed, and can be lost", kPlain},
                    Mutation{Rule::kUnknownIsNoOutcome, "told aborted, and is committed", kFailing}),
    [](const auto& info) { return testing::PrintToString(info.param.rule); });

// Among millions of states that a search of this setting has; so these events are given. Rank 0's sync of steps/ for
// the first attempt fails, and makes uncertain the folder of the second one, where rank 1 is already. Rank 1 must hear
// of it.
std::string SyncOfAnEarlierAttemptFails(Rule left_out) {
  const RanksSetting setting = {.attempts = 2, .left_out = left_out};
  RankWorld world(setting);
  world.Write(0);
  world.ExpireHolder();
  world.StateOutcome();
  world.HearOutcome(1, world.outcomes().at(0));
  world.Write(1);
  world.Sync(0, false);
  world.Vote(0);
  world.Sync(1, true);
  world.Vote(1);
  world.Write(0);
  world.Sync(0, true);
  world.Vote(0);
  for (const RankVote& vote : std::vector<RankVote>(world.votes())) world.HearVote(vote);
  if (world.holder()->coordinator.step() == Coordinator::Step::kAppend) {
    world.BeginAppend();
    world.EndAppend(true);
  }
  return world.Violation();
}

TEST(RankRules, DescriptorFirstIsNeeded) {
  EXPECT_EQ(SyncOfAnEarlierAttemptFails(Rule::kNothing), "");
  EXPECT_EQ(SyncOfAnEarlierAttemptFails(Rule::kDescriptorFirst), "committed without the shard of rank 0: 1");
}

}  // namespace
}  // namespace tidemark::storage
