#include <filesystem>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;

// Four saves, one every hour, of which the first was deleted.
class StatsTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Time start = absl::Now() - absl::Hours(5);
    for (const int64_t step : {1, 2, 3, 4}) store_.Save({step}, {}, 5000, start + step * absl::Hours(1));
    store_.Delete(1, "not among the latest 3");
    store_.Update(2, [](StepInfo& info) { info.kept = "best loss (top1) (0.25)"; });
    store_.Update(3, [](StepInfo& info) { info.kept = "best loss (top1) (0.5)"; });
    store_.Update(4, [](StepInfo& info) { info.kept = "latest"; });
  }

  TestStore store_;
};

TEST_F(StatsTest, SaysWhatTakesTheRoomAndHowFastItGrows) {
  std::filesystem::create_directories(store_.directory() + "/journal.broken-1");
  WriteWhole(store_.directory() + "/journal.broken-1/0000000001", std::string(100'000, 'x'));
  const Finished stats = RunInspect({"--store", store_.directory(), "stats"});
  EXPECT_EQ(stats.exit_code, 0);
  EXPECT_EQ(stats.err, "");
  const std::string bytes = " +[0-9.]+ [KMGTP]?i?B";
  EXPECT_THAT(
      stats.out,
      MatchesRegex(
          "STATE +STEPS +LOGICAL +STORED +RATIO +REUSED\n"
          "committed +3" +
          bytes + bytes +
          " +[0-9.]+ +0 %\n"
          "deleted +1" +
          bytes + bytes +
          " +[0-9.]+ +0 %\n"
          "compression: [0-9]+ % of logical size \\([0-9]+ % counting shared chunks in every step\\)\n\n"
          "ON DISK +BYTES +SHARE\n([^\n]+\n)+total" +
          bytes +
          "\n\n"
          "KEPT BECAUSE +STEPS +STORED\n"
          R"(best loss \(top1\) +2)" +
          bytes +
          "\n"
          "latest +1" +
          bytes +
          "\n\n"
          "growth:" +
          bytes + " a day written \\(" + bytes.substr(2) + " in each of the last 4 saves, 1 h apart\\)\n " + bytes +
          " a day of that stays if retention keeps as much as before: 50 % of the bytes of the older half of all "
          "saves still exist\n"
          "disk:" +
          bytes + " of" + bytes + " free; this store is (under )?[0-9.]+ % of the" + bytes +
          " in use; (full in [0-9]+ d|it does not fill up) at this rate of saves and retention"
          "(; in [0-9]+ d if retention deleted nothing)?\n"));
  EXPECT_THAT(stats.out, AllOf(HasSubstr("\nsteps "), HasSubstr("\njournal "), HasSubstr("\njournal.broken-* "),
                               HasSubstr("can be removed by hand"), Not(HasSubstr("quarantine"))));
}

TEST_F(StatsTest, GivesEveryFigureAsJson) {
  const json document = RunInspectJson({"--store", store_.directory(), "stats"});
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_THAT(document["states"], SizeIs(6));
  EXPECT_EQ(document["states"]["committed"]["steps"], 3);
  EXPECT_EQ(document["states"]["committed"]["logical_bytes"], 3 * 40036);
  EXPECT_EQ(document["states"]["deleted"]["steps"], 1);
  EXPECT_EQ(document["states"]["lost"]["steps"], 0);
  ASSERT_THAT(document["kept"], SizeIs(2));
  EXPECT_EQ(document["kept"][0]["reason"], "best loss (top1)");
  EXPECT_EQ(document["kept"][0]["steps"], 2);
  const json& disk = document["disk"];
  EXPECT_GE(disk["steps"], document["states"]["committed"]["stored_bytes"]);
  EXPECT_EQ(disk["unread_directories"], 0);
  uint64_t total = 0;
  for (const char* place :
       {"steps", "other_attempts", "quarantine", "journal", "index", "broken_journals", "retired", "other"}) {
    total += disk[place].get<uint64_t>();
  }
  EXPECT_EQ(disk["total"], total);
  const json& growth = document["growth"];
  EXPECT_EQ(growth["saves"], 4);
  EXPECT_EQ(growth["seconds_between_saves"], 3600.0);
  EXPECT_EQ(growth["kept_share"], 0.5);
  EXPECT_NEAR(growth["written_bytes_per_day"].get<double>(), 24 * growth["bytes_per_save"].get<double>(), 1e-3);
  EXPECT_NEAR(growth["kept_bytes_per_day"].get<double>(), growth["written_bytes_per_day"].get<double>() / 2, 1e-3);
  EXPECT_GT(document["file_system"]["total_bytes"], document["file_system"]["free_bytes"]);
}

TEST(Stats, TellsHowMuchStepsShareWithOthers) {
  TestStore store;
  store.SaveReusing({1, 2});
  const uint64_t reused = store.Info(2).reused_bytes;
  EXPECT_GT(reused, 0);
  const json document = RunInspectJson({"--store", store.directory(), "stats"});
  EXPECT_EQ(document["states"]["committed"]["reused_bytes"], reused);
  EXPECT_THAT(RunInspect({"--store", store.directory(), "stats"}).out,
              ContainsRegex("\ncommitted +2 [^\n]* [1-9][0-9]* %\n"));
}

TEST(Stats, ForecastsTheDayOnWhichWhatStaysHasTakenWhatIsFree) {
  TestStore store;
  const absl::Time start = absl::Now() - absl::Minutes(5);
  for (const int64_t step : {1, 2, 3, 4}) store.Save({step}, {}, 50'000, start + step * absl::Minutes(1));
  store.Delete(1, "not among the latest 3");
  const json document = RunInspectJson({"--store", store.directory(), "stats"});
  const json& room = document["file_system"];
  const double free_bytes = room["free_bytes"].get<double>();
  const auto expect_days = [&](const char* field, const char* rate) {
    const double days = free_bytes / document["growth"][rate].get<double>();
    EXPECT_NEAR(room[field].get<double>(), days, 1e-6 * days) << field;
  };
  expect_days("days_until_full", "kept_bytes_per_day");
  expect_days("days_until_full_without_retention", "written_bytes_per_day");
}

TEST(Stats, KnowsNoGrowthOfOneSave) {
  TestStore store;
  store.Save({1});
  const json document = RunInspectJson({"--store", store.directory(), "stats"});
  EXPECT_EQ(document["growth"]["written_bytes_per_day"], nullptr);
  EXPECT_EQ(document["growth"]["kept_share"], nullptr);
  EXPECT_EQ(document["file_system"]["days_until_full"], nullptr);
  EXPECT_THAT(RunInspect({"--store", store.directory(), "stats"}).out,
              AllOf(HasSubstr("\nno reason is on record "),
                    HasSubstr("growth: no forecast yet: it takes two saves at different times\n")));
}

TEST(Stats, HasNoReasonForWhatPruneKept) {
  TestStore store;
  store.Save({1, 2, 3});
  const Finished prune = RunInspect({"--store", store.directory(), "prune", "--keep-latest", "2", "--apply"});
  ASSERT_EQ(prune.exit_code, 0) << prune.err;
  EXPECT_THAT(RunInspect({"--store", store.directory(), "stats"}).out, ContainsRegex("\nno reason is on record +2 "));
}

TEST(Stats, ForecastsNothingFromAFewSeconds) {
  TestStore store;
  const absl::Time start = absl::Now() - absl::Seconds(20);
  for (const int64_t step : {1, 2, 3}) store.Save({step}, {}, 5000, start + step * absl::Seconds(1));
  const json document = RunInspectJson({"--store", store.directory(), "stats"});
  EXPECT_EQ(document["growth"]["seconds_between_saves"], 1.0);
  EXPECT_EQ(document["growth"]["written_bytes_per_day"], nullptr);
  EXPECT_EQ(document["file_system"]["days_until_full"], nullptr);
  EXPECT_THAT(RunInspect({"--store", store.directory(), "stats"}).out,
              AllOf(HasSubstr("growth: no forecast yet: the last 3 saves span only 2 s ("), Not(HasSubstr("a day")),
                    Not(HasSubstr("full in"))));
}

TEST(Stats, ForecastsNothingWhereNothingIsBeingSaved) {
  TestStore store;
  const absl::Time start = absl::Now() - absl::Hours(47) - absl::Minutes(33);
  for (const int64_t step : {1, 2, 3}) store.Save({step}, {}, 5000, start + step * absl::Minutes(1));
  const json document = RunInspectJson({"--store", store.directory(), "stats"});
  EXPECT_GT(document["growth"]["written_bytes_per_day"], 0);
  EXPECT_EQ(document["file_system"]["days_until_full"], nullptr);
  EXPECT_EQ(document["file_system"]["days_until_full_without_retention"], nullptr);
  EXPECT_THAT(
      RunInspect({"--store", store.directory(), "stats"}).out,
      AllOf(HasSubstr(
                "growth: nothing is being saved: the last save was 47 h ago, and saves were 1 min apart. During the "
                "run "),
            Not(HasSubstr("full in")), Not(HasSubstr("fill up"))));
}

TEST(Stats, HasPinnedStepsOnALineOfTheirOwn) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) {
    info.pinned = true;
    info.kept = "best loss (0.25)";
  });
  EXPECT_THAT(RunInspect({"--store", store.directory(), "stats"}).out,
              AllOf(ContainsRegex("\npinned +1 "), Not(HasSubstr("best loss"))));
}

TEST(Stats, CountsWhatIsOfNoRecordedAttempt) {
  TestStore store;
  store.Save({1});
  const std::string stray = store.directory() + "/steps/0000000009-00000000000000000000000000000000";
  std::filesystem::create_directories(stray);
  WriteWhole(stray + "/shard-00000-of-00001.tmk", std::string(50'000, 'x'));
  std::filesystem::create_directories(store.directory() + "/quarantine");
  WriteWhole(store.directory() + "/quarantine/file", std::string(70'000, 'x'));
  const json disk = RunInspectJson({"--store", store.directory(), "stats"})["disk"];
  EXPECT_GE(disk["other_attempts"], 50'000);
  EXPECT_GE(disk["quarantine"], 70'000);
}

TEST(Stats, WorksWithinTheSandbox) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  TestStore store;
  store.Save({1});
  std::vector<std::string> arguments = {"--store", store.directory(), "--untrusted", "stats"};
  const json document = RunInspectJson(arguments);
  EXPECT_GT(document["disk"]["steps"], 0);
  EXPECT_GT(document["file_system"]["total_bytes"], 0);
}

TEST(Stats, TellsOfAnEmptyStore) {
  TestStore store;
  store.Save({});
  const Finished stats = RunInspect({"--store", store.directory(), "stats"});
  EXPECT_EQ(stats.exit_code, 0);
  EXPECT_THAT(stats.out,
              MatchesRegex("STATE +STEPS [^\n]+\n\nON DISK [^\n]+\n([^\n]+\n)+\ngrowth: no forecast yet[^\n]+\n"
                           "disk: [^\n]+ free; this store is [^\n]+ in use\n"));
}

}  // namespace
}  // namespace tidemark::inspect
