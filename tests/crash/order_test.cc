// The order in which a save gets to the disk: data, its sync, its names, the manifest's commit. Each of these is left
// out in turn, any two of them change places, and one that has failed is tried again. The same of what carries out
// requests: the record, its sync, then the file goes, and a sync of the inbox before the next one of that step. And of
// what puts a damaged attempt into quarantine: the move is synced before a manifest counts that has no record of it.
// The enumeration of crash states must notice, or it would not notice either if the product did so.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/store_layout.h"
#include "tests/crash/disordered_disk.h"
#include "tests/crash/failing_disk.h"
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
const Part kRecord{"the record of the save", [](Operation operation, const std::string& path) {
                     return operation == Operation::kWrite && IsManifestLog(path);
                   }};
// Only where the shard is another file's that was renamed.
const Part kOriginSync{"the sync of the directory that the shard came from",
                       [](Operation operation, const std::string& path) {
                         return operation == Operation::kSyncDirectory && path == kStore;
                       }};
const std::vector<Part> kParts = {kWrite, kDataSync, kAttemptSync, kStepsSync, kCommit};

const Part kRequestRemoval{"the removal of a request's file", [](Operation operation, const std::string& path) {
                             return operation == Operation::kRemove && path.find("/inbox/") != std::string::npos &&
                                    !path.ends_with(".tmp");  // a draft
                           }};
// By who carries requests out. Who asks has written and synced a file before.
const Part kInboxSync{"the syncs of the inbox behind the removals of requests",
                      [delivered = false](Operation operation, const std::string& path) mutable {
                        if (path.find("/inbox") == std::string::npos) return false;
                        if (operation == Operation::kSyncData) delivered = true;
                        return operation == Operation::kSyncDirectory && !std::exchange(delivered, false);
                      }};

const Part kQuarantineSync{"the sync of quarantine/", [](Operation operation, const std::string& path) {
                             return operation == Operation::kSyncDirectory && path.ends_with("/quarantine");
                           }};

constexpr size_t kStatesMax = 400;

// More than there are after one crash of any scenario. Where only few prefixes show that an operation is missing, fewer
// states may have none of these with the right loss.
constexpr size_t kAllStates = 10'000;

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

Enumeration FindOne(const Recording& recording, size_t states_max = kStatesMax) {
  return Enumerate(recording, {.seed = 1, .states = states_max, .findings = 1, .further = false});
}

// Whether a state is found in which a promise is broken, as none is where the scenario is left as it is.
bool IsNoticed(const Scenario& scenario, const Recording& recording, const std::string& what,
               size_t states_max = kStatesMax) {
  static std::set<std::string> sound;
  if (sound.insert(scenario.name).second) {
    const Enumeration control = FindOne(Play(scenario));
    for (const Finding& finding : control.findings) Report(finding, scenario.name, 1);
    EXPECT_GT(control.states(), 0u);
  }
  const Enumeration found = FindOne(recording, states_max);
  std::cout << what << ": ";
  if (found.findings.empty()) {
    std::cout << "not noticed in " << found.states() << " states\n";
    return false;
  }
  std::cout << "noticed in state " << found.states() << ": " << found.findings[0].violations[0] << "\n";
  return true;
}

// One save in a log.
struct LoggedSave {
  size_t begin = 0;                // the mark that it has begun
  size_t promise = 0;              // the mark that it is committed
  size_t record = 0;               // the write of its record; what follows is about what it has replaced
  std::string folder;              // of the attempt
  std::optional<size_t> recycled;  // the rename that made another file its shard
};

// The save between two marks. Nothing where there is no shard, or no record of its attempt.
std::optional<LoggedSave> FindSave(const DiskLog& log, size_t begin, size_t promise) {
  LoggedSave save{.begin = begin, .promise = promise};
  // An attempt that failed may come before.
  for (size_t i = begin; i < promise; ++i) {
    const DiskOperation& operation = log.operations[i];
    const bool renamed = operation.kind == DiskOperation::Kind::kRename;
    const std::string& path = renamed ? operation.new_path : operation.path;
    if (!IsShard(path) || (!renamed && operation.kind != DiskOperation::Kind::kCreateFile)) continue;
    save.folder = path.substr(0, path.rfind('/'));
    save.recycled = renamed ? std::optional(i) : std::nullopt;
  }
  const auto attempt = storage::ParseStepFolderName(save.folder.substr(save.folder.rfind('/') + 1));
  if (!attempt) return std::nullopt;
  const std::string id = storage::ToHex(attempt->attempt.bytes);
  for (save.record = begin; save.record < promise; ++save.record) {
    const DiskOperation& operation = log.operations[save.record];
    if (operation.kind != DiskOperation::Kind::kWrite || !IsManifestLog(operation.path)) continue;
    if (operation.bytes->find(id) != std::string::npos) return save;
  }
  return std::nullopt;
}

// What an operation of a log is to a disordered disk. Nothing for those that it lets pass.
std::optional<Operation> OperationOf(const DiskOperation& operation) {
  switch (operation.kind) {
    case DiskOperation::Kind::kWrite:
      return Operation::kWrite;
    case DiskOperation::Kind::kSyncData:
      return Operation::kSyncData;
    case DiskOperation::Kind::kSyncDirectory:
      return Operation::kSyncDirectory;
    case DiskOperation::Kind::kRemove:
      return Operation::kRemove;
    default:
      return std::nullopt;
  }
}

// The operations that match, in [begin, end) of a log.
std::vector<size_t> Find(const DiskLog& log, const DisorderedDisk::Match& matches, size_t begin, size_t end) {
  std::vector<size_t> found;
  for (size_t i = begin; i < end; ++i) {
    const std::optional<Operation> operation = OperationOf(log.operations[i]);
    if (operation && matches(*operation, log.operations[i].path)) found.push_back(i);
  }
  return found;
}

// Adds the parts of the save that do not come behind the ones before them. All but the commit come before the record is
// written; the commit's sync follows that.
void AddMisplaced(const DiskLog& log, const LoggedSave& save, std::vector<std::string>& misplaced) {
  const auto of_attempt = [&](const Part& part) {
    return [&](Operation operation, const std::string& path) {
      return part.matches(operation, path) && path.starts_with(save.folder);
    };
  };
  // No byte of it may be written behind that either.
  const std::vector<size_t> writes = Find(log, of_attempt(kWrite), save.begin, save.promise);
  if (writes.empty()) misplaced.push_back(kWrite.name);
  size_t at = writes.empty() ? save.begin : writes.back();
  const auto expect = [&](const std::string& name, const DisorderedDisk::Match& matches, size_t begin, size_t end) {
    const std::vector<size_t> found = Find(log, matches, begin, end);
    if (found.empty()) misplaced.push_back(name);
    return found.empty() ? begin : found.front();
  };
  at = expect(kDataSync.name, of_attempt(kDataSync), at, save.record);
  at = expect(kAttemptSync.name, of_attempt(kAttemptSync), at, save.record);
  expect(kStepsSync.name, kStepsSync.matches, at, save.record);
  if (save.recycled) expect(kOriginSync.name, kOriginSync.matches, *save.recycled, save.record);
  expect(kCommit.name, kCommit.matches, save.record, save.promise);
}

// What of the scenario's saves is not where it must be.
std::vector<std::string> Misplaced(const DiskLog& log) {
  std::vector<std::string> misplaced;
  size_t begin = 0;
  for (size_t i = 0; i < log.operations.size(); ++i) {
    const DiskOperation& operation = log.operations[i];
    if (operation.kind != DiskOperation::Kind::kMark) continue;
    if (operation.name.starts_with("saving ")) begin = i;
    if (!operation.name.starts_with("saved ")) continue;
    if (const auto save = FindSave(log, begin, i)) {
      AddMisplaced(log, *save, misplaced);
    } else {
      misplaced.push_back(kRecord.name);
    }
  }
  return misplaced;
}

size_t RecycledShards(const DiskLog& log) {
  return static_cast<size_t>(std::count_if(log.operations.begin(), log.operations.end(), [](const auto& operation) {
    return operation.kind == DiskOperation::Kind::kRename && IsShard(operation.new_path);
  }));
}

TEST(Order, OfASaveIsDataThenNamesThenTheCommit) {
  for (const Scenario& scenario : {OpenEmpty(), SaveSteps(), Overwrite(), PinSteps(), Retain(), SaveOnAFailingDisk()}) {
    EXPECT_THAT(Misplaced(Play(scenario).log), testing::IsEmpty()) << scenario.name;
  }
}

TEST(Order, WithoutTheRecordOfASaveIsMisplaced) {
  EXPECT_THAT(Misplaced(PlayDisordered(SaveSteps(), kRecord).log),
              testing::ElementsAre(kRecord.name, kRecord.name, kRecord.name));
}

// Each of them is missed in the log as well, whatever the states show.
TEST(Order, WithoutAnyPartOfASaveIsMisplaced) {
  for (const Part& part : {kWrite, kDataSync, kAttemptSync, kStepsSync, kCommit}) {
    EXPECT_THAT(Misplaced(PlayDisordered(SaveSteps(), part).log),
                testing::ElementsAre(part.name, part.name, part.name));
  }
}

TEST_F(OrderInManyStates, WithoutTheWriteOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kWrite), "without " + kWrite.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kDataSync), "without " + kDataSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfAnAttemptIsNoticed) {
  EXPECT_TRUE(IsNoticed(Overwrite(), PlayDisordered(Overwrite(), kAttemptSync), "without " + kAttemptSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfTheStepsIsNoticed) {
  EXPECT_TRUE(IsNoticed(Overwrite(), PlayDisordered(Overwrite(), kStepsSync), "without " + kStepsSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfWhereARecycledShardCameFromIsNoticed) {
  const Recording recording = PlayDisordered(Overwrite(), kOriginSync);
  ASSERT_GT(RecycledShards(recording.log), 0u);
  EXPECT_THAT(Misplaced(recording.log), testing::Contains(kOriginSync.name));
  EXPECT_TRUE(IsNoticed(Overwrite(), recording, "without " + kOriginSync.name));
}

TEST_F(OrderInManyStates, WithTheSyncOfWhereARecycledShardCameFromBehindTheCommitIsNoticed) {
  const Recording recording = PlayDisordered(Overwrite(), kOriginSync, &kCommit);
  ASSERT_GT(RecycledShards(recording.log), 0u);
  EXPECT_THAT(Misplaced(recording.log), testing::Contains(kOriginSync.name));
  EXPECT_TRUE(IsNoticed(Overwrite(), recording, kOriginSync.name + " behind " + kCommit.name));
}

TEST_F(OrderInManyStates, WithoutTheCommitIsNoticed) {
  EXPECT_TRUE(IsNoticed(Retain(), PlayDisordered(Retain(), kCommit), "retention without " + kCommit.name));
  EXPECT_TRUE(IsNoticed(ReportMetrics(), PlayDisordered(ReportMetrics(), kCommit), "reports without " + kCommit.name));
  EXPECT_TRUE(IsNoticed(PinSteps(), PlayDisordered(PinSteps(), kCommit), "pins without " + kCommit.name));
}

// A complete attempt that no record knows is adopted: of a new step, the commit's sync only keeps what adoption would
// cost. What shows that it is left out is what only the manifest knows, above, and the log, further above.
TEST_F(OrderInManyStates, WithoutTheCommitOfANewStepIsHarmless) {
  EXPECT_FALSE(IsNoticed(SaveSteps(), PlayDisordered(SaveSteps(), kCommit), "new steps without " + kCommit.name));
}

// The request would be carried out once more if the record were lost: without its file nobody knows of it.
TEST_F(OrderInManyStates, OfARequestWhoseFileGoesBeforeItsRecordIsSyncedIsNoticed) {
  EXPECT_TRUE(IsNoticed(AskByInbox(), PlayDisordered(AskByInbox(), kCommit, &kRequestRemoval),
                        kCommit.name + " behind " + kRequestRemoval.name, kAllStates));
}

// The earlier request comes back, and is carried out after the later one.
TEST_F(OrderInManyStates, OfTwoRequestsWithoutASyncOfTheInboxBetweenThemIsNoticed) {
  EXPECT_TRUE(
      IsNoticed(AskByInbox(), PlayDisordered(AskByInbox(), kInboxSync), "without " + kInboxSync.name, kAllStates));
}

// The attempt comes back without a record, and is removed like any that was never committed.
TEST_F(OrderInManyStates, WithoutTheSyncOfTheQuarantineIsNoticed) {
  EXPECT_TRUE(
      IsNoticed(Repair(), PlayDisordered(Repair(), kQuarantineSync), "without " + kQuarantineSync.name, kAllStates));
}

// What the product does not do where a sync fails: call it again, and believe that.
Scenario RepeatAFailedSync(const std::string& operation, const std::string& suffix,
                           const std::function<void(Stage&)>& act) {
  Scenario scenario = SaveSteps();
  scenario.name = "RepeatAFailedSync";
  scenario.drive = [=](Stage& stage) {
    FailingDisk failing(stage.disk());
    DisorderedDisk trusting(failing.files());
    trusting.Repeat([](Operation, const std::string&) { return true; });
    Stage unlucky(stage.disk(), trusting);
    unlucky.Open();
    failing.FailOnce(operation, suffix, absl::InternalError("EIO"));
    act(unlucky);
  };
  return scenario;
}

TEST_F(OrderInManyStates, SyncThatIsRepeatedAfterAFailureIsNoticed) {
  const auto save = [](Stage& stage) {
    stage.Save(2, 1);
    stage.Save(3, 1);
  };
  const auto report = [](Stage& stage) { stage.Report(1, "bench", 0.5); };
  const auto is_noticed = [](const Scenario& scenario, const std::string& what) {
    return IsNoticed(SaveOnAFailingDisk(), Play(scenario), what + " again after it has failed");
  };
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncData", ".tmk", save), kDataSync.name));
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncDirectory", "/steps", save), kStepsSync.name));
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncData", ".log", report), kCommit.name));
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
