#include "tidemark/health_monitor.h"

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/fact.h"
#include "tests/non_finite.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::DoubleEq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

std::unique_ptr<HealthMonitor> MakeMonitor(HealthOptions options = {}) {
  auto monitor = HealthMonitor::Create(std::move(options));
  EXPECT_THAT(monitor, IsOk());
  return *std::move(monitor);
}

Verdict Evaluate(HealthMonitor& monitor, const Snapshot& snapshot) {
  auto verdict = monitor.function()(snapshot);
  EXPECT_THAT(verdict, IsOk());
  return *std::move(verdict);
}

TestSnapshot Weights(int64_t step, std::vector<float> values, Metrics metrics = {}) {
  TestSnapshot snapshot(step, std::move(metrics));
  snapshot.Add("model.weight", values);
  return snapshot;
}

TEST(HealthMonitor, RefusesOptionsOutOfTheirRange) {
  EXPECT_THAT(HealthMonitor::Create({.name = "a/b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name: expected 1 to 256 bytes without '/'")));
  EXPECT_THAT(HealthMonitor::Create({.norm_jump_max = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("norm_jump_max: expected more than 1, found 1")));
  EXPECT_THAT(HealthMonitor::Create({.loss_deviations_max = std::nan("")}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loss_deviations_max: expected more than 0")));
  EXPECT_THAT(HealthMonitor::Create({.per_entry = {"model.*", ""}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("per_entry: expected patterns")));
  for (const double jump : {1.0, -2.0, std::nan("")}) {
    EXPECT_THAT(HealthMonitor::Create({.loss_variance_jump_max = jump}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("loss_variance_jump_max: expected more than 1, or 0, found ")));
  }
  EXPECT_THAT(HealthMonitor::Create({.loss_window = 7}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loss_window: expected 8 or more, found 7")));
}

TEST(HealthMonitor, AsksForMoreSavesOnceWhenTheLossBecomesErratic) {
  std::vector<Divergence> told;
  auto monitor = MakeMonitor({.loss_metric = "loss",
                              .loss_deviations_max = 1000,
                              .loss_window = 8,
                              .loss_variance_jump_max = 4,
                              .on_divergence = [&](const Divergence& divergence) { told.push_back(divergence); }});
  // Steps 1 to 8 swing by 0.1 around 2, and the later ones by 0.5.
  for (int64_t step = 1; step <= 14; ++step) {
    const double swing = (step % 2 == 0 ? 1 : -1) * (step <= 8 ? 0.1 : 0.5);
    const Verdict verdict = Evaluate(*monitor, Weights(step, {1}, {{"loss", 2 + swing}}));
    EXPECT_THAT(verdict.unhealthy, IsEmpty());
    EXPECT_EQ(verdict.metrics.contains("loss_variance_jump"), step >= 8) << step;
    if (step == 8) {
      EXPECT_THAT(verdict.metrics.at("loss_variance_jump"), DoubleEq(1));
    }
    if (step == 12) {
      EXPECT_NEAR(verdict.metrics.at("loss_variance_jump"), 25, 1e-6);
    }
  }
  ASSERT_EQ(told.size(), 1u) << "once, although the variance stays high for some steps";
  EXPECT_EQ(told[0].remediation, Remediation::kSaveMoreOften);
  EXPECT_EQ(told[0].step, 9);
  EXPECT_THAT(told[0].reason, HasSubstr("the variance of loss over the last 4 healthy steps is "));
  EXPECT_THAT(told[0].reason, HasSubstr(" times that of the 4 before"));
  const std::optional<Divergence> taken = monitor->TakeDivergence();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->remediation, Remediation::kSaveMoreOften);
  EXPECT_FALSE(monitor->TakeDivergence().has_value());
}

TEST(HealthMonitor, GivesOutARollbackBeforeAWishForMoreSaves) {
  auto monitor =
      MakeMonitor({.loss_metric = "loss", .loss_deviations_max = 1000, .loss_window = 8, .loss_variance_jump_max = 2});
  for (int64_t step = 1; step <= 10; ++step) {
    const double swing = (step % 2 == 0 ? 1 : -1) * (step <= 8 ? 0.1 : 0.9);
    Evaluate(*monitor, Weights(step, {1}, {{"loss", 2 + swing}}));
  }
  Evaluate(*monitor, Weights(11, {1}, {{"loss", std::nan("")}}));
  const std::optional<Divergence> taken = monitor->TakeDivergence();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->remediation, Remediation::kRollBack);
  EXPECT_EQ(taken->step, 11);
}

TEST(HealthMonitor, FailsAnEvaluationWhoseWishForMoreSavesThrows) {
  auto monitor = MakeMonitor({.loss_metric = "loss",
                              .loss_deviations_max = 1000,
                              .loss_window = 8,
                              .loss_variance_jump_max = 2,
                              .on_divergence = [](const Divergence&) { throw std::runtime_error("no"); }});
  for (int64_t step = 1; step <= 8; ++step) {
    Evaluate(*monitor, Weights(step, {1}, {{"loss", step % 2 == 0 ? 2.1 : 1.9}}));
  }
  EXPECT_THROW(monitor->function()(Weights(9, {1}, {{"loss", 9}})).IgnoreError(), std::runtime_error)
      << "the caller makes it a failed evaluation";
}

TEST(HealthMonitor, ReportsNormsOfHealthyWeights) {
  auto monitor = MakeMonitor();
  TestSnapshot snapshot(1);
  snapshot.Add("a", std::vector<float>{3, 0});
  snapshot.Add("b", std::vector<double>{4});
  snapshot.AddTied("tied", "a");
  snapshot.Add({.name = "ids", .dtype = Dtype::kInt32, .shape = {1}}, std::vector<int32_t>{100});
  const Verdict verdict = Evaluate(*monitor, snapshot);
  EXPECT_THAT(verdict.unhealthy, IsEmpty());
  EXPECT_THAT(verdict.metrics.at("norm"), DoubleEq(5));
  EXPECT_EQ(verdict.metrics.at("nan"), 0);
  EXPECT_EQ(verdict.metrics.at("inf"), 0);
  EXPECT_FALSE(verdict.metrics.contains("norm_jump"));  // there is nothing to hold it against
  EXPECT_FALSE(monitor->TakeDivergence().has_value());
}

TEST(HealthMonitor, CountsBoxesOfATensorAsOneEntry) {
  auto monitor = MakeMonitor({.per_entry = {"*"}});
  TestSnapshot snapshot(1);
  const auto add = [&](int64_t row, std::vector<float> values) {
    snapshot.Add({.name = "w", .dtype = Dtype::kFloat32, .shape = {2, 2}, .box_offset = {row, 0}, .box_extent = {1, 2}},
                 values);
  };
  add(0, {3, 0});
  add(1, {0, 4});
  EXPECT_THAT(Evaluate(*monitor, snapshot).metrics.at("norm/w"), DoubleEq(5));
  add(1, {std::nanf(""), std::nanf("")});
  add(0, {1, std::nanf("")});
  EXPECT_THAT(Evaluate(*monitor, snapshot).unhealthy, HasSubstr("'w' (3 NaN, 0 infinite)"));
}

TEST(HealthMonitor, NamesTheEntriesWithMostThatIsNotFinite) {
  auto monitor = MakeMonitor();
  TestSnapshot snapshot(4);
  snapshot.Add("one", std::vector<float>{std::nanf(""), 1});
  snapshot.Add("fine", std::vector<float>{1});
  snapshot.Add({.name = "three", .dtype = Dtype::kBfloat16, .shape = {4}},
               std::vector<uint16_t>{0x7fc0, 0xff80, 0x7f80, 0x3f80});
  for (int i = 0; i < 5; ++i) snapshot.Add("more" + std::to_string(i), std::vector<double>{std::nan("")});
  const Verdict verdict = Evaluate(*monitor, snapshot);
  EXPECT_EQ(verdict.metrics.at("nan"), 7);
  EXPECT_EQ(verdict.metrics.at("inf"), 2);
  EXPECT_THAT(verdict.unhealthy,
              AllOf(HasSubstr("7 NaN and 2 infinite: 'three' (1 NaN, 2 infinite), 'one' (1 NaN, 0 infinite)"),
                    HasSubstr("and 2 more"), Not(HasSubstr("fine"))));
}

TEST(HealthMonitor, LooksOnlyAtEntriesThatThePatternsName) {
  auto monitor = MakeMonitor({.entries = {"model.*"}});
  TestSnapshot snapshot(1);
  snapshot.Add("model.weight", std::vector<float>{1});
  snapshot.Add("optimizer.weight", std::vector<float>{kInfinity});
  EXPECT_THAT(Evaluate(*monitor, snapshot).unhealthy, IsEmpty());
  EXPECT_THAT(monitor->evaluator_options().entries, testing::ElementsAre("model.*"));
  EXPECT_EQ(monitor->evaluator_options().when_lagging, WhenLagging::kQueue);
  EXPECT_EQ(monitor->evaluator_options().threads, 1);
}

TEST(HealthMonitor, ReportsJumpsUpAndDownAgainstTheLastHealthySnapshot) {
  auto monitor = MakeMonitor({.norm_jump_max = 4});
  EXPECT_THAT(Evaluate(*monitor, Weights(1, {1})).unhealthy, IsEmpty());
  Verdict verdict = Evaluate(*monitor, Weights(2, {4}));
  EXPECT_THAT(verdict.unhealthy, IsEmpty());  // 4 is not more than 4
  EXPECT_EQ(verdict.metrics.at("norm_jump"), 4);
  verdict = Evaluate(*monitor, Weights(3, {20}));
  EXPECT_EQ(verdict.metrics.at("norm_jump"), 5);
  EXPECT_EQ(verdict.unhealthy, "norms jumped: 'model.weight' from 4 to 20");
  // Still against 4, and not against what was called unhealthy.
  verdict = Evaluate(*monitor, Weights(4, {0.5}));
  EXPECT_EQ(verdict.metrics.at("norm_jump"), 8);
  EXPECT_THAT(verdict.unhealthy, Not(IsEmpty()));
  EXPECT_THAT(Evaluate(*monitor, Weights(5, {5})).unhealthy, IsEmpty());
}

TEST(HealthMonitor, ReportsNormsAndJumpsOfTheEntriesThatPerEntryNames) {
  auto monitor = MakeMonitor({.per_entry = {"layers.?.*", "nothing"}});
  const auto layers = [](int64_t step, float scale) {
    TestSnapshot snapshot(step);
    snapshot.Add("layers.0.weight", std::vector<float>{scale * 3, 4});
    snapshot.Add("layers.1.weight", std::vector<float>{scale});
    snapshot.Add("head", std::vector<float>{scale});
    return snapshot;
  };
  EXPECT_THAT(Evaluate(*monitor, layers(1, 1)).metrics,
              UnorderedElementsAre(Pair("nan", 0), Pair("inf", 0), Pair("norm", DoubleEq(std::sqrt(27.0))),
                                   Pair("norm/layers.0.weight", 5), Pair("norm/layers.1.weight", 1)));
  const Verdict verdict = Evaluate(*monitor, layers(2, 0.5));
  EXPECT_THAT(verdict.metrics.at("norm_jump/layers.0.weight"), DoubleEq(5 / std::sqrt(18.25)));
  EXPECT_EQ(verdict.metrics.at("norm_jump/layers.1.weight"), 2);
  EXPECT_FALSE(verdict.metrics.contains("norm/head"));
  EXPECT_FALSE(verdict.metrics.contains("per_entry_left_out"));
}

TEST(HealthMonitor, LeavesOutEntriesBeyondWhatTheStoreTakes) {
  auto monitor = MakeMonitor({.per_entry = {"*"}});
  const std::string prefix(1022, '\x01');  // in a report six times as long
  const auto many = [&](int64_t step) {
    TestSnapshot snapshot(step);
    snapshot.Add(std::string(1025, 'x'), std::vector<float>{1});
    for (int i = 10; i < 80; ++i) snapshot.Add(prefix + std::to_string(i), std::vector<float>{1});
    return snapshot;
  };
  Evaluate(*monitor, many(1));
  const Verdict verdict = Evaluate(*monitor, many(2));
  EXPECT_EQ(verdict.metrics.at("per_entry_left_out"), 7);
  EXPECT_TRUE(verdict.metrics.contains("norm/" + prefix + "73"));
  EXPECT_FALSE(verdict.metrics.contains("norm/" + prefix + "74"));
  const Evaluation evaluation{.evaluator = std::string(256, 'h'), .metrics = verdict.metrics};
  EXPECT_THAT(storage::EncodeFact(storage::EvaluationFact{.step = 2, .evaluation = evaluation}), IsOk());
}

TEST(HealthMonitor, FindsNoJumpFromZeroButOneToZero) {
  auto monitor = MakeMonitor();
  EXPECT_THAT(Evaluate(*monitor, Weights(1, {0})).unhealthy, IsEmpty());
  EXPECT_THAT(Evaluate(*monitor, Weights(2, {100})).unhealthy, IsEmpty());
  EXPECT_THAT(Evaluate(*monitor, Weights(3, {0})).unhealthy, HasSubstr("from 100 to 0"));
}

TEST(HealthMonitor, HoldsTheLossAgainstItsWindow) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_deviations_max = 3, .loss_window = 8});
  int64_t step = 0;
  for (const double loss : {1.0, 1.2, 0.8}) {
    const Verdict verdict = Evaluate(*monitor, Weights(step++, {1}, {{"loss", loss}}));
    EXPECT_THAT(verdict.unhealthy, IsEmpty());
    EXPECT_FALSE(verdict.metrics.contains("loss_deviation"));
  }
  // Half of the window is not there yet: only what is no number counts.
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"loss", std::nan("")}})).unhealthy, HasSubstr("loss is nan"));
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"loss", 1.0}})).unhealthy, IsEmpty());
  const Verdict far = Evaluate(*monitor, Weights(step++, {1}, {{"loss", 9.0}}));
  EXPECT_THAT(far.unhealthy,
              AllOf(HasSubstr("loss is 9, 56.6 standard deviations from 1"), HasSubstr("last 4 healthy")));
  EXPECT_NEAR(far.metrics.at("loss_deviation"), 8 / std::sqrt(0.02), 1e-9);
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"loss", 1.3}})).unhealthy, IsEmpty());  // 9 left no trace
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1})).unhealthy, IsEmpty());                   // a save without a loss
}

TEST(HealthMonitor, ForgetsWhatLeftTheWindow) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_deviations_max = 3, .loss_window = 8});
  int64_t step = 0;
  for (int i = 0; i < 3; ++i) Evaluate(*monitor, Weights(step++, {1}, {{"loss", 100.0 + i}}));
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"loss", 2.0}})).unhealthy, IsEmpty());  // too little is known
  for (int i = 0; i < 8; ++i) Evaluate(*monitor, Weights(step++, {1}, {{"loss", 2.0 + 0.1 * i}}));
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"loss", 100.0}})).unhealthy, HasSubstr("loss is 100"));
}

TEST(HealthMonitor, LetsAMetricThatNeverMovedMoveALittle) {
  auto monitor = MakeMonitor({.gradient_norm_metric = "grad"});
  int64_t step = 0;
  for (int i = 0; i < 30; ++i) {
    EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"grad", 1.0}})).unhealthy, IsEmpty());
  }
  EXPECT_THAT(Evaluate(*monitor, Weights(step++, {1}, {{"grad", 0.95}})).unhealthy, IsEmpty());
  const Verdict verdict = Evaluate(*monitor, Weights(step++, {1}, {{"grad", 0.5}}));
  EXPECT_THAT(verdict.unhealthy, HasSubstr("grad is 0.5"));
  EXPECT_TRUE(verdict.metrics.contains("gradient_norm_deviation"));
}

TEST(HealthMonitor, TellsOfEveryDivergenceAndKeepsTheFirst) {
  std::vector<Divergence> told;
  auto monitor = MakeMonitor({.on_divergence = [&](const Divergence& divergence) { told.push_back(divergence); }});
  Evaluate(*monitor, Weights(1, {1}));
  Evaluate(*monitor, Weights(2, {kInfinity}));
  Evaluate(*monitor, Weights(3, {kInfinity}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].step, 3);
  const auto taken = monitor->TakeDivergence();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->step, 2);
  EXPECT_THAT(taken->reason, HasSubstr("'model.weight' (0 NaN, 1 infinite)"));
  EXPECT_FALSE(monitor->TakeDivergence().has_value());
  Evaluate(*monitor, Weights(4, {kInfinity}));
  EXPECT_EQ(monitor->TakeDivergence()->step, 4);
}

TEST(HealthMonitor, TakesLargeDoublesForWhatTheyAre) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_window = 8});
  const double largest = std::numeric_limits<double>::max();
  const auto weights = [](int64_t step, double value, Metrics metrics = {}) {
    TestSnapshot snapshot(step, std::move(metrics));
    snapshot.Add("a", std::vector<double>{value, -value, 0});
    snapshot.Add("b", std::vector<double>{1});
    return snapshot;
  };
  EXPECT_THAT(Evaluate(*monitor, weights(1, 3e200)).metrics.at("norm"), DoubleEq(3e200 * std::sqrt(2.0)));
  Verdict verdict = Evaluate(*monitor, weights(2, 3e202));
  EXPECT_THAT(verdict.unhealthy, HasSubstr("norms jumped: 'a' from 4.24264e+200 to 4.24264e+202"));
  EXPECT_NEAR(verdict.metrics.at("norm_jump"), 100, 1e-9);
  monitor->Reset();
  // A norm beyond the doubles, twice: no infinity, and no NaN from one over another.
  for (int64_t step = 3; step < 5; ++step) {
    verdict = Evaluate(*monitor, weights(step, largest));
    EXPECT_THAT(verdict.unhealthy, IsEmpty());
    EXPECT_EQ(verdict.metrics.at("norm"), largest);
  }
  EXPECT_EQ(verdict.metrics.at("norm_jump"), 1);
  for (int64_t step = 5; step < 9; ++step)
    Evaluate(*monitor, weights(step, largest, {{"loss", 1e200 + static_cast<double>(step) * 1e199}}));
  EXPECT_NEAR(Evaluate(*monitor, weights(9, largest, {{"loss", 1.65e200}})).metrics.at("loss_deviation"), 0, 1e-9);
}

TEST(HealthMonitor, KeepsItsVerdictWhereTheCallbackThrows) {
  auto monitor = MakeMonitor({.on_divergence = [](const Divergence& divergence) {
    if (divergence.step == 2) throw std::runtime_error("out of luck");
    throw 3;
  }});
  const Verdict verdict = Evaluate(*monitor, Weights(2, {kInfinity}));
  EXPECT_EQ(verdict.unhealthy,
            "0 NaN and 1 infinite: 'model.weight' (0 NaN, 1 infinite); on_divergence threw 'out of luck'");
  EXPECT_EQ(verdict.metrics.at("inf"), 1);
  EXPECT_THAT(Evaluate(*monitor, Weights(3, {kInfinity})).unhealthy,
              HasSubstr("on_divergence threw something other than a std::exception"));
  EXPECT_EQ(monitor->TakeDivergence()->step, 2);
}

TEST(HealthMonitor, ForgetsWhatWentBeforeOnResetAndWhereStepsGoBack) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_window = 8});
  const auto train = [&](int64_t begin, float weight, double loss) {
    for (int64_t step = begin; step < begin + 5; ++step) {
      EXPECT_THAT(Evaluate(*monitor, Weights(step, {weight}, {{"loss", loss}})).unhealthy, IsEmpty());
    }
  };
  train(10, 1, 1);
  Evaluate(*monitor, Weights(15, {1000}));
  monitor->Reset();
  EXPECT_FALSE(monitor->TakeDivergence().has_value());
  train(16, 1000, 50);
  Evaluate(*monitor, Weights(21, {kInfinity}));
  train(12, 1, 1);  // back behind step 16, as after a restore
  EXPECT_FALSE(monitor->TakeDivergence().has_value());
}

TEST(HealthMonitor, CallsAStepUnhealthyAgainWhereTheRunComesBackToItWithTheSameState) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_window = 8});
  for (int64_t step = 1; step <= 8; ++step) {
    Evaluate(*monitor, Weights(step, {1}, {{"loss", 1 + 0.01 * static_cast<double>(step)}}));
  }
  const Verdict first = Evaluate(*monitor, Weights(9, {1000}, {{"loss", 100}}));
  EXPECT_THAT(first.unhealthy, AllOf(HasSubstr("from 1 to 1000"), HasSubstr("loss is 100")));
  const Verdict again = Evaluate(*monitor, Weights(9, {1000}, {{"loss", 100}}));
  EXPECT_EQ(again.unhealthy, first.unhealthy);
  EXPECT_EQ(again.metrics, first.metrics);
  EXPECT_EQ(monitor->TakeDivergence()->step, 9);
}

TEST(HealthMonitor, HoldsASecondSaveOfAHealthyStepAgainstTheStepsBeforeIt) {
  auto monitor = MakeMonitor({.loss_metric = "loss", .loss_window = 8});
  for (int64_t step = 1; step <= 8; ++step) Evaluate(*monitor, Weights(step, {1}, {{"loss", 1}}));
  const Verdict verdict = Evaluate(*monitor, Weights(8, {1000}, {{"loss", 100}}));
  EXPECT_THAT(verdict.unhealthy, AllOf(HasSubstr("from 1 to 1000"), HasSubstr("the last 7 healthy ones")));
}

TEST(HealthMonitor, KnowsNormsOfTheStepsThatTheRunWentBackTo) {
  auto monitor = MakeMonitor();
  for (int64_t step = 1; step <= 3; ++step) Evaluate(*monitor, Weights(step, {static_cast<float>(step)}));
  EXPECT_EQ(Evaluate(*monitor, Weights(3, {8})).metrics.at("norm_jump"), 4) << "against step 2";
  EXPECT_EQ(Evaluate(*monitor, Weights(2, {8})).metrics.at("norm_jump"), 8) << "against step 1";
  // Farther back than it remembers there is nothing to hold a step against.
  for (int64_t step = 3; step < 20; ++step) Evaluate(*monitor, Weights(step, {8}));
  EXPECT_FALSE(Evaluate(*monitor, Weights(5, {1000})).metrics.contains("norm_jump"));
}

TEST(HealthMonitor, KeepsADivergenceThatTheRunDidNotGoBackBehind) {
  auto monitor = MakeMonitor();
  Evaluate(*monitor, Weights(1, {1}));
  Evaluate(*monitor, Weights(2, {kInfinity}));
  Evaluate(*monitor, Weights(5, {1}));
  Evaluate(*monitor, Weights(3, {1}));
  EXPECT_EQ(monitor->TakeDivergence()->step, 2);
}

TEST(HealthMonitor, LeavesItsFunctionUsableWhenItGoes) {
  auto monitor = MakeMonitor();
  const EvaluatorFunction function = monitor->function();
  monitor.reset();
  EXPECT_THAT(function(Weights(1, {1})), IsOk());
}

}  // namespace
}  // namespace tidemark
