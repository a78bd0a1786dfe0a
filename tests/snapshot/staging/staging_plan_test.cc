#include "snapshot/staging/staging_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/derived_state.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;

State::Entry TensorEntry(std::string name, int64_t bytes, std::byte* host) {
  return {.spec = {.name = std::move(name), .dtype = Dtype::kUint8, .shape = {bytes}},
          .bytes = static_cast<uint64_t>(bytes),
          .host = host};
}

TEST(StagingPlan, PlacesEntriesApartAndAligned) {
  std::vector<std::byte> memory(1 << 20);
  DerivedState state;
  state.SetDerivedEntries({TensorEntry("a", 3, memory.data()), TensorEntry("b", 200'000, memory.data()),
                           TensorEntry("c", 5, memory.data())});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  ASSERT_EQ(plan.placements().size(), 3u);
  EXPECT_EQ(plan.placements()[0].offset, 0u);
  EXPECT_EQ(plan.placements()[1].offset % 4096, 0u);
  EXPECT_EQ(plan.placements()[2].offset % 64, 0u);
  EXPECT_GE(plan.placements()[1].offset, 3u);
  EXPECT_GE(plan.placements()[2].offset, plan.placements()[1].offset + 200'000);
  EXPECT_EQ(plan.fixed_bytes(), plan.placements()[2].offset + 5);
}

// A tensor that is expanded has more bytes than there is memory, and sums of such wrap.
TEST(StagingPlan, HasNoRoomThatIsTooSmallForEntriesBeyondAllMemory) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  DerivedState state;
  state.SetDerivedEntries({TensorEntry("a", kHuge, nullptr), TensorEntry("b", kHuge, nullptr),
                           TensorEntry("c", kHuge, nullptr), TensorEntry("d", kHuge, nullptr),
                           TensorEntry("e", 5, nullptr)});
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_GE(StagingPlan(state).fixed_bytes(), uint64_t{kHuge});
}

TEST(StagingPlan, GivesTiedEntriesOnePlaceAndCopiesThemOnce) {
  std::vector<std::byte> memory(100);
  DerivedState state;
  State::Entry tied = TensorEntry("tied", 100, memory.data());
  tied.alias_of = 0;
  state.SetDerivedEntries({TensorEntry("first", 100, memory.data()), tied});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  EXPECT_EQ(plan.placements()[1].offset, plan.placements()[0].offset);
  EXPECT_EQ(plan.placements()[1].alias_of, 0);
  EXPECT_EQ(plan.fixed_bytes(), 100u);
  EXPECT_EQ(plan.pieces().size(), 1u);
}

TEST(StagingPlan, CoversEveryByteOfLargeAndSmallTensorsOnce) {
  std::vector<std::byte> memory(9 << 20);
  DerivedState state;
  std::vector<State::Entry> entries{TensorEntry("large", 9 << 20, memory.data())};
  for (int i = 0; i < 3000; ++i) entries.push_back(TensorEntry("small." + std::to_string(i), 1024, memory.data()));
  state.SetDerivedEntries(entries);
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  std::vector<uint64_t> covered(entries.size(), 0);
  for (const StagingPlan::CopyPiece& piece : plan.pieces()) {
    EXPECT_EQ(piece.begin, covered[piece.entry]);
    covered[piece.entry] += piece.bytes;
  }
  for (size_t i = 0; i < entries.size(); ++i) ASSERT_EQ(covered[i], entries[i].bytes);
  // A thread gets megabytes at a time, of one tensor or of a thousand.
  EXPECT_GE(plan.runs().size(), 6u);
  EXPECT_LE(plan.runs().size(), 8u);
  size_t next = 0;
  for (const StagingPlan::Run& run : plan.runs()) {
    EXPECT_EQ(run.first, next);
    next = run.last;
    const StagingPlan::CopyPiece& first = plan.pieces()[run.first];
    EXPECT_EQ(run.begin, plan.placements()[first.entry].offset + first.begin);
  }
  EXPECT_EQ(next, plan.pieces().size());
}

TEST(StagingPlan, SetsValuesAndDeviceTensorsApart) {
  int64_t epoch = 0;
  DerivedState state;
  state.AddValue("epoch", &epoch);
  state.SetDerivedEntries({TensorEntry("on_device", 8, nullptr), TensorEntry("empty", 0, nullptr)});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  EXPECT_THAT(plan.early_entries(), testing::ElementsAre(0));
  EXPECT_THAT(plan.device_tensors(), testing::ElementsAre(1));
  EXPECT_TRUE(plan.pieces().empty());
}

TEST(StagingPlan, PlacesWhatIsStagedTogetherBehindIt) {
  std::vector<std::byte> memory(100);
  DerivedState state;
  std::vector<State::Entry> entries{TensorEntry("a", 8, memory.data()),         TensorEntry("b", 8, memory.data()),
                                    TensorEntry("b.m", 8, memory.data()),       TensorEntry("a.m", 8, memory.data()),
                                    TensorEntry("a.m.scale", 8, memory.data()), TensorEntry("a.v", 8, memory.data())};
  entries[2].staged_with = 1;
  entries[3].staged_with = 0;
  entries[4].staged_with = 3;
  entries[5].staged_with = 0;
  state.SetDerivedEntries(entries);
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  std::vector<std::pair<uint64_t, std::string>> order;
  for (size_t i = 0; i < entries.size(); ++i) order.emplace_back(plan.placements()[i].offset, plan.specs()[i].name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (const auto& [offset, name] : order) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("a", "a.m", "a.m.scale", "a.v", "b", "b.m"));
  EXPECT_EQ(plan.pieces()[1].entry, 3u);
}

TEST(StagingPlan, FindsATiedEntryWhereverItsTensorIsPlaced) {
  std::vector<std::byte> memory(100);
  DerivedState state;
  std::vector<State::Entry> entries{TensorEntry("a", 8, memory.data()), TensorEntry("b.m", 8, memory.data()),
                                    TensorEntry("tied", 8, memory.data())};
  entries[2].alias_of = 1;
  state.SetDerivedEntries(entries);
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  EXPECT_EQ(plan.placements()[2].offset, plan.placements()[1].offset);
  EXPECT_EQ(plan.placements()[2].alias_of, 1);
}

TEST(StagingPlan, RunsNeverMixHostAndDevice) {
  std::vector<std::byte> memory(100);
  DerivedState state;
  state.SetDerivedEntries({TensorEntry("a", 8, memory.data()), TensorEntry("b", 8, nullptr),
                           TensorEntry("c", 8, nullptr), TensorEntry("d", 8, memory.data())});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  ASSERT_EQ(plan.runs().size(), 3u);
  EXPECT_TRUE(plan.runs()[0].on_host);
  EXPECT_FALSE(plan.runs()[1].on_host);
  EXPECT_EQ(plan.runs()[1].last - plan.runs()[1].first, 2u);
  EXPECT_EQ(plan.device_bytes(), 16u);
  EXPECT_THAT(plan.RunBegins(), testing::ElementsAre(0, 64, 192));
}

TEST(StagingPlan, PlacesStringsAndBytesBehindEverythingElse) {
  std::string text = "abc";
  std::vector<std::byte> blob(100'000);
  int64_t epoch = 0;
  std::vector<std::byte> memory(100);
  DerivedState state;
  state.AddValue("text", &text);
  state.AddValue("epoch", &epoch);
  state.AddValue("blob", &blob);
  state.SetDerivedEntries({TensorEntry("tensor", 100, memory.data())});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  EXPECT_THAT(plan.sized_values(), testing::ElementsAre(0, 2));
  EXPECT_THAT(plan.early_entries(), testing::ElementsAre(1));
  const StagingPlan::SizedPlaces places = plan.PlaceSizedValues(state.entries());
  ASSERT_EQ(places.of_values.size(), 2u);
  EXPECT_GE(places.of_values[0].offset, plan.fixed_bytes());
  EXPECT_EQ(places.of_values[0].bytes, 3u);
  EXPECT_GE(places.of_values[1].offset, places.of_values[0].offset + 3);
  EXPECT_EQ(places.of_values[1].offset % 4096, 0u);
  EXPECT_GE(places.total_bytes, places.of_values[1].offset + 100'000);
  EXPECT_EQ(places.value_bytes, 100'003u);
}

// A state of another size gets new memory, and touching it takes time.
TEST(StagingPlan, SeldomChangesTheSizeOfASnapshotWhoseValueGrows) {
  std::vector<std::byte> memory(1 << 20);
  std::string log;
  DerivedState state;
  state.AddValue("log", &log);
  state.SetDerivedEntries({TensorEntry("tensor", 1 << 20, memory.data())});
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  std::set<uint64_t> sizes;
  for (int save = 0; save < 10'000; ++save) {
    log += std::string(100, 'x');
    ASSERT_THAT(state.Refresh(), IsOk());
    const StagingPlan::SizedPlaces places = plan.PlaceSizedValues(state.entries());
    ASSERT_GE(places.total_bytes, places.of_values[0].offset + log.size());
    ASSERT_LE(places.total_bytes, places.of_values[0].offset + log.size() + log.size() / 4 + 4096);
    sizes.insert(places.total_bytes);
  }
  EXPECT_LE(sizes.size(), 40u) << "from 100 bytes to a million";
}

TEST(StagingPlan, FindsEntriesByName) {
  int64_t epoch = 0;
  State state;
  state.AddValue("epoch", &epoch);
  ASSERT_THAT(state.Refresh(), IsOk());
  const StagingPlan plan(state);
  EXPECT_EQ(plan.Find("epoch"), 0);
  EXPECT_EQ(plan.Find("epoc"), -1);
}

}  // namespace
}  // namespace tidemark
