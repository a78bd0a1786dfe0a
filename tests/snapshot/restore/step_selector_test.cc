#include "tidemark/step_selector.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

StepSelector Parsed(const std::string& text) {
  const absl::StatusOr<StepSelector> selector = StepSelector::Parse(text);
  EXPECT_THAT(selector, IsOk()) << text;
  return selector.value_or(StepSelector::Latest());
}

TEST(StepSelectorTest, ReadsEveryWord) {
  EXPECT_EQ(Parsed("latest"), StepSelector::Latest());
  EXPECT_EQ(Parsed("latest-healthy"), StepSelector::LatestHealthy());
  EXPECT_EQ(Parsed("best:validation/loss"), StepSelector::Best("validation/loss"));
  EXPECT_EQ(Parsed("best:loss:lowest"), StepSelector::Best("loss", BestMode::kLowest));
  EXPECT_EQ(Parsed("best:acc:highest"), StepSelector::Best("acc", BestMode::kHighest));
  EXPECT_EQ(Parsed("best:a:highest:lowest"), StepSelector::Best("a:highest", BestMode::kLowest));
  EXPECT_EQ(Parsed("tag:paper/v1"), StepSelector::Tag("paper/v1"));
  EXPECT_EQ(Parsed("1000"), StepSelector(1000));
  EXPECT_EQ(Parsed("step:0"), StepSelector(0));
  EXPECT_EQ(Parsed("9223372036854775807"), StepSelector(INT64_MAX));
}

TEST(StepSelectorTest, WritesWhatItReads) {
  for (const char* text : {"latest", "latest-healthy", "best:loss", "best:loss:lowest", "best:a:b:highest",
                           "best:a:highest:lowest", "tag:x", "7"}) {
    EXPECT_EQ(Parsed(text).ToString(), text);
  }
  EXPECT_EQ(Parsed(StepSelector::Best("a:highest").ToString()).metric(), "a:highest");
}

TEST(StepSelectorTest, RefusesOtherWordsAndListsThese) {
  for (const char* text : {"", "newest", "best::highest", "tag:", "tag:-x", "tag:a b", "step:", "-1", "1.5",
                           "9223372036854775808", "latest ", "Latest"}) {
    EXPECT_THAT(StepSelector::Parse(text),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("latest-healthy"), HasSubstr("tag:NAME"))))
        << text;
  }
}

TEST(StepSelectorTest, SaysThatBestNeedsAMetric) {
  for (const char* text : {"best", "best:"}) {
    EXPECT_THAT(StepSelector::Parse(text),
                StatusIs(StatusCode::kInvalidArgument, "best needs a metric, as in best:loss or best:validation/loss"))
        << text;
  }
}

TEST(StepSelectorTest, NamesTheTextsThatGiveAModeIfNothingGivesIt) {
  const StepSelector best = StepSelector::Best("rate");
  EXPECT_THAT(best.WithMode({}),
              StatusIs(StatusCode::kInvalidArgument,
                       "best:rate: neither the trainer nor the name says whether lower or higher is better; use "
                       "best:rate:lowest or best:rate:highest"));
  EXPECT_EQ(*best.WithMode({{"rate", BestMode::kHighest}}), StepSelector::Best("rate", BestMode::kHighest));
  EXPECT_EQ(*Parsed("best:rate:lowest").WithMode({}), StepSelector::Best("rate", BestMode::kLowest));
}

StepInfo Step(int64_t step, std::optional<double> loss, StepState state = StepState::kCommitted) {
  StepInfo info;
  info.step = step;
  info.state = state;
  if (loss) info.metrics["loss"] = *loss;
  return info;
}

class StepSelectorChoiceTest : public testing::Test {
 protected:
  StepSelectorChoiceTest() {
    steps_[3].evaluations.push_back({.evaluator = "health", .unhealthy = "NaN"});
    steps_[1].tags = {"paper"};
    steps_[0].tags = {"first", "twice"};
    steps_[2].tags = {"twice"};
    steps_[4].tags = {"gone"};
  }

  std::vector<int64_t> Chosen(const StepSelector& selector,
                              StepSelector::Purpose purpose = StepSelector::Purpose::kRestore) {
    const auto chosen = selector.Choose(steps_, purpose);
    EXPECT_THAT(chosen, IsOk());
    std::vector<int64_t> numbers;
    if (!chosen.ok()) return numbers;
    for (const StepInfo* info : *chosen) numbers.push_back(info->step);
    return numbers;
  }

  std::vector<StepInfo> steps_ = {
      Step(10, 2.0),          Step(20, 1.0),         Step(30, 1.0), Step(40, 0.5), Step(50, 0.1, StepState::kDamaged),
      Step(60, std::nan("")), Step(70, std::nullopt)};
};

TEST_F(StepSelectorChoiceTest, LatestAreTheCommittedOnesFromTheHighestOn) {
  EXPECT_THAT(Chosen(StepSelector::Latest()), ElementsAre(70, 60, 40, 30, 20, 10));
  EXPECT_THAT(Chosen(StepSelector::LatestHealthy()), ElementsAre(70, 60, 30, 20, 10));
}

TEST_F(StepSelectorChoiceTest, BestAreHealthyAndFiniteAndOfEqualOnesTheLaterFirst) {
  EXPECT_THAT(Chosen(StepSelector::Best("loss")), ElementsAre(30, 20, 10));
  EXPECT_THAT(Chosen(StepSelector::Best("loss", BestMode::kHighest)), ElementsAre(10, 30, 20));
  EXPECT_THAT(StepSelector::Best("accuracy").Choose(steps_),
              StatusIs(StatusCode::kNotFound, HasSubstr("finite metric 'accuracy'")));
}

TEST_F(StepSelectorChoiceTest, ATagNamesOneCommittedStep) {
  EXPECT_THAT(Chosen(StepSelector::Tag("paper")), ElementsAre(20));
  EXPECT_THAT(StepSelector::Tag("none").Choose(steps_),
              StatusIs(StatusCode::kNotFound, "no committed step has the tag 'none'"));
  EXPECT_THAT(
      StepSelector::Tag("gone").Choose(steps_),
      StatusIs(StatusCode::kNotFound, "no committed step has the tag 'gone'; step 50, which has it, is damaged"));
  EXPECT_THAT(StepSelector::Tag("twice").Choose(steps_),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("10"), HasSubstr("30"))));
}

TEST_F(StepSelectorChoiceTest, AnInspectionFindsATagOfAnUncommittedStepOnlyIfNoCommittedOneHasIt) {
  constexpr auto kInspect = StepSelector::Purpose::kInspect;
  EXPECT_THAT(Chosen(StepSelector::Tag("gone"), kInspect), ElementsAre(50));
  steps_[4].tags = {"gone", "paper"};
  EXPECT_THAT(Chosen(StepSelector::Tag("paper"), kInspect), ElementsAre(20));
  steps_[1].state = StepState::kLost;
  EXPECT_THAT(StepSelector::Tag("paper").Choose(steps_, kInspect),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("20"), HasSubstr("50"))));
  // The other selectors choose for an inspection as for a restore.
  for (const StepSelector& selector :
       {StepSelector::Latest(), StepSelector::LatestHealthy(), StepSelector::Best("loss"), StepSelector(50)}) {
    EXPECT_EQ(Chosen(selector, kInspect), Chosen(selector)) << selector.ToString();
  }
}

TEST_F(StepSelectorChoiceTest, ANumberNamesItsStepInWhateverState) {
  EXPECT_THAT(Chosen(50), ElementsAre(50));
  EXPECT_THAT(StepSelector(51).Choose(steps_), StatusIs(StatusCode::kNotFound, HasSubstr("51")));
  EXPECT_THAT(StepSelector::Latest().Choose({}), StatusIs(StatusCode::kNotFound, HasSubstr("no step is committed")));
}

}  // namespace
}  // namespace tidemark
