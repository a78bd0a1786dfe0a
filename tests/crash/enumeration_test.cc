#include "tests/crash/enumeration.h"

#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/check.h"
#include "storage/manifest/store_layout.h"
#include "tests/crash/scenarios.h"

namespace tidemark::crash {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void RemoveManifest(storage::FileSystem& files) {
  storage::Check(RemoveTree(files, storage::StoreLayout(kStore).manifest()).ok(), "a manifest could not be removed");
}

// A store whose manifest is gone is opened, and loses the one that was made for it then. With `marked`, the scenario
// says that it was opened.
Scenario LoseManifestTwice(bool marked) {
  return {.name = "LoseManifestTwice",
          .manifest_is_sound = false,
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Close();
              },
          .damage = RemoveManifest,
          .drive =
              [marked](Stage& stage) {
                stage.Open();
                if (marked) stage.Mark(std::string(kManifestIsSound));
                stage.Close();
                RemoveManifest(stage.files());
              }};
}

std::vector<std::string> ViolationsOf(const Scenario& scenario) {
  const Recording recording = Play(scenario);
  // Without its directory's sync a removal may be lost; as things are at the end, the manifest is gone.
  const Enumeration found = Reenact(recording, std::to_string(recording.log.operations.size()));
  return found.findings.empty() ? std::vector<std::string>() : found.findings[0].violations;
}

TEST(Enumeration, RebuildOfAManifestThatWasLostBeforeIsNoViolation) {
  EXPECT_THAT(ViolationsOf(LoseManifestTwice(false)), IsEmpty());
}

TEST(Enumeration, RebuildAfterTheStoreWasOpenedIsAViolation) {
  EXPECT_THAT(ViolationsOf(LoseManifestTwice(true)), ElementsAre(HasSubstr("a crash alone has broken the manifest")));
}

// What is done, line by line, without what may differ: ids and, as records have times in them, sizes.
std::string OperationsOf(const Scenario& scenario) {
  static const std::regex differing("[0-9a-f]{32}| \\[.*");
  std::string operations;
  for (const storage::DiskOperation& operation : Play(scenario).log.operations) {
    operations += std::regex_replace(operation.ToString(), differing, "") + "\n";
  }
  return operations;
}

// Or a crash's name would not lead to the same state again.
TEST(Enumeration, LogOfAScenarioHasTheSameOperationsEveryTime) {
  for (const Scenario& scenario : {Overwrite(), Retain(), RetainLeased(), SaveOnAFailingDisk(), LiveAtRandom(1)}) {
    const std::string operations = OperationsOf(scenario);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(OperationsOf(scenario), operations) << scenario.name;
  }
}

}  // namespace
}  // namespace tidemark::crash
