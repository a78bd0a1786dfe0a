#include <sstream>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/non_finite.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Evaluation Loss(const std::string& evaluator, double loss) {
  return {.evaluator = evaluator,
          .worker = "pid 7 on node-3",
          .metrics = {{"loss", loss}},
          .reported = absl::FromUnixSeconds(1'700'000'000),
          .took = absl::Milliseconds(1500)};
}

// Step 1 was deleted, step 2 is committed, step 3 was never saved.
class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    store_.Save({1, 2}, {.metrics = {{"loss", 3}}}, 5000, absl::Now() - absl::Hours(3));
    store_.Deliver(1, Loss("validation", 0.5));
    store_.Delete(1, "not among the latest 1");
    Evaluation bad = Loss("validation", kNan);
    bad.unhealthy = "NaN";
    store_.Deliver(2, bad);
    store_.Deliver(2, {.evaluator = "test", .outcome = Evaluation::Outcome::kFailed, .reason = "no\nfile"});
    store_.RecordUnsaved(3, Loss("validation", 0.25));
  }

  Finished Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "history"});
    return RunInspect(arguments);
  }

  TestStore store_;
};

TEST_F(HistoryTest, HasARowForEachStepAndEvaluator) {
  const Finished history = Run({});
  EXPECT_EQ(history.exit_code, 0);
  EXPECT_EQ(history.err, "");
  EXPECT_THAT(history.out,
              MatchesRegex("STEP +AGE +STATE +EVALUATOR +METRICS +OUTCOME +SECONDS +WORKER\n"
                           " +1 +3 h +deleted +- +loss=3 +- +- +-\n"
                           " +1 +3 h +deleted +validation +validation/loss=0.5 +done +1.50 +pid 7 on node-3\n"
                           " +2 +3 h +committed +- +loss=3 +- +- +-\n"
                           " +2 +3 h +committed +test +- +failed +0.00\n"
                           "  no.nfile\n"
                           " +2 +3 h +committed +validation +validation/loss=NaN +done +1.50 +pid 7 on node-3\n"
                           "  unhealthy: NaN\n"
                           " +3 +[0-9]+ s +unsaved +validation +validation/loss=0.25 +done +1.50 +pid 7 on node-3\n"));
}

TEST_F(HistoryTest, NamesMetricsAsSelectorsDo) {
  EXPECT_THAT(Run({}).out, HasSubstr(" validation/loss=0.5 "));
  EXPECT_EQ(Run({"validation/loss"}).exit_code, 0);
  const Finished help = RunInspect({"prune", "--help"});
  EXPECT_THAT(help.out, HasSubstr("prune --keep-best validation/accuracy:highest:5 --apply"));
  EXPECT_THAT(RunInspect({"report", "--help"}).out, HasSubstr("--metric validation/accuracy:highest"));
}

TEST_F(HistoryTest, GivesEveryRowAsJson) {
  const json document = RunInspectJson({"--store", store_.directory(), "history"});
  EXPECT_EQ(document["schema_version"], 2);
  ASSERT_THAT(document["history"], SizeIs(6));
  EXPECT_EQ(document["history"][0]["evaluator"], nullptr);
  EXPECT_EQ(document["history"][0]["metrics"], ParseJson(R"({"loss": 3.0})"));
  json row = document["history"][1];
  EXPECT_THAT(row["attempt"].get<std::string>(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(row["created"].get<std::string>(), HasSubstr("Z"));
  row.erase("attempt");
  row.erase("created");
  EXPECT_EQ(row, ParseJson(R"({"step": 1, "state": "deleted", "evaluator": "validation", "outcome": "done",
                                 "reason": "", "metrics": {"loss": 0.5}, "unhealthy": "", "worker": "pid 7 on node-3",
                                 "reported": "2023-11-14T22:13:20Z", "seconds": 1.5})"));
  EXPECT_EQ(document["history"][3]["reason"], "no\nfile");
  EXPECT_EQ(document["history"][4]["metrics"]["loss"], "NaN");
  EXPECT_EQ(document["history"][5]["state"], "unsaved");
}

TEST_F(HistoryTest, SetsNamedMetricsAgainstTheSteps) {
  const Finished history = Run({"validation/loss", "loss"});
  EXPECT_EQ(history.exit_code, 0);
  EXPECT_THAT(history.out, MatchesRegex("STEP +AGE +STATE +validation/loss +loss\n"
                                        " +1 +3 h +deleted +0.5 +3\n"
                                        " +2 +3 h +committed +NaN +3\n"
                                        " +3 +[0-9]+ s +unsaved +0.25 +-\n"));
  const json document = RunInspectJson({"--store", store_.directory(), "history", "loss", "validation/loss"});
  EXPECT_EQ(document["metrics"], ParseJson(R"(["loss", "validation/loss"])"));
  ASSERT_THAT(document["steps"], SizeIs(3));
  EXPECT_EQ(document["steps"][1]["values"], ParseJson(R"({"loss": 3.0, "validation/loss": "NaN"})"));
  EXPECT_EQ(document["steps"][2]["values"], ParseJson(R"({"loss": null, "validation/loss": 0.25})"));
}

TEST_F(HistoryTest, LeavesOutStepsWithoutTheMetric) {
  EXPECT_THAT(Run({"loss"}).out, AllOf(HasSubstr(" committed "), Not(HasSubstr("unsaved"))));
}

TEST_F(HistoryTest, NamesTheMetricsThatThereAreForOneThatThereIsNot) {
  const Finished history = Run({"loss", "accuracy\x1b"});
  EXPECT_EQ(history.exit_code, 1);
  EXPECT_EQ(history.out, "");
  EXPECT_EQ(history.err,
            "checkpoint-inspect: error: no step has a metric 'accuracy\\x1b'; there are: loss, validation/loss\n");
}

TEST(History, TakesTheNameOfAMetricInBracketsAsItIs) {
  TestStore store;
  store.Save({1}, {.metrics = {{"[a,b]", 0.5}, {"a", 2}, {"b", 3}}});
  const json document = RunInspectJson({"--store", store.directory(), "history", "[a,b]", "b"});
  EXPECT_EQ(document["metrics"], ParseJson(R"(["[a,b]", "b"])"));
  EXPECT_EQ(document["steps"][0]["values"], ParseJson(R"({"[a,b]": 0.5, "b": 3.0})"));
  const Finished plot = RunInspect({"--store", store.directory(), "history", "--plot", "[a,b]"});
  EXPECT_THAT(plot.out, AllOf(StartsWith("[a,b]\n"), Not(HasSubstr("\na\n"))));
}

TEST(History, NamesAFewWhereThereAreManyMetricsAndNoneWhereThereAreNone) {
  TestStore store;
  store.Save({1});
  EXPECT_EQ(RunInspect({"--store", store.directory(), "history", "loss"}).err,
            "checkpoint-inspect: error: no step has a metric 'loss'; there are no metrics\n");
  SaveOptions options;
  for (int i = 0; i < 60; ++i) options.metrics["metric_" + std::to_string(i)] = i;
  store.Save({2}, options);
  const Finished history = RunInspect({"--store", store.directory(), "history", "loss"});
  EXPECT_EQ(history.exit_code, 1);
  EXPECT_THAT(history.err, AllOf(HasSubstr("there are: metric_0, metric_1, "), HasSubstr(" and 10 more\n")));
}

TEST(History, HasARowForTheMetricsOfAStepThatWasNotEvaluated) {
  TestStore store;
  store.Save({1, 2}, {.metrics = {{"loss", 3}, {"rate", kNan}}});
  store.Save({3});
  const std::vector<std::string> arguments = {"--store", store.directory(), "history"};
  const Finished history = RunInspect(arguments);
  EXPECT_EQ(history.exit_code, 0);
  EXPECT_EQ(history.err, "");
  EXPECT_THAT(history.out, MatchesRegex("STEP [^\n]*WORKER\n"
                                        " +1 +[0-9]+ s +committed +- +loss=3 rate=NaN +- +- +-\n"
                                        " +2 +[0-9]+ s +committed +- +loss=3 rate=NaN +- +- +-\n"));
  json rows = RunInspectJson(arguments)["history"];
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[1]["step"], 2);
  rows[0].erase("attempt");
  rows[0].erase("created");
  EXPECT_EQ(rows[0], ParseJson(R"({"step": 1, "state": "committed", "evaluator": null, "outcome": null, "reason": "",
                                     "metrics": {"loss": 3.0, "rate": "NaN"}, "unhealthy": "", "worker": null,
                                     "reported": null, "seconds": null})"));
  store.Deliver(2, Loss("validation", 0.5));
  rows = RunInspectJson(arguments)["history"];
  ASSERT_THAT(rows, SizeIs(3)) << "an evaluation is a row of its own";
  EXPECT_EQ(rows[1]["evaluator"], nullptr);
  EXPECT_EQ(rows[2]["evaluator"], "validation");
}

TEST(History, WrapsMetricsOnATerminalThatIsTooNarrowForThemAndNowhereElse) {
  TestStore store;
  Evaluation evaluation = Loss("validation", 0.5);
  for (int i = 10; i < 20; ++i) evaluation.metrics["metric_" + std::to_string(i)] = i;
  store.Save({1});
  store.Deliver(1, evaluation);
  const std::vector<std::string> arguments = {"--store", store.directory(), "history"};
  const auto whole = AllOf(HasSubstr(" validation/metric_10=10 "), HasSubstr(" validation/metric_19=19 "));
  EXPECT_THAT(RunInspect(arguments, {.environment = {{"COLUMNS", "100"}}}).out, whole);
  const auto on_terminal = [&](const char* columns) {
    return RunInspect(arguments, {.environment = {{"COLUMNS", columns}, {"NO_COLOR", "1"}}, .terminal = true}).out;
  };
  EXPECT_THAT(on_terminal("400"), whole);
  for (const size_t columns : {120, 80, 60}) {
    const std::string wrapped = on_terminal(std::to_string(columns).c_str());
    EXPECT_THAT(wrapped, AllOf(HasSubstr(" done"), HasSubstr("validation/metric_19=19"), Not(HasSubstr("…"))));
    std::istringstream lines(wrapped);
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      EXPECT_LE(line.size(), columns) << line;
    }
  }
}

TEST(History, IsEmptyWithANoteWhereThereAreNoMetrics) {
  TestStore store;
  store.Save({1});
  const Finished history = RunInspect({"--store", store.directory(), "history"});
  EXPECT_EQ(history.exit_code, 0);
  EXPECT_THAT(history.out, MatchesRegex("STEP [^\n]*WORKER\n"));
  EXPECT_EQ(history.err, "checkpoint-inspect: no step has a metric or was evaluated in " + store.directory() + "\n");
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "history"})["history"], json::array());
}

TEST(History, IsThereAgainOnceADamagedJournalHasBeenRepaired) {
  TestStore store;
  store.Save({1, 2});
  store.Deliver(1, Loss("validation", 0.5));
  store.Deliver(2, Loss("validation", 0.25));
  store.Restart();  // the index has them
  store.DamageJournal();
  EXPECT_EQ(RunInspect({"--store", store.directory(), "history"}).exit_code, 3);
  ASSERT_EQ(RunInspect({"--store", store.directory(), "repair", "--apply"}).exit_code, 0);
  const json document = RunInspectJson({"--store", store.directory(), "history"}, 0);
  ASSERT_THAT(document["history"], SizeIs(2));
  EXPECT_EQ(document["history"][0]["metrics"]["loss"], 0.5);
  EXPECT_EQ(document["history"][1]["metrics"]["loss"], 0.25);
}

}  // namespace
}  // namespace tidemark::inspect
