#include "tests/crash/enumeration.h"

#include <cstddef>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/check.h"
#include "storage/store/store_layout.h"
#include "tests/crash/disordered_disk.h"
#include "tests/crash/oracle.h"
#include "tests/crash/reopening.h"
#include "tests/crash/scenarios.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::crash {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

void RemoveTreeOf(storage::FileSystem& files, const std::string& path) {
  storage::Check(RemoveTree(files, path).ok(), "a folder could not be removed");
}

// A store whose journal is gone is opened, and loses the one that was made for it then. With `marked`, the scenario
// says that it was opened.
Scenario LoseJournalTwice(bool marked) {
  const storage::StoreLayout layout(kStore);
  return {.name = "LoseJournalTwice",
          .journal_is_sound = false,
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Close();
              },
          .damage = [layout](storage::FileSystem& files) { RemoveTreeOf(files, layout.journal()); },
          .drive =
              [layout, marked](Stage& stage) {
                stage.Open();
                if (marked) stage.Mark(std::string(kJournalIsSound));
                stage.Close();
                RemoveTreeOf(stage.files(), layout.journal());
              }};
}

// `suffix` of the crash's name.
std::vector<std::string> ViolationsOf(const Scenario& scenario, const std::string& suffix = "") {
  const Recording recording = Play(scenario);
  // Without its directory's sync a removal may be lost; as things are at the end, the journal is gone.
  const Enumeration found = Reenact(recording, std::to_string(recording.log.operations.size()) + suffix);
  return found.findings.empty() ? std::vector<std::string>() : found.findings[0].violations;
}

TEST(Enumeration, RebuildOfAJournalThatWasLostBeforeIsNoViolation) {
  EXPECT_THAT(ViolationsOf(LoseJournalTwice(false)), IsEmpty());
}

TEST(Enumeration, RebuildAfterTheStoreWasOpenedIsAViolation) {
  EXPECT_THAT(ViolationsOf(LoseJournalTwice(true)), ElementsAre(HasSubstr("a crash alone has broken the journal")));
}

// Pins and reports are not in the shards. So the loss of the index alone must not be the loss of them.
TEST(Enumeration, FactsThatAreLostAreAViolation) {
  Scenario scenario = PinSteps();
  scenario.journal_is_sound = false;
  const auto drive = scenario.drive;
  scenario.drive = [drive](Stage& stage) {
    drive(stage);
    stage.Open();
    stage.Pin(1, true);
    stage.Close();
    RemoveTreeOf(stage.files(), storage::StoreLayout(kStore).journal());
  };
  EXPECT_THAT(ViolationsOf(scenario), IsEmpty());
  EXPECT_THAT(ViolationsOf(scenario, "!"), testing::Contains("pins: step 1 is not pinned"));
}

// What is done, line by line, without what may differ: ids and, as records have times in them, sizes.
std::string OperationsOf(const storage::DiskLog& log) {
  static const std::regex differing("[0-9a-f]{32}| \\[.*");
  std::string operations;
  for (const storage::DiskOperation& operation : log.operations) {
    operations += std::regex_replace(operation.ToString(), differing, "") + "\n";
  }
  return operations;
}

// Or a crash's name would not lead to the same state again.
TEST(Enumeration, LogOfAScenarioHasTheSameOperationsEveryTime) {
  for (const MakeScenario make : kScenarios) {
    const Scenario scenario = make(1);
    const std::string operations = OperationsOf(Play(scenario).log);
    if (scenario.name == "CloseAndReopen") {
      EXPECT_THAT(operations, ContainsRegex("remove [^\n]*\\.sst")) << "RocksDB compacts at none of the openings";
    }
    for (int i = 0; i < 5; ++i) EXPECT_EQ(OperationsOf(Play(scenario).log), operations) << scenario.name;
  }
}

// Or the name of a crash of the recovery would not lead to the same state again.
TEST(Enumeration, LogAfterACrashHasTheSameOperationsEveryTime) {
  const Recording recording = Play(CloseAndReopen());
  Oracle oracle = recording.before;
  size_t crash = 0;  // behind the last promise
  for (size_t i = 0; i < recording.log.operations.size(); ++i) {
    const storage::DiskOperation& operation = recording.log.operations[i];
    if (operation.kind != storage::DiskOperation::Kind::kMark) continue;
    oracle.Hear(operation.name);
    crash = i + 1;
  }
  const auto reopen = [&] {
    storage::SimulatedDisk disk(recording.log.StateAfter(crash));
    EXPECT_THAT(Reopen(disk, disk, oracle, {.again = true}).violations, IsEmpty());
    return OperationsOf(disk.log());
  };
  const std::string operations = reopen();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(reopen(), operations);
}

// Leaves out the syncs of shards.
std::unique_ptr<storage::FileSystem> WithoutDataSync(storage::FileSystem& disk) {
  auto disordered = std::make_unique<DisorderedDisk>(disk);
  disordered->Drop([](DisorderedDisk::Operation operation, const std::string& path) {
    return operation == DisorderedDisk::Operation::kSyncData && path.ends_with(".tmk");
  });
  return disordered;
}

// Of each violation the promise and the step: what follows may have an attempt's id in it.
std::vector<std::string> BrokenPromises(const Enumeration& found) {
  static const std::regex promise("[A-Za-z0-9]+: .*?step [0-9]+");
  std::vector<std::string> broken;
  for (const Finding& finding : found.findings) {
    for (const std::string& violation : finding.violations) {
      std::smatch match;
      broken.push_back(std::regex_search(violation, match, promise) ? match.str() : violation);
    }
  }
  return broken;
}

TEST(Enumeration, FindingIsMadeAgainByTheNameOfItsCrash) {
  const Enumeration found =
      Enumerate(Play(SaveSteps(), WithoutDataSync), {.seed = 1, .states = 1'000, .findings = 1, .further = false});
  ASSERT_EQ(found.findings.size(), 1u);
  const std::string crash = found.findings[0].crash;
  ASSERT_THAT(crash, Not(HasSubstr("/")));
  const Enumeration again = Reenact(Play(SaveSteps(), WithoutDataSync), crash);
  EXPECT_THAT(BrokenPromises(found), Not(IsEmpty()));
  EXPECT_EQ(BrokenPromises(again), BrokenPromises(found)) << crash;
}

// What is left out is left out by who opens the store after the first crash, so that no first one finds anything.
TEST(Enumeration, FindingIsMadeAgainByTheNamesOfTwoCrashes) {
  const Enumeration found =
      Enumerate(Play(SaveSteps()), {.seed = 1, .states = 1'000, .findings = 1, .disorder = WithoutDataSync});
  ASSERT_EQ(found.findings.size(), 1u);
  const std::string crash = found.findings[0].crash;
  ASSERT_THAT(crash, HasSubstr("/"));
  const Enumeration again = Reenact(Play(SaveSteps()), crash, WithoutDataSync);
  EXPECT_THAT(BrokenPromises(found), Not(IsEmpty()));
  EXPECT_EQ(BrokenPromises(again), BrokenPromises(found)) << crash;
}

}  // namespace
}  // namespace tidemark::crash
