#include "tools/checkpoint_inspect/cli/selector.h"

#include "gmock/gmock.h"
#include "tests/non_finite.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

int64_t StepOf(const TestStore& store, const std::string& selector) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  const auto parsed = ParseSelector(selector);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto info = Resolve(**reader, "run", *parsed);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->step : -1;
}

absl::Status WhyNot(const TestStore& store, const std::string& selector, StepPredicate usable = IsAnyStep) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return Resolve(**reader, "run", *ParseSelector(selector), usable).status();
}

TEST(ParseSelector, TellsTheKindsApart) {
  using Kind = Selector::Kind;
  EXPECT_EQ(*ParseSelector("7"), (Selector{.kind = Kind::kStep, .step = 7}));
  EXPECT_EQ(*ParseSelector("step:7"), (Selector{.kind = Kind::kStep, .step = 7}));
  EXPECT_EQ(*ParseSelector("latest"), (Selector{.kind = Kind::kLatest}));
  EXPECT_EQ(*ParseSelector("latest-healthy"), (Selector{.kind = Kind::kLatestHealthy}));
  EXPECT_EQ(*ParseSelector("best:val/loss"), (Selector{.kind = Kind::kBest, .metric = "val/loss"}));
  EXPECT_EQ(*ParseSelector("best:a:b:lowest"),
            (Selector{.kind = Kind::kBest, .metric = "a:b", .mode = BestMode::kLowest}));
  EXPECT_EQ(*ParseSelector("best:accuracy:highest"),
            (Selector{.kind = Kind::kBest, .metric = "accuracy", .mode = BestMode::kHighest}));
  EXPECT_EQ(*ParseSelector("tag:paper/v1.0"), (Selector{.kind = Kind::kTag, .tag = "paper/v1.0"}));
}

TEST(ParseSelector, SaysWhatThereIs) {
  for (const char* text : {"", "newest", "-1", "1x", "step:", "step:x", "best:", "best::highest", "9223372036854775808",
                           "tag:", "tag:the best", "tag:-x"}) {
    const auto parsed = ParseSelector(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(parsed.status().message(), AnyOf(AllOf(HasSubstr("latest-healthy"), HasSubstr("tag:NAME")),
                                                 HasSubstr("best needs a metric, as in best:loss")))
        << text;
  }
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
  store.PutRecord("best", R"({"version":1,"metrics":{"rate":"highest","v/loss":"highest"}})");
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
    store_.Save({1}, {.metrics = {{"rate", 0.5}, {"steady", 7}, {"loss", 1}}});
    store_.Save({2}, {.metrics = {{"rate", 0.25}, {"steady", 7}, {"loss", 2}}});
    store_.Save({3}, {.metrics = {{"rate", 0.75}, {"steady", 7}}});
    store_.Save({4}, {.metrics = {{"rate", kNan}, {"steady", kInfinity}}});
    store_.Save({5}, {.metrics = {{"rate", 0.875}, {"steady", 8}}});
    store_.Update(5, [](StepInfo& info) { info.evaluations = {{.evaluator = "monitor", .unhealthy = "diverged"}}; });
  }

  Finished Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    return RunInspect(arguments);
  }

  const TestStore store_;
  const std::string both_ends_ =
      "checkpoint-inspect: lower was taken for better: best:rate:lowest is step 2 (0.25), best:rate:highest is step 3 "
      "(0.75)\n";
};

TEST_F(UnknownEndTest, IsSaidByEveryCommandThatTakesAStep) {
  const TestStore elsewhere;
  const std::string out = elsewhere.directory() + "/out";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"show", "best:rate"},
                                                  {"tensors", "best:rate"},
                                                  {"verify", "best:rate"},
                                                  {"diff", "best:rate", "2"},
                                                  {"trace", "best:rate", "-o", out + ".json"},
                                                  {"export", "best:rate", "model.*", "-o", out + ".npz"},
                                                  {"pin", "best:rate"},
                                                  {"tag", "best:rate", "paper"},
                                                  {"unpin", "best:rate"}}) {
    const Finished run = Run(command);
    EXPECT_EQ(run.exit_code, 0) << command[0];
    EXPECT_THAT(run.err, StartsWith(both_ends_)) << command[0];
    EXPECT_EQ(Occurrences(run.err, both_ends_), 1u) << command[0];
  }
}

TEST_F(UnknownEndTest, IsSaidOfEachSideOfAComparison) {
  EXPECT_EQ(Run({"diff", "best:rate", store_.directory() + "@best:rate"}).err, both_ends_ + both_ends_);
}

TEST_F(UnknownEndTest, GoesUnsaidWhereItIsKnownOrThereIsOnlyOneStep) {
  for (const char* step : {"best:rate:lowest", "best:rate:highest", "best:steady", "best:loss", "latest", "3"}) {
    const Finished run = Run({"show", step});
    EXPECT_EQ(run.exit_code, 0) << step;
    EXPECT_EQ(run.err, "") << step;
  }
}

TEST_F(UnknownEndTest, GoesUnsaidToPrograms) {
  const Finished run = Run({"show", "best:rate", "--json"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
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
  EXPECT_EQ(StepOf(store, "best:a:b"), 1);
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
  store.Update(1, [](StepInfo& info) {
    info.state = StepState::kDamaged;
    info.pinned = true;
    info.tags = {"paper", "v1"};
  });
  EXPECT_EQ(StepOf(store, "tag:paper"), 1);
  EXPECT_EQ(StepOf(store, "tag:v1"), 1);
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
            absl::AlreadyExistsError(
                "steps 1, 2 have the tag 'v1'; 'tag --move' leaves it to one of them, 'untag' removes it"));
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
