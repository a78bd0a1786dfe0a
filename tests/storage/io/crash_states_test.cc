#include "tests/storage/io/crash_states.h"

#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Files = DiskImage::Files;

class CrashStatesTest : public testing::Test {
 protected:
  struct Visited {
    std::vector<std::string> crashes;
    std::set<Files> states;
  };

  void Put(const std::string& path, const std::string& bytes) {
    auto file = disk_.Create(path, /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
  }
  Visited Visit(const CrashOptions& options = {}) {
    const DiskLog log = disk_.log();
    Visited visited;
    const size_t count = ForEachCrash(log, options, seen_, [&](const Crash& crash, const DiskImage& image) {
      visited.crashes.push_back(crash.ToString(log));
      visited.states.insert(image.Contents());
      // What is said of a crash is enough to make it again.
      EXPECT_EQ(log.StateAfter(crash.prefix, crash.lost).Contents(), image.Contents()) << visited.crashes.back();
      return true;
    });
    EXPECT_EQ(count, visited.crashes.size());
    return visited;
  }

  SimulatedDisk disk_;
  std::unordered_set<uint64_t> seen_;
};

TEST_F(CrashStatesTest, VisitsEachStateOnceInOrder) {
  Put("/x", "ab");
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Visit().crashes,
              ElementsAre("after 0 of 3 operations", "after 1 of 3 operations", "after 2 of 3 operations"));
  EXPECT_THAT(Visit().crashes, IsEmpty()) << "what was seen by an earlier call is not visited again";
}

TEST_F(CrashStatesTest, SaysWhatIsLost) {
  Put("/x", "ab");
  Put("/y", std::string(1000, 'y'));
  EXPECT_THAT(Visit({.torn = 0}).crashes, testing::Contains("after 4 of 4 operations, without 1 (write /x [0, 2))"));
  const Crash crash = {.prefix = 4, .lost = {{.index = 0}, {.index = 3, .sector_mask = 2}}};
  EXPECT_EQ(crash.ToString(disk_.log()),
            "after 4 of 4 operations, without 0 (create /x), 3 (write /y [0, 1000) sectors 0x2)");
}

TEST_F(CrashStatesTest, SameImageAfterAnotherPromiseIsAnotherState) {
  Put("/x", "");
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  disk_.Mark("x is there");
  EXPECT_THAT(Visit().crashes,
              ElementsAre("after 0 of 3 operations", "after 1 of 3 operations", "after 3 of 3 operations"));
}

TEST_F(CrashStatesTest, PromisesBeforeTheLogCount) {
  Put("/x", "");
  EXPECT_EQ(Visit().crashes.size(), 2u);
  EXPECT_EQ(Visit({.promised = 1}).crashes.size(), 2u);
  EXPECT_EQ(Visit({.promised = 1}).crashes.size(), 0u);
}

TEST_F(CrashStatesTest, LosesEverySubsetWhereThereAreFew) {
  for (const char* path : {"/a", "/b", "/c", "/d"}) Put(path, "");
  EXPECT_EQ(Visit({.all_subsets_up_to = 4}).states.size(), 16u);
}

TEST_F(CrashStatesTest, SkipsOnlyStatesThatWereThereBefore) {
  // Every subset at every prefix, made the long way.
  for (const char* path : {"/a", "/b"}) {
    Put(path, "1");
    ASSERT_THAT(disk_.Rename(path, "/x"), IsOk());
    ASSERT_THAT((*disk_.OpenForRead("/x", false))->SyncData(), IsOk());
  }
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  Put("/c", "2");
  const DiskLog log = disk_.log();
  std::set<Files> expected;
  for (size_t prefix = 0; prefix <= log.operations.size(); ++prefix) {
    const std::vector<size_t> unsynced = log.Unsynced(prefix);
    for (uint64_t subset = 0; subset < uint64_t{1} << unsynced.size(); ++subset) {
      std::vector<LostOperation> lost;
      for (size_t i = 0; i < unsynced.size(); ++i) {
        if ((subset >> i & 1) != 0) lost.push_back({.index = unsynced[i]});
      }
      expected.insert(log.StateAfter(prefix, lost).Contents());
    }
  }
  EXPECT_EQ(Visit().states, expected);
  for (size_t limit = 0; limit < 5; ++limit) {
    seen_.clear();
    EXPECT_THAT(Visit({.all_subsets_up_to = limit}).states, testing::IsSubsetOf(expected));
  }
}

TEST_F(CrashStatesTest, LosesSinglesPairsAndSamplesWhereThereAreMany) {
  for (char c = 'a'; c < 'a' + 10; ++c) Put(std::string("/") + c, "");
  const size_t all = 10;
  const auto missing = [&](const Visited& visited) {
    std::multiset<size_t> counts;
    for (const Files& files : visited.states) counts.insert(all - files.size());
    return counts;
  };
  const auto single = missing(Visit({.begin = 10, .all_subsets_up_to = 9, .all_pairs_up_to = 9, .samples = 0}));
  EXPECT_EQ(single.count(1), 10u);
  EXPECT_EQ(single.count(2), 0u);
  seen_.clear();
  const auto counts = missing(Visit({.begin = 10, .all_subsets_up_to = 9, .samples = 0}));
  EXPECT_EQ(counts.size(), 1 + 10 + 45 + 1u);
  EXPECT_EQ(counts.count(1), 10u);
  EXPECT_EQ(counts.count(2), 45u);
  EXPECT_EQ(counts.count(10), 1u);
  const auto sampled = missing(Visit({.begin = 10, .all_subsets_up_to = 9, .samples = 50}));
  EXPECT_GT(sampled.size(), 20u);
  EXPECT_GT(*sampled.rbegin() - *sampled.begin(), 3u) << "few and many are lost";
}

TEST_F(CrashStatesTest, TearsWrites) {
  auto file = disk_.Create("/x", false);
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  const std::string bytes(4 * kSectorBytes, 'n');
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
  const Visited visited = Visit({.torn = 500});
  const std::string zeros(bytes.size(), '\0');
  EXPECT_TRUE(visited.states.contains(Files{{"/x", zeros}})) << "the length without the bytes";
  std::string tail = bytes;
  tail.replace(3 * kSectorBytes, kSectorBytes, kSectorBytes, '\0');
  EXPECT_TRUE(visited.states.contains(Files{{"/x", tail}}));
  EXPECT_EQ(visited.states.size(), 1 + 1 + 16u) << "none, empty, and each of the four sectors there or not";
  seen_.clear();
  EXPECT_EQ(Visit({.torn = 0}).states.size(), 3u);
}

TEST_F(CrashStatesTest, TearsNoWriteOfOneSector) {
  Put("/x", std::string(kSectorBytes, 'n'));
  EXPECT_EQ(Visit({.torn = 100}).states.size(), 3u);
}

TEST_F(CrashStatesTest, DependsOnItsSeed) {
  for (char c = 'a'; c < 'a' + 8; ++c) Put(std::string("/") + c, std::string(5000, c));
  const CrashOptions options = {.all_subsets_up_to = 3, .samples = 20, .seed = 7};
  const Visited first = Visit(options);
  seen_.clear();
  EXPECT_EQ(Visit(options).crashes, first.crashes);
  seen_.clear();
  EXPECT_NE(Visit({.all_subsets_up_to = 3, .samples = 20, .seed = 8}).crashes, first.crashes);
  // A part of the prefixes has the states that it has in the whole.
  seen_.clear();
  EXPECT_THAT(Visit({.begin = 10, .all_subsets_up_to = 3, .samples = 20, .seed = 7}).crashes,
              testing::IsSupersetOf(std::vector<std::string>(first.crashes.end() - 20, first.crashes.end())));
}

TEST_F(CrashStatesTest, StopsWhenItIsToldTo) {
  for (const char* path : {"/a", "/b", "/c"}) Put(path, std::string(5000, 'x'));
  for (size_t wanted = 1; wanted < 30; ++wanted) {
    seen_.clear();
    size_t visits = 0;
    const auto visit = [&](const Crash&, const DiskImage&) { return ++visits < wanted; };
    EXPECT_EQ(ForEachCrash(disk_.log(), {}, seen_, visit), wanted);
    EXPECT_EQ(visits, wanted);
  }
}

}  // namespace
}  // namespace tidemark::storage
