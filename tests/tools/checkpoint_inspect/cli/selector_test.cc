#include "tools/checkpoint_inspect/cli/selector.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/non_finite.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

int64_t StepOf(const TestStore& store, const std::string& selector) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  const auto parsed = StepSelector::Parse(selector);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto info = Resolve(**reader, "run", *parsed);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->step : -1;
}

absl::Status WhyNot(const TestStore& store, const std::string& selector, StepPredicate usable = IsAnyStep) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return Resolve(**reader, "run", *StepSelector::Parse(selector), usable).status();
}

TEST(Resolve, FindsWhatTheSelectorStandsFor) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.5}, {"accuracy", 0.9}}});
  store.Save({2}, {.metrics = {{"loss", 0.25}}});
  store.Save({3}, {.metrics = {{"loss", 0.75}}});
  store.Update(3,
               [](StepInfo& info) { info.evaluations.push_back({.evaluator = "monitor", .unhealthy = "diverged"}); });
  EXPECT_EQ(StepOf(store, "1"), 1);
  EXPECT_EQ(StepOf(store, "latest"), 3);
  EXPECT_EQ(StepOf(store, "latest-healthy"), 2);
  EXPECT_EQ(StepOf(store, "best:loss"), 2);
  EXPECT_EQ(StepOf(store, "best:loss:highest"), 1);
  EXPECT_EQ(StepOf(store, "best:accuracy:highest"), 1);
}

TEST(Resolve, TakesTheEndThatIsRecordedOrElseTheOneThatTheNameTells) {
  TestStore store;
  store.Save({1}, {.metrics = {{"accuracy", 0.5}, {"loss", 0.5}, {"rate", 1}, {"v/loss", 1}}});
  store.Save({2}, {.metrics = {{"accuracy", 0.25}, {"loss", 0.25}, {"rate", 2}, {"v/loss", 2}}});
  store.RecordBestModes({{"rate", BestMode::kHighest}, {"v/loss", BestMode::kHighest}});
  EXPECT_EQ(StepOf(store, "best:accuracy"), 1);
  EXPECT_EQ(StepOf(store, "best:accuracy:lowest"), 2);
  EXPECT_EQ(StepOf(store, "best:loss"), 2);
  EXPECT_EQ(StepOf(store, "best:rate"), 2);
  EXPECT_EQ(StepOf(store, "best:v/loss"), 2);
  EXPECT_EQ(StepOf(store, "best:v/loss:lowest"), 1);
}

class UnknownEndTest : public testing::Test {
 protected:
  void SetUp() override {
    store_.Save({1}, {.metrics = {{"rate", 0.5}, {"loss", 1}}});
    store_.Save({2}, {.metrics = {{"rate", 0.25}, {"loss", 2}}});
    store_.Save({3}, {.metrics = {{"rate", 0.75}, {"lone", 7}}});
    store_.Save({4}, {.metrics = {{"rate", kNan}}});
    store_.Save({5}, {.metrics = {{"rate", 0.875}}});
    store_.Update(5, [](StepInfo& info) { info.evaluations = {{.evaluator = "monitor", .unhealthy = "diverged"}}; });
  }

  Finished Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    return RunInspect(arguments);
  }

  TestStore store_;
  const std::string refusal_ =
      "checkpoint-inspect: error: best:rate: neither the trainer nor the name says whether lower or higher is better; "
      "use best:rate:lowest or best:rate:highest\n";
};

TEST_F(UnknownEndTest, IsRefusedByEveryCommandThatTakesAStep) {
  ASSERT_EQ(Run({"tag", "2", "keep"}).exit_code, 0);
  const TestStore elsewhere;
  const std::string out = elsewhere.directory() + "/out";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"show", "best:rate"},
                                                  {"show", "best:rate", "--json"},
                                                  {"tensors", "best:rate"},
                                                  {"verify", "best:rate"},
                                                  {"diff", "best:rate", "2"},
                                                  {"diff", "2", store_.directory() + "@best:rate"},
                                                  {"trace", "best:rate", "-o", out + ".json"},
                                                  {"export", "best:rate", "model.*", "-o", out + ".npz"},
                                                  {"pin", "best:rate"},
                                                  {"tag", "best:rate", "paper"},
                                                  {"unpin", "best:rate"}}) {
    const Finished run = Run(command);
    EXPECT_EQ(run.exit_code, 2) << command[0];
    EXPECT_EQ(run.out, "") << command[0];
    EXPECT_EQ(run.err, refusal_) << command[0];
  }
  EXPECT_FALSE(std::filesystem::exists(out + ".npz"));
  EXPECT_EQ(StepOf(store_, "tag:keep"), 2);  // unpin would have removed it
  EXPECT_EQ(WhyNot(store_, "tag:paper"), absl::NotFoundError("no step has a tag 'paper'; there are: keep"));
}

TEST_F(UnknownEndTest, IsRefusedInTheWordsOfPrune) {
  EXPECT_EQ(Run({"prune", "--keep-best", "rate"}).err,
            "checkpoint-inspect: error: --keep-best rate: neither the trainer nor the name says whether lower or "
            "higher is better; use --keep-best rate:lowest or --keep-best rate:highest\n");
}

TEST_F(UnknownEndTest, IsRefusedAlsoWhereBothEndsAreOneStep) {
  EXPECT_TRUE(absl::IsInvalidArgument(WhyNot(store_, "best:lone")));
  EXPECT_EQ(StepOf(store_, "best:lone:lowest"), 3);
  EXPECT_EQ(StepOf(store_, "best:lone:highest"), 3);
}

TEST_F(UnknownEndTest, IsToldByTheCommandOrTheRecord) {
  EXPECT_EQ(StepOf(store_, "best:rate:lowest"), 2);
  EXPECT_EQ(StepOf(store_, "best:rate:highest"), 3);
  store_.RecordBestModes({{"rate", BestMode::kHighest}});
  EXPECT_EQ(StepOf(store_, "best:rate"), 3);
}

TEST_F(UnknownEndTest, IsOfferedBothWaysByCompletions) {
  EXPECT_EQ(Run({"names", "steps"}).out,
            "latest\nlatest-healthy\n1\n2\n3\n4\n5\n"
            "best:lone:highest\nbest:lone:lowest\nbest:loss\nbest:rate:highest\nbest:rate:lowest\n");
}

TEST(Resolve, NamesWhatIsNearestToWhatIsNotThere) {
  TestStore store;
  store.Save({2, 8}, {.metrics = {{"loss", 0.5}}});
  EXPECT_EQ(WhyNot(store, "5"), absl::NotFoundError("step 5 is not in run; nearest: 2 and 8"));
  EXPECT_EQ(WhyNot(store, "9"), absl::NotFoundError("step 9 is not in run; nearest: 8"));
  EXPECT_EQ(WhyNot(store, "best:los"), absl::NotFoundError("no step has a metric 'los'; there are: loss"));
}

TEST(CheckMetric, TellsAWrongEndFromAMetricThatThereIsNot) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.5}, {"a:b", 1}}});
  EXPECT_EQ(WhyNot(store, "best:loss:max"),
            absl::NotFoundError("'max' is neither highest nor lowest; use best:loss:highest or best:loss:lowest"));
  EXPECT_EQ(WhyNot(store, "best:loss:"),
            absl::NotFoundError("'' is neither highest nor lowest; use best:loss:highest or best:loss:lowest"));
  EXPECT_EQ(StepOf(store, "best:a:b:lowest"), 1);
  EXPECT_EQ(WhyNot(store, "best:a:c"), absl::NotFoundError("no step has a metric 'a:c'; there are: a:b, loss"));
  // What was taken for the metric has an end that there is.
  EXPECT_EQ(WhyNot(store, "best:loss:highest:lowest"),
            absl::NotFoundError("no step has a metric 'loss:highest'; there are: a:b, loss"));
}

TEST(CheckMetric, SaysItInTheWordsOfTheCommand) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.5}}});
  struct Case {
    std::vector<std::string> command;
    std::string error;
  };
  for (const Case& wrong :
       {Case{{"prune", "--keep-best", "loss:max"},
             "'max' is neither highest nor lowest; use --keep-best loss:highest or --keep-best loss:lowest"},
        {{"prune", "--keep-best", "loss:max:3"},
         "'max' is neither highest nor lowest; use --keep-best loss:highest or --keep-best loss:lowest"},
        {{"history", "--plot", "loss:min"},
         "'min' is neither highest nor lowest; use history --plot loss:highest or history --plot loss:lowest"},
        {{"report", "--no-tensors", "--metric", "loss:max", "-o", "page.html"},
         "'max' is neither highest nor lowest; use --metric loss:highest or --metric loss:lowest"},
        {{"ls", "--sort", "metric:loss:highest"},
         "--sort metric:loss:highest is not valid: the highest value is always last"},
        {{"history", "loss:lowest"},
         "history loss:lowest is only valid with --plot, as METRIC:highest or METRIC:lowest"}}) {
    const Finished run = RunInspect(wrong.command, {.directory = store.directory()});
    EXPECT_EQ(run.exit_code, 1) << wrong.error;
    EXPECT_EQ(run.out, "") << wrong.error;
    EXPECT_EQ(run.err, "checkpoint-inspect: error: " + wrong.error + "\n");
  }
}

TEST(NearestSteps, AreThoseThatAreUsable) {
  const std::vector<StepInfo> steps = {{.step = 1, .state = StepState::kCommitted},
                                       {.step = 3, .state = StepState::kDeleted},
                                       {.step = 7, .state = StepState::kLost},
                                       {.step = 9, .state = StepState::kDamaged}};
  EXPECT_EQ(NearestSteps(steps, 5), "3 and 7");
  EXPECT_EQ(NearestSteps(steps, 5, HasFiles), "1 and 7");
  EXPECT_EQ(NearestSteps(steps, 5, IsOnDisk), "1 and 9");
  EXPECT_EQ(NearestSteps(steps, 5, IsCommitted), "1");
  EXPECT_EQ(NearestSteps(steps, 0, IsOnDisk), "1");
  EXPECT_EQ(NearestSteps({steps[1]}, 5, IsOnDisk), "");
}

TEST(Resolve, NamesTheNearestThatAreUsable) {
  TestStore store;
  store.Save({1, 3, 7});
  store.Delete(3, "old");
  EXPECT_EQ(WhyNot(store, "5"), absl::NotFoundError("step 5 is not in run; nearest: 3 and 7"));
  EXPECT_EQ(WhyNot(store, "5", IsOnDisk), absl::NotFoundError("step 5 is not in run; nearest: 1 and 7"));
  EXPECT_EQ(WhyNot(store, "5", [](const StepInfo&) { return false; }),
            absl::NotFoundError("step 5 is not in run, which has no usable step"));
}

TEST(Resolve, HasEachCommandOfferWhatItTakes) {
  TestStore store;
  store.Save({1, 2, 4});
  store.Delete(2, "old");
  struct Case {
    std::vector<std::string> command;
    std::string nearest;
  };
  const std::string out = store.directory() + "/out";
  for (const Case& asked : {Case{{"show", "3"}, "2 and 4"},
                            {{"trace", "3", "-o", out}, "2 and 4"},
                            {{"tensors", "3"}, "1 and 4"},
                            {{"diff", "3", "4"}, "1 and 4"},
                            {{"export", "3", "-o", out}, "1 and 4"},
                            {{"verify", "3"}, "1 and 4"},
                            {{"pin", "3"}, "1 and 4"},
                            {{"unpin", "3"}, "1 and 4"},
                            {{"tag", "3", "v1"}, "1 and 4"}}) {
    const Finished run = RunInspect(asked.command, {.directory = store.directory()});
    EXPECT_NE(run.exit_code, 0) << asked.command[0];
    EXPECT_EQ(run.err, "checkpoint-inspect: error: step 3 is not in .; nearest: " + asked.nearest + "\n")
        << asked.command[0];
  }
}

TEST(Resolve, FindsTheStepThatHasATagInWhateverState) {
  TestStore store;
  store.Save({1, 2});
  for (const StepState state : {StepState::kDamaged, StepState::kLost, StepState::kDeleted, StepState::kCommitted}) {
    store.Update(1, [state](StepInfo& info) {
      info.state = state;
      info.pinned = true;
      info.tags = {"paper", "v1"};
    });
    EXPECT_EQ(StepOf(store, "tag:paper"), 1) << StepStateName(state);
    EXPECT_EQ(StepOf(store, "tag:v1"), 1) << StepStateName(state);
  }
}

TEST(Resolve, TakesTheStepThatARestoreTakesIfADamagedOneHasTheTagToo) {
  TestStore store;
  store.Save({1, 2, 3});
  for (const int64_t step : {1, 2, 3}) {
    store.Update(step, [step](StepInfo& info) {
      if (step != 2) info.state = StepState::kDamaged;
      info.pinned = true;
      info.tags = {"paper"};
    });
  }
  EXPECT_EQ(StepOf(store, "tag:paper"), 2);
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_EQ((*reader)->FindStep(StepSelector::Tag("paper"))->step, 2);
}

TEST(Resolve, NamesTheTagsThatThereAre) {
  TestStore store;
  store.Save({1, 2});
  EXPECT_EQ(WhyNot(store, "tag:v1"), absl::NotFoundError("no step has a tag 'v1'; there are no tags"));
  store.Update(2, [](StepInfo& info) {
    info.pinned = true;
    info.tags = {"paper", "v2"};
  });
  EXPECT_EQ(WhyNot(store, "tag:v1"), absl::NotFoundError("no step has a tag 'v1'; there are: paper, v2"));
}

TEST(Resolve, NamesTheStepsWhereMoreThanOneHasTheTag) {
  TestStore store;
  store.Save({1, 2});
  for (const int64_t step : {1, 2}) {
    store.Update(step, [](StepInfo& info) {
      info.pinned = true;
      info.tags = {"v1"};
    });
  }
  EXPECT_EQ(WhyNot(store, "tag:v1"),
            absl::AlreadyExistsError("2 steps have the tag 'v1', 1 and 2 among them; `checkpoint-inspect tag --move` "
                                     "leaves it to one, `checkpoint-inspect untag` removes it"));
}

TEST(Resolve, FailsWhereNoStepQualifies) {
  TestStore store;
  store.Save({1});
  store.Update(1, [](StepInfo& info) {
    info.evaluations.push_back({.evaluator = "monitor", .unhealthy = "diverged"});
    info.metrics["loss"] = 1;
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(WhyNot(store, "latest-healthy")));
  EXPECT_TRUE(absl::IsFailedPrecondition(WhyNot(store, "best:loss")));
  store.Update(1, [](StepInfo& info) { info.state = StepState::kLost; });
  EXPECT_EQ(WhyNot(store, "latest"), absl::FailedPreconditionError("no step is committed in run"));
  EXPECT_EQ(WhyNot(store, "best:loss"), absl::FailedPreconditionError("no step is committed in run"));
}

}  // namespace
}  // namespace tidemark::inspect
