#include "tests/storage/io/disk_states.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

class DiskStatesTest : public testing::Test {
 protected:
  // A few names in a few directories, so that they are made, moved, replaced and removed over and over.
  std::string SomePath() {
    static constexpr const char* kDirectories[] = {"", "", "/d", "/e", "/d/d"};
    return std::string(kDirectories[random_() % 5]) + "/" + "abde"[random_() % 4];
  }

  // What is not possible just now is not done.
  void DoSomething(SimulatedDisk& disk) {
    const std::string path = SomePath();
    const size_t which = random_() % 12;
    if (which < 2) {
      disk.Create(path, false).status().IgnoreError();
    } else if (which == 2) {
      disk.CreateDirectory(path).IgnoreError();
    } else if (which < 5) {
      disk.Rename(path, SomePath()).IgnoreError();
    } else if (which == 5) {
      disk.RemoveFile(path).IgnoreError();
    } else if (which == 6) {
      disk.RemoveDirectory(path).IgnoreError();
    } else if (which == 7) {
      disk.SyncDirectory(path.substr(0, path.rfind('/') + 1)).IgnoreError();
    } else if (auto file = disk.OpenForRewrite(path, false); file.ok()) {
      const std::string bytes(1 + random_() % 3000, static_cast<char>('a' + random_() % 26));
      if (which == 8) {
        ASSERT_THAT((*file)->Truncate(random_() % 3000), IsOk());
      } else if (which == 9) {
        ASSERT_THAT((*file)->SyncData(), IsOk());
      } else {
        ASSERT_THAT((*file)->WriteAt(random_() % 3000, std::as_bytes(std::span(bytes))), IsOk());
      }
    }
  }

  std::vector<LostOperation> SomeLost(const DiskLog& log, size_t prefix) {
    std::vector<LostOperation> lost;
    const uint64_t rate = random_() % 5;
    for (const size_t index : log.Unsynced(prefix)) {
      if (random_() % 5 >= rate) continue;
      lost.push_back({.index = index});
      if (log.operations[index].kind == DiskOperation::Kind::kWrite && random_() % 2 == 0) {
        lost.back().sector_mask = random_();
      }
    }
    return lost;
  }

  std::mt19937_64 random_;
};

TEST_F(DiskStatesTest, AreWhatTheLogSaysInAnyOrder) {
  for (uint32_t run = 0; run < 30; ++run) {
    const uint32_t seed = SeedOfCases() + run;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    random_.seed(seed);
    SimulatedDisk first;
    for (int i = 0; i < 20; ++i) DoSomething(first);
    SimulatedDisk disk(first.image());
    for (int i = 0; i < 80; ++i) DoSomething(disk);
    const DiskLog log = disk.log();
    DiskStates states(log);
    for (size_t i = 0; i < 3 * log.operations.size(); ++i) {
      // In order at first, then anywhere.
      const size_t prefix = i < 2 * log.operations.size() ? i / 2 : random_() % (log.operations.size() + 1);
      const std::vector<LostOperation> lost = SomeLost(log, prefix);
      const DiskImage expected = log.StateAfter(prefix, lost);
      const DiskImage state = states.After(prefix, lost);
      ASSERT_EQ(state.Contents(), expected.Contents()) << prefix;
      ASSERT_EQ(state.Fingerprint(), expected.Fingerprint()) << prefix;
      ASSERT_EQ(state.time, expected.time);
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
