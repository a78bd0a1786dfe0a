// The rules of the journal hold for every interleaving of a few processes, and each rule is needed. The suite explores
// a part of the larger bounds in an order that it draws; with TIDEMARK_ALL_CASES=1 it explores eight million states of
// each.

#include "tests/storage/journal/exploration.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::storage {
namespace {

constexpr auto kEpoch = Deed::kBeginEpoch;
constexpr auto kCommit = Deed::kCommit;
constexpr auto kDelete = Deed::kDelete;
constexpr auto kReport = Deed::kReport;
constexpr auto kTell = Deed::kTell;

std::string Told(const Explored& explored) {
  return explored.violation + "\n  " + absl::StrJoin(explored.trace, "\n  ");
}

struct Bounds {
  std::string name;
  Exploration exploration;
  bool all_in_time = false;  // the suite explores all of it, except under a sanitizer
};

std::vector<Bounds> AllBounds() {
  const std::vector<std::vector<Deed>> afterwards = {{kEpoch, kCommit}, {kTell}};
  std::vector<Bounds> all;
  all.push_back(
      {"OneHolder", {.processes = {{kEpoch, kCommit, kCommit}}, .after_power_loss = {{kEpoch}, {kTell}}}, true});
  all.push_back({"TwoHolders", {.processes = {{kEpoch, kCommit}, {kEpoch, kDelete}}, .after_power_loss = afterwards}});
  all.push_back({"HoldersAndTool",
                 {.processes = {{kEpoch, kCommit}, {kEpoch, kDelete}, {kReport}}, .after_power_loss = afterwards}});
  all.push_back({"HoldersAndFollower",
                 {.processes = {{kEpoch, kCommit}, {kEpoch, kCommit}, {kTell}}, .after_power_loss = afterwards}});
  for (size_t i = 0, plain = all.size(); i < plain; ++i) {
    Bounds bounds = all[i];
    bounds.name += "OldListings";
    bounds.exploration.old_listings = 1;
    bounds.all_in_time = false;
    all.push_back(std::move(bounds));
  }
  return all;
}

class JournalExploration : public testing::TestWithParam<Bounds> {};

TEST_P(JournalExploration, FindsNoBrokenPromise) {
  Exploration exploration = GetParam().exploration;
  exploration.seed = SeedOfCases();
  const bool has_time = OneOf(1, 5) == 1;  // not under a sanitizer
  exploration.states_max = AllCasesAsked() ? 8'000'000 : has_time ? 40'000 : 2'000;
  const Explored explored = Explore(exploration);
  EXPECT_EQ(explored.violation, "") << "TIDEMARK_SEED=" << exploration.seed << "\n" << Told(explored);
  EXPECT_TRUE(explored.all || explored.states == exploration.states_max);
  EXPECT_TRUE(explored.all || !has_time || !GetParam().all_in_time) << explored.states;
  std::printf("%zu states%s\n", explored.states, explored.all ? ", all that there are" : "");
}

INSTANTIATE_TEST_SUITE_P(All, JournalExploration, testing::ValuesIn(AllBounds()),
                         [](const auto& info) { return info.param.name; });

struct Mutation {
  LeftOut rule;
  std::string violation;  // a part of what is found
  Exploration exploration;
};

class JournalRules : public testing::TestWithParam<Mutation> {};

TEST_P(JournalRules, AreNeeded) {
  Exploration exploration = GetParam().exploration;
  Explored explored = Explore(exploration);
  EXPECT_EQ(explored.violation, "") << Told(explored);
  exploration.left_out = GetParam().rule;
  explored = Explore(exploration);
  EXPECT_TRUE(absl::StrContains(explored.violation, GetParam().violation)) << Told(explored);
  std::printf("%zu states: %s\n", explored.states, Told(explored).c_str());
}

INSTANTIATE_TEST_SUITE_P(
    All, JournalRules,
    testing::Values(
        Mutation{LeftOut::kCarry,
                 "no later entry has a copy of it",
                 {.processes = {{kEpoch}, {kEpoch}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kEpochCarries,
                 "no later entry has a copy of it",
                 {.processes = {{kEpoch}, {kEpoch}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kDescriptorFirst,
                 "told to be there, and can be lost",
                 {.processes = {{kEpoch, kCommit}, {kEpoch}}, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kExclusiveName,
                 "told to be there, and can be lost",
                 {.processes = {{kEpoch}, {kEpoch}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kOwnId,
                 "told not to be there, and is",
                 {.processes = {{kEpoch, kCommit}, {kEpoch}}, .failed_syncs = 0, .power_losses = 0}},
        Mutation{LeftOut::kCheckAgain,
                 "on a step that is not there",
                 {.processes = {{kEpoch, kCommit}, {kEpoch, kDelete}, {kReport}},
                  .failed_syncs = 0,
                  .power_losses = 0,
                  .denials = 0}},
        Mutation{LeftOut::kReadAgain,
                 "told to be there, and can be lost",
                 {.processes = {{kEpoch}, {kEpoch}},
                  .after_power_loss = {{kEpoch}},
                  .failed_syncs = 0,
                  .old_listings = 1,
                  .denials = 0}},
        Mutation{
            LeftOut::kFence,
            "told not to be there, and is",
            {.processes = {{kEpoch, kCommit}, {kEpoch}, {kTell}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kAcknowledgeSynced,
                 "told to be there, and can be lost",
                 {.processes = {{kEpoch}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}},
        Mutation{LeftOut::kTellEstablished,
                 "told to be there, and can be lost",
                 {.processes = {{kEpoch, kCommit}, {kTell}}, .failed_syncs = 0, .power_losses = 0, .denials = 0}}),
    [](const auto& info) { return testing::PrintToString(info.param.rule); });

}  // namespace
}  // namespace tidemark::storage
