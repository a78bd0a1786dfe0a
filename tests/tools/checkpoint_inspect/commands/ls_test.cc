#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

TEST(Ls, ListsTheNewestStepLast) {
  TestStore store;
  store.Save({2}, {.metrics = {{"loss", 0.5}}}, 5000, absl::Now() - absl::Hours(3));
  store.Save({10}, {.metrics = {{"loss", 0.25}, {"best", 1}}}, 5000, absl::Now() - absl::Hours(72));
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_EQ(ls.err, "");
  EXPECT_THAT(
      Lines(ls.out),
      ElementsAre(MatchesRegex("STEP +AGE +STATE +METRICS +LOGICAL +STORED +RATIO +REUSED +BLOCKED"),
                  MatchesRegex(" +2 +3 h +committed +loss=0.5 +39.1 KiB +[0-9.]+ KiB +[0-9.]+ +0 % +[0-9]+\\.[0-9] ms"),
                  MatchesRegex(" +10 +3 d +committed +best=1 loss=0.25 +39.1 KiB +[0-9.]+ KiB +[0-9.]+ +[0-9]+ % "
                               "+[0-9]+\\.[0-9] ms")));
}

TEST(Ls, GivesEveryFieldAsJson) {
  TestStore store;
  const absl::Time created = absl::FromUnixMillis(1'700'000'000'500);
  store.Save({7},
             {.metrics = {{"loss", 0.5}, {"bad", std::numeric_limits<double>::quiet_NaN()}},
              .user_metadata = R"({"run": "a"})"},
             5000, created);
  const json document = RunInspectJson({"--store", store.directory(), "ls"});
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["store"]["directory"], store.directory());
  EXPECT_THAT(document["store"]["id"].get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(document["store"]["journal_problem"], nullptr);
  ASSERT_THAT(document["steps"], SizeIs(1));
  json step = document["steps"][0];
  EXPECT_THAT(step["attempt"].get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_GT(step["stored_bytes"], 8192);
  EXPECT_GE(step["blocked_seconds"], 0.0);
  for (const char* measured : {"attempt", "stored_bytes", "blocked_seconds"}) step.erase(measured);
  // 5000 floats twice, 3 floats, two numbers, a bool, "hello" and a blob of 2.
  EXPECT_EQ(step, ParseJson(R"({"step": 7, "state": "committed", "sequence": 1, "created": "2023-11-14T22:13:20.5Z",
                                  "metrics": {"loss": 0.5, "bad": "NaN"}, "user_metadata": {"run": "a"},
                                  "logical_bytes": 40036, "reused_bytes": 0, "entries": 9, "world_size": 1,
                                  "reason": "", "evaluations": [], "unhealthy": "", "pinned": false, "pin_note": "",
                                  "tags": [], "kept": ""})"));
}

TEST(Ls, TellsWhatAStepSharesWithEarlierOnes) {
  TestStore store;
  store.SaveReusing({1, 2});
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), MatchesRegex(" +1 .* 0 % +[0-9.]+ ms"),
                                         MatchesRegex(" +2 .* [1-9][0-9]* % +[0-9.]+ ms")));
  const json steps = RunInspectJson({"--store", store.directory(), "ls"})["steps"];
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_EQ(steps[0]["reused_bytes"], 0);
  EXPECT_GT(steps[1]["reused_bytes"], 0);
  EXPECT_LT(steps[1]["stored_bytes"], steps[0]["stored_bytes"]);
}

TEST(Ls, LeavesOutWhatWasDeletedOrNeverSavedUnlessAsked) {
  TestStore store;
  store.Save({1, 2, 3}, {.metrics = {{"loss", 0.5}}});
  store.Delete(1, "not among the latest 2");
  store.Delete(2, "not among the latest 1");
  store.RecordUnsaved(4, {.evaluator = "validation", .metrics = {{"loss", 0.25}}});
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), MatchesRegex(" +3 .*committed .*")));
  EXPECT_EQ(ls.err,
            "checkpoint-inspect: 2 deleted steps and 1 step that was evaluated and not saved are not shown; --all "
            "shows them\n");
  const Finished all = RunInspect({"--store", store.directory(), "ls", "--all"});
  EXPECT_EQ(all.err, "");
  EXPECT_THAT(Lines(all.out),
              ElementsAre(StartsWith("STEP"), MatchesRegex(" +1 .* deleted +loss=0.5 .*"), "  not among the latest 2",
                          HasSubstr(" deleted "), "  not among the latest 1", HasSubstr(" committed "),
                          MatchesRegex(" +4 .* unsaved +validation/loss=0.25 .* -")));
  const json document = RunInspectJson({"--store", store.directory(), "ls"});
  EXPECT_THAT(document["steps"], SizeIs(1));
  EXPECT_EQ(document["left_out"], ParseJson(R"({"deleted": 2, "unsaved": 1, "earlier": 0})"));
  EXPECT_THAT(RunInspectJson({"--store", store.directory(), "ls", "--all"})["steps"], SizeIs(4));
}

TEST(Ls, ShowsReportsOfWorkersAndWhyAStepStays) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) {
    info.pinned = true;
    info.pin_note = "for the paper";
    info.kept = "pinned";
  });
  store.Deliver(2, {.evaluator = "validation", .metrics = {{"loss", 0.25}}, .unhealthy = "loss\nspike"});
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0) << ls.err;
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), HasSubstr("committed, pinned "), "  pinned: for the paper",
                                         HasSubstr(" validation/loss=0.25 "), "  unhealthy: validation: loss\\nspike"));
}

TEST(Ls, SaysWhyAStepIsKeptThatIsNotPinned) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) { info.kept = "best validation/loss,\n1 of 1"; });
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0) << ls.err;
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), HasSubstr("committed"),
                                         "  kept: best validation/loss,\\n1 of 1", HasSubstr("committed")));
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "ls"})["steps"][0]["kept"], "best validation/loss,\n1 of 1");
}

TEST(Ls, ListsAnEmptyStoreWithANoteBeside) {
  TestStore store;
  store.Save({});
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_THAT(ls.out, MatchesRegex("STEP [^\n]*BLOCKED\n"));
  EXPECT_EQ(ls.err, "checkpoint-inspect: there are no steps in " + store.directory() + "\n");
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "ls"})["steps"], json::array());
}

TEST(Ls, GivesTheReasonOfWhatIsNotCommitted) {
  TestStore store;
  store.Save({1, 2, 3});
  store.SaveInVain(4);
  store.RemoveStep(2);
  store.DamageChunk(3);
  store.Restart();
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), HasSubstr("committed"), HasSubstr(" lost "),
                                         AllOf(StartsWith("  "), HasSubstr("No such file or directory")),
                                         HasSubstr(" damaged "), AllOf(StartsWith("  "), HasSubstr(store.ShardPath(3))),
                                         HasSubstr(" failed "), AllOf(StartsWith("  "), HasSubstr("File too large"))));
  const json steps = RunInspectJson({"--store", store.directory(), "ls"})["steps"];
  ASSERT_THAT(steps, SizeIs(4));
  EXPECT_EQ(steps[1]["state"], "lost");
  EXPECT_EQ(steps[2]["state"], "damaged");
  EXPECT_EQ(steps[3]["state"], "failed");
  EXPECT_THAT(steps[3]["reason"].get<std::string>(), HasSubstr("File too large"));
}

TEST(Ls, FindsTheStepsByTheirShardsWhereTheJournalCannotBeRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 3);
  EXPECT_THAT(ls.err, AllOf(StartsWith("checkpoint-inspect: warning: the journal cannot be read"),
                            HasSubstr(store.directory() + "/journal")));
  EXPECT_THAT(Lines(ls.out), SizeIs(3));
  const json document = RunInspectJson({"--store", store.directory(), "ls"}, 3);
  EXPECT_THAT(document["store"]["journal_problem"].get<std::string>(), HasSubstr("/journal"));
  EXPECT_THAT(document["steps"], SizeIs(2));
}

TEST(Ls, FailsWhereNeitherJournalNorShardsCanBeRead) {
  TestStore store;
  store.Save({1});
  store.DamageJournal();
  store.DamageIndex(1);
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_EQ(ls.exit_code, 13);
  EXPECT_THAT(ls.err, HasSubstr("the journal cannot be read"));
}

TEST(Ls, CutsMetricsOnATerminalThatIsTooNarrowAndNowhereElse) {
  TestStore store;
  SaveOptions options;
  for (int i = 0; i < 15; ++i) options.metrics["metric_" + std::to_string(i)] = i;
  store.Save({1}, options);
  const std::vector<std::string> ls = {"--store", store.directory(), "ls"};
  const auto whole = AllOf(HasSubstr(" metric_14=14 "), HasSubstr(" metric_9=9 "), Not(HasSubstr("…")));
  EXPECT_THAT(RunInspect(ls).out, whole);
  EXPECT_THAT(RunInspect(ls, {.environment = {{"COLUMNS", "100"}}}).out, whole);
  const auto on_terminal = [&](const char* columns) {
    return RunInspect(ls, {.environment = {{"COLUMNS", columns}, {"NO_COLOR", "1"}}, .terminal = true}).out;
  };
  EXPECT_THAT(on_terminal("400"), whole);
  const std::string cut = on_terminal("120");
  EXPECT_THAT(cut, AllOf(HasSubstr(" metric_0=0 metric_1=1 "), HasSubstr(" … "), HasSubstr("RATIO"),
                         Not(HasSubstr("metric_9="))));
  EXPECT_THAT(on_terminal("70"), AllOf(HasSubstr(" metric_0=0 "), HasSubstr("STORED"), Not(HasSubstr("RATIO"))));
  for (const size_t columns : {120, 80, 60, 40}) {
    for (std::string line : Lines(on_terminal(std::to_string(columns).c_str()))) {
      if (line.ends_with('\r')) line.pop_back();
      // The mark of a cut is three bytes and one column.
      EXPECT_LE(line.size() - (line.find("…") == std::string::npos ? 0 : 2), columns) << line;
    }
  }
  EXPECT_THAT(RunInspectJson(ls)["steps"][0]["metrics"], SizeIs(15));
}

// The processor's time of the children of this process.
double ChildSeconds() {
  rusage usage = {};
  EXPECT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Lists so many steps. They have records and no files, so a listing that opened shards or folders would fail.
// Returns the least time of several listings, which leaves out most of what other processes cost.
double SecondsToList(const TestStore& store, int steps) {
  store.RecordWithoutFiles(steps);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double before = ChildSeconds();
    const Finished ls = RunInspect({"--store", store.directory(), "ls"});
    least = std::min(least, ChildSeconds() - before);
    if (!storage::kAddressSanitizer && !storage::kThreadSanitizer) {
      EXPECT_LT(ls.resident_kib_max, 256 << 10);
    }
    EXPECT_EQ(ls.exit_code, 0);
    EXPECT_EQ(ls.err, "");
    EXPECT_EQ(std::count(ls.out.begin(), ls.out.end(), '\n'), steps + 1);
  }
  return least;
}

// The time depends on the machine, its growth does not: 4 times as many steps take 4 times as long, and 16 times where
// the work for each step grows with their number.
TEST(Ls, ListsAHundredThousandStepsInTimeThatGrowsWithTheirNumber) {
  TestStore store;
  store.Save({});
  const double fewer = SecondsToList(store, 25'000);
  const double all = SecondsToList(store, 100'000);
  std::printf("ls of 25000 and 100000 steps: %.2f and %.2f s\n", fewer, all);
  EXPECT_LT(all, 10 * fewer);
}

TEST(Ls, MarksPinnedStepsInTheirOwnLine) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) { info.pinned = true; });
  const Finished ls = RunInspect({"--store", store.directory(), "ls"});
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), MatchesRegex(" +1 .* committed, pinned +- .*"),
                                         MatchesRegex(" +2 .* committed +- .*")));
}

TEST(Ls, ExplainsItsColumns) {
  const std::string help = RunInspect({"ls", "--help"}).out;
  for (const char* column : {"LOGICAL", "STORED", "RATIO", "REUSED", "BLOCKED"}) {
    EXPECT_THAT(help, HasSubstr(std::string("\n  ") + column + "  ")) << column;
  }
}

TEST(Ls, NotesWhatUserMetadataIsNull) {
  TestStore store;
  store.Save({1, 2, 3});
  store.Update(2, [](StepInfo& info) { info.user_metadata = "[1]"; });
  const Finished ls = RunInspect({"--store", store.directory(), "--json", "ls"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_EQ(
      ls.err,
      "checkpoint-inspect: the user metadata of 1 step is null, because it is not a JSON object of at most 8192 keys, "
      "32768 values and a depth of 256\n");
  const json steps = ParseJson(ls.out).at("steps");
  EXPECT_EQ(steps.at(0).at("user_metadata"), json::object());
  EXPECT_EQ(steps.at(1).at("user_metadata"), nullptr);
  // There it is not listed.
  EXPECT_EQ(RunInspect({"--store", store.directory(), "ls"}).err, "");
}

std::vector<int64_t> StepsOf(const json& document) {
  std::vector<int64_t> steps;
  for (const json& step : document["steps"]) steps.push_back(step["step"]);
  return steps;
}

TEST(Ls, SortsByWhatItIsTold) {
  TestStore store;
  const absl::Time now = absl::Now();
  store.Save({1}, {.metrics = {{"accuracy", 0.75}, {"loss", 0.5}}}, 5000, now - absl::Hours(1));
  store.Save({2}, {.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}}}, 50, now - absl::Hours(3));
  store.Save({3}, {.metrics = {{"loss", 0.25}}}, 20000, now - absl::Hours(2));
  store.Save({4}, {}, 500, now - absl::Hours(4));
  const auto sorted = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"--store", store.directory(), "ls"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return StepsOf(RunInspectJson(all));
  };
  EXPECT_THAT(sorted({"--sort", "step"}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sorted({"--sort", "age"}), ElementsAre(4, 2, 3, 1));
  EXPECT_THAT(sorted({"--sort", "size"}), ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(sorted({"--sort", "metric:loss"}), ElementsAre(4, 2, 3, 1));
  const Finished listed = RunInspect({"--store", store.directory(), "ls", "--sort", "metric:loss"});
  EXPECT_THAT(Lines(listed.out).back(), HasSubstr(" loss=0.5 accuracy=0.75 "));
  // The last ones by number, and these in order.
  EXPECT_THAT(sorted({"--sort", "age", "--last", "2"}), ElementsAre(4, 3));
}

TEST(Ls, ListsAsManyOfTheLastAsItIsTold) {
  TestStore store;
  store.Save({1, 2, 3});
  store.Delete(2, "not among the latest 1");
  const Finished ls = RunInspect({"--store", store.directory(), "ls", "--last", "1"});
  EXPECT_EQ(ls.exit_code, 0);
  EXPECT_THAT(Lines(ls.out), ElementsAre(StartsWith("STEP"), MatchesRegex(" +3 .*")));
  const json document = RunInspectJson({"--store", store.directory(), "ls", "--all", "--last", "2"});
  EXPECT_THAT(StepsOf(document), ElementsAre(2, 3));
  EXPECT_EQ(document["left_out"], ParseJson(R"({"deleted": 0, "unsaved": 0, "earlier": 1})"));
  EXPECT_THAT(StepsOf(RunInspectJson({"--store", store.directory(), "ls", "--last", "9"})), ElementsAre(1, 3));
}

TEST(Ls, RefusesAnOrderOrANumberThatIsNone) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.5}}});
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--sort", "loss"},
                                                    {"--sort", "metric:"},
                                                    {"--last", "0"},
                                                    {"--last", "-1"},
                                                    {"--last", "x"},
                                                    {"--follow", "--last", "1"},
                                                    {"--follow", "--sort", "age"},
                                                    {"--follow", "--all"}}) {
    std::vector<std::string> all = {"--store", store.directory(), "ls"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished ls = RunInspect(all);
    EXPECT_EQ(ls.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(ls.out, "");
  }
  EXPECT_THAT(RunInspect({"--store", store.directory(), "ls", "--sort", "loss"}).err,
              HasSubstr("--sort takes step, age, size or metric:NAME"));
  const Finished unknown = RunInspect({"--store", store.directory(), "ls", "--sort", "metric:accuracy"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.err, "checkpoint-inspect: error: no step has a metric 'accuracy'; there are: loss\n");
}

}  // namespace
}  // namespace tidemark::inspect
