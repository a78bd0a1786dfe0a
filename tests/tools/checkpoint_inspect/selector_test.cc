#include "tools/checkpoint_inspect/selector.h"

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int64_t StepOf(const TestStore& store, const std::string& selector) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  const auto parsed = ParseSelector(selector);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto info = Resolve(**reader, "run", *parsed);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->step : -1;
}

absl::Status WhyNot(const TestStore& store, const std::string& selector) {
  const auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return Resolve(**reader, "run", *ParseSelector(selector)).status();
}

TEST(ParseSelector, TellsTheKindsApart) {
  using Kind = Selector::Kind;
  EXPECT_EQ(*ParseSelector("7"), (Selector{.kind = Kind::kStep, .step = 7}));
  EXPECT_EQ(*ParseSelector("step:7"), (Selector{.kind = Kind::kStep, .step = 7}));
  EXPECT_EQ(*ParseSelector("latest"), (Selector{.kind = Kind::kLatest}));
  EXPECT_EQ(*ParseSelector("latest-healthy"), (Selector{.kind = Kind::kLatestHealthy}));
  EXPECT_EQ(*ParseSelector("best:val/loss"), (Selector{.kind = Kind::kBest, .metric = "val/loss"}));
  EXPECT_EQ(*ParseSelector("best:a:b:lowest"), (Selector{.kind = Kind::kBest, .metric = "a:b"}));
  EXPECT_EQ(*ParseSelector("best:accuracy:highest"),
            (Selector{.kind = Kind::kBest, .metric = "accuracy", .mode = BestMode::kHighest}));
  EXPECT_EQ(*ParseSelector("tag:paper/v1.0"), (Selector{.kind = Kind::kTag, .tag = "paper/v1.0"}));
}

TEST(ParseSelector, SaysWhatThereIs) {
  for (const char* text : {"", "newest", "-1", "1x", "step:", "step:x", "best:", "best::highest", "9223372036854775808",
                           "tag:", "tag:the best", "tag:-x"}) {
    const auto parsed = ParseSelector(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
    EXPECT_THAT(parsed.status().message(), AllOf(HasSubstr("latest-healthy"), HasSubstr("tag:NAME"))) << text;
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

TEST(Resolve, NamesWhatIsNearestToWhatIsNotThere) {
  TestStore store;
  store.Save({2, 8}, {.metrics = {{"loss", 0.5}}});
  EXPECT_EQ(WhyNot(store, "5"), absl::NotFoundError("step 5 is not in run; nearest: 2 and 8"));
  EXPECT_EQ(WhyNot(store, "9"), absl::NotFoundError("step 9 is not in run; nearest: 8"));
  EXPECT_EQ(WhyNot(store, "best:los"), absl::NotFoundError("no step has a metric 'los'; there are: loss"));
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
  EXPECT_EQ(
      WhyNot(store, "tag:v1"),
      absl::AlreadyExistsError("steps 1, 2 have the tag 'v1'; 'tag --move' and 'untag' leave it to one, or none"));
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
