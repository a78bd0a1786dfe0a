// The order in which a save gets to the disk: data, its sync, its names, the manifest's commit. Each of these is left
// out in turn, and any two of them change places; the enumeration of crash states must notice, or it would not notice
// either if the product did so.

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/crash/disordered_disk.h"
#include "tests/crash/scenarios.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::crash {
namespace {

using Operation = DisorderedDisk::Operation;
using storage::DiskLog;
using storage::DiskOperation;

bool IsShard(const std::string& path) { return path.find("/steps/") != std::string::npos && path.ends_with(".tmk"); }
bool IsManifestLog(const std::string& path) {
  return path.find("/manifest/") != std::string::npos && path.ends_with(".log");
}

// The parts of a save, in their order.
struct Part {
  std::string name;
  DisorderedDisk::Match matches;
};
const Part kWrite{"the write of a shard", [](Operation operation, const std::string& path) {
                    return operation == Operation::kWrite && IsShard(path);
                  }};
const Part kDataSync{"the sync of a shard's data", [](Operation operation, const std::string& path) {
                       return operation == Operation::kSyncData && IsShard(path);
                     }};
const Part kAttemptSync{"the sync of an attempt's folder", [](Operation operation, const std::string& path) {
                          return operation == Operation::kSyncDirectory && path.find("/steps/") != std::string::npos;
                        }};
const Part kStepsSync{"the sync of steps/", [](Operation operation, const std::string& path) {
                        return operation == Operation::kSyncDirectory && path.ends_with("/steps");
                      }};
const Part kCommit{"the manifest's commit", [](Operation operation, const std::string& path) {
                     return operation == Operation::kSyncData && IsManifestLog(path);
                   }};
const std::vector<Part> kParts = {kWrite, kDataSync, kAttemptSync, kStepsSync, kCommit};

constexpr size_t kStatesMax = 400;

// What takes many states to be noticed, or is noticed in none of them. Under a sanitizer nothing else would come of it
// than without, an hour later.
class OrderInManyStates : public testing::Test {
 protected:
  void SetUp() override {
    if (storage::kAddressSanitizer || storage::kThreadSanitizer) GTEST_SKIP() << "is for builds without sanitizers";
  }
};

// The scenario with the operations of `part` left out, or, with `until`, done behind the next of those.
Recording PlayDisordered(const Scenario& scenario, const Part& part, const Part* until = nullptr) {
  return Play(scenario, [&](storage::FileSystem& disk) {
    auto disordered = std::make_unique<DisorderedDisk>(disk);
    disordered->Delay(part.matches, until == nullptr ? nullptr : until->matches);
    return disordered;
  });
}

Enumeration FindOne(const Recording& recording) {
  return Enumerate(recording, {.seed = 1, .states = kStatesMax, .findings = 1, .further = false});
}

// Whether a state is found in which a promise is broken, as none is where the scenario is left as it is.
bool IsNoticed(const Scenario& scenario, const Recording& recording, const std::string& what) {
  static std::set<std::string> sound;
  if (sound.insert(scenario.name).second) {
    const Enumeration control = FindOne(Play(scenario));
    for (const Finding& finding : control.findings) Report(finding, scenario.name, 1);
    EXPECT_GT(control.states(), 0u);
  }
  const Enumeration found = FindOne(recording);
  std::cout << what << ": ";
  if (found.findings.empty()) {
    std::cout << "not noticed in " << found.states() << " states\n";
    return false;
  }
  std::cout << "noticed in state " << found.states() << ": " << found.findings[0].violations[0] << "\n";
  return true;
}

// The last operation that matches, in [begin, end) of a log.
std::optional<size_t> LastOf(const DiskLog& log, const Part& part, size_t begin, size_t end) {
  for (size_t i = end; i-- > begin;) {
    const DiskOperation& operation = log.operations[i];
    using Kind = DiskOperation::Kind;
    const std::optional<Operation> kind = operation.kind == Kind::kWrite      ? std::optional(Operation::kWrite)
                                          : operation.kind == Kind::kSyncData ? std::optional(Operation::kSyncData)
                                          : operation.kind == Kind::kSyncDirectory
                                              ? std::optional(Operation::kSyncDirectory)
                                              : std::nullopt;
    if (kind && part.matches(*kind, operation.path)) return i;
  }
  return std::nullopt;
}

// Which parts of the scenario's saves come before the ones that they must come behind, or not at all.
std::vector<std::string> Misplaced(const DiskLog& log) {
  std::vector<std::string> misplaced;
  size_t begin = 0;
  for (size_t i = 0; i < log.operations.size(); ++i) {
    const DiskOperation& operation = log.operations[i];
    if (operation.kind != DiskOperation::Kind::kMark) continue;
    if (operation.name.starts_with("saving ")) begin = i;
    if (!operation.name.starts_with("saved ")) continue;
    std::optional<size_t> before = begin;
    for (const Part& part : kParts) {
      const std::optional<size_t> at = LastOf(log, part, begin, i);
      if (!at || *at < *before) misplaced.push_back(part.name);
      before = std::max(at, before);
    }
  }
  return misplaced;
}

TEST(Order, OfASaveIsDataThenNamesThenTheCommit) {
  for (const Scenario& scenario : {SaveSteps(), Retain()}) {
    EXPECT_THAT(Misplaced(Play(scenario).log), testing::IsEmpty()) << scenario.name;
  }
}

TEST_F(OrderInManyStates, WithoutTheWriteOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kWrite), "without " + kWrite.name));
}

TEST(Order, WithoutTheSyncOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kDataSync), "without " + kDataSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfAnAttemptIsNoticed) {
  EXPECT_TRUE(IsNoticed(Overwrite(), PlayDisordered(Overwrite(), kAttemptSync), "without " + kAttemptSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfTheStepsIsNoticed) {
  EXPECT_TRUE(IsNoticed(Overwrite(), PlayDisordered(Overwrite(), kStepsSync), "without " + kStepsSync.name));
}

TEST(Order, WithoutTheCommitIsNoticed) {
  EXPECT_TRUE(IsNoticed(Retain(), PlayDisordered(Retain(), kCommit), "retention without " + kCommit.name));
  EXPECT_TRUE(IsNoticed(ReportMetrics(), PlayDisordered(ReportMetrics(), kCommit), "reports without " + kCommit.name));
  EXPECT_TRUE(IsNoticed(PinSteps(), PlayDisordered(PinSteps(), kCommit), "pins without " + kCommit.name));
}

// A complete attempt that no record knows is adopted: of a new step, the commit's sync only keeps what adoption would
// cost. What shows that it is left out is what only the manifest knows, above.
TEST_F(OrderInManyStates, WithoutTheCommitOfANewStepIsHarmless) {
  EXPECT_FALSE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kCommit), "new steps without " + kCommit.name));
}

// One part after another one that it should come before. Between the syncs of data and of names nothing is promised:
// to exchange those loses nothing, and only the log shows it.
class OrderOfTwo : public OrderInManyStates, public testing::WithParamInterface<std::pair<size_t, size_t>> {};

TEST_P(OrderOfTwo, IsNoticedWhereItIsBroken) {
  const auto [first, second] = GetParam();
  const Part& late = kParts[first];
  const Part& early = kParts[second];
  const Recording recording = PlayDisordered(SaveSteps(), late, &early);
  EXPECT_THAT(Misplaced(recording.log), testing::Not(testing::IsEmpty()));
  const bool both_before_the_commit = first > 0 && second + 1 < kParts.size();
  EXPECT_EQ(IsNoticed(SaveSteps(), recording, late.name + " behind " + early.name), !both_before_the_commit);
}

INSTANTIATE_TEST_SUITE_P(AnyTwo, OrderOfTwo, testing::ValuesIn([] {
                           std::vector<std::pair<size_t, size_t>> pairs;
                           for (size_t first = 0; first < kParts.size(); ++first) {
                             for (size_t second = first + 1; second < kParts.size(); ++second) {
                               pairs.emplace_back(first, second);
                             }
                           }
                           return pairs;
                         }()));

}  // namespace
}  // namespace tidemark::crash
