#include "snapshot/ranks/replicated_entries.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kEveryRank = ReplicatedEntries::kEveryRank;

State::Entry Tensor(std::string name, int64_t elements, int64_t alias_of = -1) {
  return {.spec = {.name = std::move(name), .kind = EntryKind::kTensor, .dtype = Dtype::kFloat32, .shape = {elements}},
          .bytes = static_cast<uint64_t>(elements) * 4,
          .alias_of = alias_of};
}

State::Entry Box(std::string name, int64_t elements) {
  State::Entry entry = Tensor(std::move(name), elements);
  entry.spec.shape = {2 * elements};
  entry.spec.box_offset = {0};
  entry.spec.box_extent = {elements};
  return entry;
}

State::Entry Text(std::string name, int64_t bytes) {
  return {.spec = {.name = std::move(name), .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {bytes}},
          .bytes = static_cast<uint64_t>(bytes)};
}

TEST(ReplicatedEntriesTest, TheLargestGoFirstToTheRankWithTheFewestBytes) {
  const std::vector<State::Entry> entries = {Tensor("a", 10), Tensor("b", 60), Tensor("c", 40), Tensor("d", 30)};
  EXPECT_THAT(AssignWriters(entries, {{"*"}}, 2).writers, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(AssignWriters(entries, {{"*"}}, 1).writers, ElementsAre(0, 0, 0, 0));
}

TEST(ReplicatedEntriesTest, OthersAreWrittenByEveryRank) {
  const std::vector<State::Entry> entries = {Tensor("model.a", 10), Tensor("rng", 10), Box("model.b", 10),
                                             Tensor("other", 5)};
  EXPECT_THAT(AssignWriters(entries, {{"model.*"}}, 2).writers, ElementsAre(0, kEveryRank, kEveryRank, kEveryRank));
  EXPECT_THAT(AssignWriters(entries, {}, 2).writers, ElementsAre(kEveryRank, kEveryRank, kEveryRank, kEveryRank));
}

TEST(ReplicatedEntriesTest, TiedEntriesAreOne) {
  // "b" is tied to "a", and "d" to "c", which is no such entry.
  const std::vector<State::Entry> entries = {Tensor("m.a", 10), Tensor("m.b", 10, 0), Tensor("c", 9),
                                             Tensor("m.d", 9, 2), Tensor("m.e", 8)};
  EXPECT_THAT(AssignWriters(entries, {{"m.*"}}, 3).writers, ElementsAre(0, 0, kEveryRank, kEveryRank, 1));
}

TEST(ReplicatedEntriesTest, ValuesAndBuffersAreRank0s) {
  std::vector<State::Entry> entries = {Tensor("a", 10), Text("text", 5000), Tensor("b", 9), Tensor("buffer", 10'000)};
  entries[3].changes_early = true;
  EXPECT_THAT(AssignWriters(entries, {{"*"}}, 2).writers, ElementsAre(0, 0, 1, 0));
}

// A trainer that waits for the last of them may change them all.
TEST(ReplicatedEntriesTest, WhatIsStagedTogetherHasOneWriter) {
  std::vector<State::Entry> entries = {Tensor("m.a", 10), Tensor("m.b", 9), Tensor("m.a.moment", 10),
                                       Tensor("m.b.moment", 9), Tensor("own.moment", 9)};
  entries[2].staged_with = 0;
  entries[3].staged_with = 1;
  entries[4].staged_with = 1;
  EXPECT_THAT(AssignWriters(entries, {{"m.*"}}, 3).writers, ElementsAre(0, 1, 0, 1, kEveryRank));
  EXPECT_THAT(AssignWriters(entries, {{"*moment"}}, 3).writers, ElementsAre(kEveryRank, kEveryRank, 0, 1, 2));
}

TEST(ReplicatedEntriesTest, PatternsWithoutAnEntryAreNamed) {
  const std::vector<State::Entry> entries = {Tensor("model.a", 10)};
  EXPECT_THAT(AssignWriters(entries, {{"modle.*", "model.?", "x"}}, 2).without_entry, ElementsAre("modle.*", "x"));
  EXPECT_THAT(AssignWriters(entries, {{"*"}}, 2).without_entry, IsEmpty());
}

TEST(ReplicatedEntriesTest, TheStructureHasEverythingButLengthsOfValues) {
  const auto structure = [](const std::vector<State::Entry>& entries) {
    return AssignWriters(entries, {{"m.*"}}, 2).structure;
  };
  const std::vector<State::Entry> entries = {Tensor("m.a", 10), Text("m.text", 5), Tensor("own", 3)};
  const auto changed = [&](auto change) {
    std::vector<State::Entry> other = entries;
    change(other);
    return structure(other) != structure(entries);
  };
  EXPECT_TRUE(changed([](auto& e) { e[0].spec.name = "m.b"; }));
  EXPECT_TRUE(changed([](auto& e) { e[0].spec.dtype = Dtype::kInt32; }));
  EXPECT_TRUE(changed([](auto& e) { e[0].spec.shape = {5, 2}; }));
  EXPECT_TRUE(changed([](auto& e) { e[1].spec.kind = EntryKind::kBytes; }));
  EXPECT_TRUE(changed([](auto& e) { e.push_back(Tensor("m.c", 0)); }));
  EXPECT_TRUE(changed([](auto& e) { e.pop_back(), e.pop_back(); }));
  EXPECT_FALSE(changed([](auto& e) { e[1] = Text("m.text", 900); })) << "longer than any tensor";
  EXPECT_FALSE(changed([](auto& e) { e[2] = Tensor("own.1", 4); }));
}

// The names and shapes are the same, and the writers are not.
TEST(ReplicatedEntriesTest, OtherWritersAreAnotherStructure) {
  const std::vector<State::Entry> apart = {Tensor("a", 10), Tensor("b", 10), Tensor("c", 9)};
  const std::vector<State::Entry> tied = {Tensor("a", 10), Tensor("b", 10, 0), Tensor("c", 9)};
  const ReplicatedEntries of_apart = AssignWriters(apart, {{"*"}}, 2);
  const ReplicatedEntries of_tied = AssignWriters(tied, {{"*"}}, 2);
  EXPECT_THAT(of_apart.writers, ElementsAre(0, 1, 0));
  EXPECT_THAT(of_tied.writers, ElementsAre(0, 0, 1));
  EXPECT_NE(of_apart.structure, of_tied.structure);
  EXPECT_NE(of_apart.structure, AssignWriters(apart, {{"*"}}, 3).structure);
}

// Whatever order they come in, beside whatever else: the same writers, each entry one, and loads that are even.
TEST(ReplicatedEntriesTest, EveryRankComesToTheSameWriters) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(fmt::format("TIDEMARK_SEED={}", seed));
  std::mt19937 random(seed);
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution(from, to)(random); };
  for (int round = 0; round < 300; ++round) {
    const auto world_size = static_cast<int32_t>(draw(1, 9));
    std::vector<State::Entry> shared;
    uint64_t largest = 0;
    for (int64_t i = 0, count = draw(0, 40); i < count; ++i) {
      shared.push_back(Tensor(fmt::format("m.{}", i), draw(0, 1) == 0 ? 16 : draw(0, 1000)));
      largest = std::max(largest, shared.back().bytes);
      if (draw(0, 4) == 0) shared.back().changes_early = true;
    }
    std::map<std::string, int32_t> writers;
    std::vector<uint64_t> loads(static_cast<size_t>(world_size));
    storage::Digest128 structure;
    for (int32_t rank = 0; rank < world_size; ++rank) {
      std::vector<State::Entry> entries = shared;
      for (int64_t i = draw(0, 3); i > 0; --i) entries.push_back(Tensor(fmt::format("own.{}.{}", rank, i), 7));
      for (int i = 0; i < 3; ++i) entries.push_back(Text(fmt::format("m.text.{}", i), draw(0, 5000)));
      std::ranges::shuffle(entries, random);
      const ReplicatedEntries found = AssignWriters(entries, {{"m.*"}}, world_size);
      if (rank == 0) structure = found.structure;
      EXPECT_EQ(found.structure, structure);
      for (size_t i = 0; i < entries.size(); ++i) {
        const std::string& name = entries[i].spec.name;
        if (name.starts_with("own")) {
          EXPECT_EQ(found.writers[i], kEveryRank);
          continue;
        }
        ASSERT_GE(found.writers[i], 0);
        ASSERT_LT(found.writers[i], world_size);
        const auto [known, is_new] = writers.emplace(name, found.writers[i]);
        EXPECT_EQ(known->second, found.writers[i]);
        const bool is_rank_0s = entries[i].spec.kind != EntryKind::kTensor || entries[i].changes_early;
        if (is_rank_0s) {
          EXPECT_EQ(found.writers[i], 0) << name;
        } else if (is_new) {
          loads[static_cast<size_t>(found.writers[i])] += entries[i].bytes;
        }
      }
    }
    const auto [least, most] = std::ranges::minmax(loads);
    EXPECT_LE(most - least, largest);
  }
}

}  // namespace
}  // namespace tidemark
