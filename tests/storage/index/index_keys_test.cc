#include "storage/index/index_keys.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/non_finite.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

TEST(MetricKey, SortsByValueThenByStep) {
  const double values[] = {
      -std::numeric_limits<double>::max(),       -1.5, -1,  -std::numeric_limits<double>::denorm_min(), 0,
      std::numeric_limits<double>::denorm_min(), 1,    1.5, std::numeric_limits<double>::max()};
  for (size_t i = 1; i < std::size(values); ++i) {
    EXPECT_LT(MetricKey("loss", values[i - 1], INT64_MAX), MetricKey("loss", values[i], 0)) << values[i];
  }
  EXPECT_LT(MetricKey("loss", 1, 255), MetricKey("loss", 1, 256));
  EXPECT_EQ(MetricKey("loss", -0.0, 1), MetricKey("loss", 0.0, 1));
}

TEST(MetricKey, GivesItsStepBack) {
  for (const int64_t step : {int64_t{0}, int64_t{255}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(StepOfMetricKey(MetricKey("loss", -2, step)), step);
  }
}

TEST(MetricKey, LiesBetweenItsPrefixAndTheLastKeys) {
  const std::string key = MetricKey("loss", 3, 7);
  EXPECT_THAT(key, StartsWith(MetricPrefix("loss")));
  EXPECT_LE(key, LastKeyOfValue(key));
  EXPECT_LT(LastKeyOfValue(key), MetricKey("loss", std::nextafter(3, 4), 0));
  EXPECT_LE(MetricKey("loss", std::numeric_limits<double>::max(), INT64_MAX), LastKeyOfMetric("loss"));
}

// Whatever bytes they have: zeros, the bytes of numbers, or those of another name.
TEST(MetricKey, OfOneNameNeverLooksLikeThatOfAnother) {
  const std::string names[] = {"loss",
                               "loss2",
                               std::string("loss\0", 5),
                               std::string("\0", 1),
                               "\xff",
                               MetricKey("loss", 1, 1),
                               MetricKey("loss", 1, 1).substr(7)};
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      if (a == b) continue;
      EXPECT_FALSE(MetricKey(a, 1, 1).starts_with(MetricPrefix(b)));
      EXPECT_FALSE(LastKeyOfMetric(a).starts_with(MetricPrefix(b)));
    }
  }
}

StepRecord RecordInState(StepState state) {
  StepRecord record;
  record.info.step = 5;
  record.info.state = state;
  record.info.metrics = {{"a", 1}, {"b", kNan}, {"c", kInfinity}, {"d", -kInfinity}};
  return record;
}

TEST(IndexKeys, HoldTheFiniteMetricsOfACommittedStepAlone) {
  EXPECT_THAT(IndexKeys(RecordInState(StepState::kCommitted)), ElementsAre(CommittedKey(5), MetricKey("a", 1, 5)));
  EXPECT_EQ(StepOfCommittedKey(CommittedKey(INT64_MAX)), INT64_MAX);
  for (const StepState state :
       {StepState::kDamaged, StepState::kLost, StepState::kFailed, StepState::kDeleted, StepState::kUnsaved}) {
    EXPECT_THAT(IndexKeys(RecordInState(state)), IsEmpty());
  }
}

TEST(IndexKeys, HoldNoMetricOfAStepThatAnyEvaluationCallsUnhealthy) {
  StepRecord record = RecordInState(StepState::kCommitted);
  record.info.evaluations = {{.evaluator = "validation"}, {.evaluator = "watch", .unhealthy = "loss spike"}};
  record.references = {{.step = 1, .attempt = AttemptId{{1}}}};
  EXPECT_THAT(IndexKeys(record), ElementsAre(CommittedKey(5), StartsWith(ReferencePrefix(AttemptId{{1}}))));
  record.info.evaluations[1].unhealthy.clear();
  EXPECT_THAT(IndexKeys(record), testing::Contains(MetricKey("a", 1, 5)));
}

TEST(IndexKeys, HoldNothingThatADeletedStepRefersTo) {
  StepRecord record = RecordInState(StepState::kDeleted);
  record.references = {{.step = 1, .attempt = AttemptId{{1}}}};
  EXPECT_THAT(IndexKeys(record), IsEmpty());
}

TEST(IndexKeys, HoldEachAttemptThatAStepOfAnyStateRefersToOnce) {
  for (const StepState state : {StepState::kCommitted, StepState::kDamaged, StepState::kLost}) {
    StepRecord record = RecordInState(state);
    record.info.metrics.clear();
    record.references = {{.step = 1, .attempt = AttemptId{{1}}, .rank = 0, .world_size = 2},
                         {.step = 1, .attempt = AttemptId{{1}}, .rank = 1, .world_size = 2},
                         {.step = 2, .attempt = AttemptId{{2}}}};
    std::set<std::string> keys = IndexKeys(record);
    keys.erase(CommittedKey(5));
    EXPECT_THAT(keys, UnorderedElementsAre(StartsWith(ReferencePrefix(AttemptId{{1}})),
                                           StartsWith(ReferencePrefix(AttemptId{{2}}))));
  }
}

}  // namespace
}  // namespace tidemark::storage
