// The order in which a save gets to the disk: data, its sync, its names, the entry of the journal, its sync, its name.
// Each of these is left out in turn, any two of them change places, and one that has failed is tried again. The
// enumeration of crash states must notice by the loss of a step or of a fact, or it would not notice either if the
// product did so. Of the index nothing needs a sync.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_layout.h"
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
bool IsEntry(const std::string& path) { return path.find("/journal/0000/") != std::string::npos; }

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
const Part kEntrySync{"the sync of an entry", [](Operation operation, const std::string& path) {
                        return operation == Operation::kSyncData && IsEntry(path);
                      }};
const Part kCommit{"the sync of the entry's name, the commit", [](Operation operation, const std::string& path) {
                     return operation == Operation::kSyncDirectory && IsEntry(path);
                   }};
// Only where the shard is another file's that was renamed.
const Part kOriginSync{"the sync of the directory that the shard came from",
                       [](Operation operation, const std::string& path) {
                         return operation == Operation::kSyncDirectory && path == kStore;
                       }};
const std::vector<Part> kParts = {kWrite, kDataSync, kAttemptSync, kStepsSync, kEntrySync, kCommit};

const Part kFolderSyncs{"the syncs of the names of the journal's folders",
                        [](Operation operation, const std::string& path) {
                          return operation == Operation::kSyncDirectory &&
                                 (path == kStore || path.ends_with("/journal") || path.ends_with("/journal/0000"));
                        }};

const Part kQuarantineSync{"the sync of quarantine/", [](Operation operation, const std::string& path) {
                             return operation == Operation::kSyncDirectory && path.ends_with("/quarantine");
                           }};

const Part kIndexSyncs{"all syncs of the index", [](Operation operation, const std::string& path) {
                         return (operation == Operation::kSyncData || operation == Operation::kSyncDirectory) &&
                                path.find("/index") != std::string::npos;
                       }};

// Whether a promise about a step or a fact is broken, and not only one about opening.
bool IsLoss(const std::string& violation) {
  for (const std::string_view what :
       {"I1: ", "I2: ", "I4: ", "metrics: ", "pins: ", "tags: ", "discard: ", "quarantine: "}) {
    if (violation.starts_with(what)) return true;
  }
  return false;
}
bool LosesSomething(const Finding& finding) {
  return std::any_of(finding.violations.begin(), finding.violations.end(), IsLoss);
}

constexpr const char* kBrokenJournal = "a crash alone has broken the journal";

constexpr size_t kStatesMax = 400;

// Where nothing is to be noticed.
constexpr size_t kSoundStates = 120;

// What takes many states to be noticed, or is noticed in none of them. Under a sanitizer nothing else would come of it
// than without, an hour later.
class OrderInManyStates : public testing::Test {
 protected:
  void SetUp() override {
    if (storage::kAddressSanitizer) GTEST_SKIP() << "is for builds without sanitizers";
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

// Whether a state is found in which a step or a fact is lost. That none is found where a scenario is left as it is,
// scenarios_test.cc shows of those that it has, and ExpectSound of the others.
bool IsNoticed(const Recording& recording, const std::string& what, size_t states_max = kStatesMax) {
  const Enumeration found = Enumerate(
      recording, {.seed = 1, .states = states_max, .findings = 1, .further = false, .counts = LosesSomething});
  std::cout << what << ": ";
  if (found.findings.empty()) {
    std::cout << "not noticed in " << found.states() << " states\n";
    return false;
  }
  const std::vector<std::string>& violations = found.findings[0].violations;
  std::cout << "noticed in state " << found.states() << ": "
            << *std::find_if(violations.begin(), violations.end(), IsLoss) << "\n";
  return true;
}

void ExpectSound(const Recording& recording, const std::string& what) {
  const Enumeration found = Enumerate(recording, {.seed = 1, .states = kSoundStates, .findings = 1, .further = false});
  for (const Finding& finding : found.findings) Report(finding, what, 1);
  EXPECT_GT(found.states(), kSoundStates / 2);  // each counts once
}

// One save in a log.
struct LoggedSave {
  size_t begin = 0;                // the mark that it has begun
  size_t promise = 0;              // the mark that it is committed
  size_t record = 0;               // the write of its entry; what follows is about what it has replaced
  std::string folder;              // of the attempt
  std::optional<size_t> recycled;  // the rename that made another file its shard
};

// The save between two marks. Nothing where there is no shard, or no entry that names its attempt.
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
  const std::string bytes(attempt->attempt.bytes.begin(), attempt->attempt.bytes.end());
  for (save.record = begin; save.record < promise; ++save.record) {
    const DiskOperation& operation = log.operations[save.record];
    if (operation.kind != DiskOperation::Kind::kWrite || !IsEntry(operation.path)) continue;
    if (operation.bytes->find(id) != std::string::npos || operation.bytes->find(bytes) != std::string::npos)
      return save;
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

// Adds the parts of the save that do not come behind the ones before them. All of the shard come before the entry is
// written; the entry's syncs follow that.
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
  at = expect(kEntrySync.name, kEntrySync.matches, save.record, save.promise);
  expect(kCommit.name, kCommit.matches, at, save.promise);
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
      misplaced.push_back("the entry of a save");
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

// Each of them is missed in the log as well, whatever the states show.
TEST(Order, WithoutAnyPartOfASaveIsMisplaced) {
  for (const Part& part : kParts) {
    EXPECT_THAT(Misplaced(PlayDisordered(SaveSteps(), part).log),
                testing::ElementsAre(part.name, part.name, part.name));
  }
}

TEST_F(OrderInManyStates, WithoutTheWriteOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(PlayDisordered(SaveSteps(), kWrite), "without " + kWrite.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfAShardIsNoticed) {
  EXPECT_TRUE(IsNoticed(PlayDisordered(SaveSteps(), kDataSync), "without " + kDataSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfAnAttemptIsNoticed) {
  EXPECT_TRUE(IsNoticed(PlayDisordered(Overwrite(), kAttemptSync), "without " + kAttemptSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfTheStepsIsNoticed) {
  EXPECT_TRUE(IsNoticed(PlayDisordered(Overwrite(), kStepsSync), "without " + kStepsSync.name));
}

TEST_F(OrderInManyStates, WithoutTheSyncOfWhereARecycledShardCameFromIsNoticed) {
  const Recording recording = PlayDisordered(Overwrite(), kOriginSync);
  ASSERT_GT(RecycledShards(recording.log), 0u);
  EXPECT_THAT(Misplaced(recording.log), testing::Contains(kOriginSync.name));
  EXPECT_TRUE(IsNoticed(recording, "without " + kOriginSync.name));
}

TEST_F(OrderInManyStates, WithTheSyncOfWhereARecycledShardCameFromBehindTheCommitIsNoticed) {
  const Recording recording = PlayDisordered(Overwrite(), kOriginSync, &kCommit);
  ASSERT_GT(RecycledShards(recording.log), 0u);
  EXPECT_THAT(Misplaced(recording.log), testing::Contains(kOriginSync.name));
  EXPECT_TRUE(IsNoticed(recording, kOriginSync.name + " behind " + kCommit.name));
}

// What is not in the shards is lost. The steps themselves are taken from there, for which the journal is made anew.
TEST_F(OrderInManyStates, WithoutTheSyncOfAnEntryIsNoticed) {
  for (const Scenario& scenario : {ReportMetrics(), PinSteps(), AskAsTool(), Retain()}) {
    EXPECT_TRUE(IsNoticed(PlayDisordered(scenario, kEntrySync), scenario.name + " without " + kEntrySync.name));
  }
  const Enumeration found = Enumerate(PlayDisordered(SaveSteps(), kEntrySync),
                                      {.seed = 1, .states = kStatesMax, .findings = 1, .further = false});
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_THAT(found.findings[0].violations, testing::ElementsAre(testing::StartsWith(kBrokenJournal)));
}

// Of whatever kind the fact is.
TEST_F(OrderInManyStates, WithoutTheCommitIsNoticed) {
  for (const Scenario& scenario : {SaveSteps(), Overwrite(), ReportMetrics(), PinSteps(), AskAsTool(), Retain()}) {
    EXPECT_TRUE(IsNoticed(PlayDisordered(scenario, kCommit), scenario.name + " without " + kCommit.name));
  }
}

TEST_F(OrderInManyStates, WithoutTheSyncsOfTheJournalsFoldersIsNoticed) {
  Scenario first = OpenEmpty();
  first.name = "PinTheFirst";  // which no shard says
  first.drive = [](Stage& stage) {
    stage.Open();
    stage.Save(1, 1);
    stage.Pin(1, true);
  };
  ExpectSound(Play(first), first.name);
  for (const Scenario& scenario : {first, CrossFolders()}) {
    EXPECT_TRUE(IsNoticed(PlayDisordered(scenario, kFolderSyncs), scenario.name + " without " + kFolderSyncs.name));
  }
}

// The attempt comes back without a record, and is removed like any that was never committed.
TEST_F(OrderInManyStates, WithoutTheSyncOfTheQuarantineIsNoticed) {
  const Recording recording = PlayDisordered(RebuildFromShards(), kQuarantineSync);
  EXPECT_TRUE(IsNoticed(recording, "without " + kQuarantineSync.name));
}

// What it does not know, it reads in the journal.
TEST_F(OrderInManyStates, WithoutAnySyncOfTheIndexNothingIsLost) {
  for (const Scenario& scenario : {SaveSteps(), Overwrite(), ReportMetrics(), PinSteps(), Retain(), CloseAndReopen()}) {
    ExpectSound(PlayDisordered(scenario, kIndexSyncs), scenario.name + " without " + kIndexSyncs.name);
  }
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
    return IsNoticed(Play(scenario), what + " again after it has failed");
  };
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncData", ".tmk", save), kDataSync.name));
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncDirectory", "/steps", save), kStepsSync.name));
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncDirectory", "/journal/0000/00", save), kCommit.name));
  EXPECT_TRUE(is_noticed(RepeatAFailedSync("SyncDirectory", "/journal/0000/00", report), kCommit.name));
}

// One part after another one that it should come before. Nothing is promised before the commit: to exchange what comes
// before it loses nothing, except a write that no sync follows, and only the log shows it. An entry whose sync comes
// after its commit, in the moment between them, is one that nothing was promised about; the journal is broken by it.
class OrderOfTwo : public OrderInManyStates, public testing::WithParamInterface<std::pair<size_t, size_t>> {};

TEST_P(OrderOfTwo, IsNoticedWhereItIsBroken) {
  const auto [first, second] = GetParam();
  const Part& late = kParts[first];
  const Part& early = kParts[second];
  const Recording recording = PlayDisordered(Overwrite(), late, &early);
  EXPECT_THAT(Misplaced(recording.log), testing::Not(testing::IsEmpty()));
  const bool is_entry_behind_commit = first + 2 == kParts.size();
  const bool loses = first == 0 || (second + 1 == kParts.size() && !is_entry_behind_commit);
  EXPECT_EQ(IsNoticed(recording, late.name + " behind " + early.name, loses ? kStatesMax : kSoundStates), loses);
  if (!is_entry_behind_commit) return;
  const Enumeration found = Enumerate(recording, {.seed = 1, .states = kStatesMax, .findings = 1, .further = false});
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_THAT(found.findings[0].violations, testing::ElementsAre(testing::StartsWith(kBrokenJournal)));
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
