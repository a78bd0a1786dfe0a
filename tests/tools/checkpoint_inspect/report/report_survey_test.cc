#include "tools/checkpoint_inspect/report/report_survey.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using Kind = HeatCell::Kind;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class SurveyTest : public testing::Test {
 protected:
  SurveyTest() {
    state_.AddTensor("model.bias", Dtype::kFloat32, {4}, frozen_.data());
    state_.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight_.size())}, weight_.data());
    state_.AddTensor("moment", Dtype::kFloat64, {2}, moment_.data());
    state_.AddTensor("mask", Dtype::kInt32, {2}, mask_.data());
  }

  void Save(int64_t step) { Save(step, state_); }
  void Save(int64_t step, State& state) {
    const auto checkpointer = store_.OpenCheckpointer();
    const auto save = checkpointer->Save(step, state);
    ASSERT_TRUE(save.ok()) << save.status();
    const absl::Status closed = checkpointer->Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }

  ReportSurvey Survey(const std::vector<int64_t>& steps, const SurveyLimits& limits = {}) {
    const auto reader = StoreReader::Open(store_.directory());
    EXPECT_TRUE(reader.ok()) << reader.status();
    Console console(stdout, stderr);
    absl::StatusOr<ReportSurvey> survey = SurveySteps(**reader, steps, limits, console);
    EXPECT_TRUE(survey.ok()) << survey.status();
    return *std::move(survey);
  }

  TestStore store_;
  std::vector<float> frozen_ = {1, 2, 3, 4};
  // Larger than a chunk of a TestStore.
  std::vector<float> weight_ = std::vector<float>(3000, 2);
  std::vector<double> moment_ = {0, 0};
  std::vector<int32_t> mask_ = {1, 2};
  State state_;
};

TEST_F(SurveyTest, TellsTheRelativeChangeOfEveryTensor) {
  Save(1);
  for (float& value : weight_) value = 2.5;
  moment_ = {1, 1};
  Save(2);
  moment_ = {1, 1.5};
  Save(3);
  const ReportSurvey survey = Survey({1, 2, 3});
  EXPECT_THAT(survey.steps, ElementsAre(1, 2, 3));
  EXPECT_THAT(survey.rows, ElementsAre("model.bias", "weight", "moment"));
  ASSERT_THAT(survey.cells, SizeIs(6));
  EXPECT_EQ(survey.cells[0].kind, Kind::kUnchanged);
  EXPECT_EQ(survey.cells[1].kind, Kind::kUnchanged);
  EXPECT_EQ(survey.cells[2].kind, Kind::kChanged);
  EXPECT_DOUBLE_EQ(survey.cells[2].value, 0.25);
  EXPECT_EQ(survey.cells[3].kind, Kind::kUnchanged);
  EXPECT_EQ(survey.cells[4].kind, Kind::kFromZero);
  EXPECT_EQ(survey.cells[5].kind, Kind::kChanged);
  EXPECT_NEAR(survey.cells[5].value, 0.5 / std::sqrt(2), 1e-12);
  EXPECT_EQ(survey.others, 1);
  // What did not change is read of the last step only.
  EXPECT_EQ(survey.bytes_read, 12'032 + 2 * 12'000 + 4 * 16);
  EXPECT_EQ(survey.bytes_pairs_left_out + survey.bytes_histograms_left_out, 0);
  EXPECT_THAT(survey.problems, IsEmpty());
  EXPECT_EQ(survey.steps_read, 3);
}

TEST_F(SurveyTest, TellsTheChangeOfTheLargestAndTheSmallestNumbers) {
  moment_ = {1e200, 1e200};
  Save(1);
  moment_ = {1e200, 2e200};
  Save(2);
  moment_ = {1, 1e-170};
  Save(3);
  moment_ = {1, 2e-170};
  Save(4);
  const ReportSurvey survey = Survey({1, 2, 3, 4});
  ASSERT_THAT(survey.cells, SizeIs(9));
  for (const size_t cell : {6u, 7u, 8u}) EXPECT_EQ(survey.cells[cell].kind, Kind::kChanged) << cell;
  EXPECT_DOUBLE_EQ(survey.cells[6].value, 1 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(survey.cells[7].value, 1);
  EXPECT_DOUBLE_EQ(survey.cells[8].value, 1e-170);
}

TEST_F(SurveyTest, CallsUnchangedOnlyWhatHasTheSameBytes) {
  Save(1);
  moment_ = {0, -0.0};
  Save(2);
  Save(3);
  const ReportSurvey survey = Survey({1, 2, 3});
  EXPECT_EQ(survey.cells[4].kind, Kind::kSameNumbers);
  EXPECT_EQ(survey.cells[5].kind, Kind::kUnchanged);
  // In one row with others, too.
  EXPECT_EQ(Survey({1, 2, 3}, {.rows_max = 1}).cells[0].kind, Kind::kSameNumbers);
}

TEST_F(SurveyTest, CountsTheNumbersOfTheLastStep) {
  Save(1);
  weight_[0] = std::numeric_limits<float>::quiet_NaN();
  Save(2);
  const ReportSurvey survey = Survey({1, 2});
  EXPECT_EQ(survey.cells[1].kind, Kind::kNotFinite);
  ASSERT_THAT(survey.histograms, SizeIs(3));
  EXPECT_EQ(survey.histograms[1].label, "weight");
  EXPECT_EQ(survey.histograms[1].tensors_read, 1);
  EXPECT_EQ(survey.histograms[1].histogram.count(), 3000);
  EXPECT_EQ(survey.histograms[1].histogram.nan(), 1);
  EXPECT_EQ(survey.histograms[0].histogram.max(), 4);
}

TEST_F(SurveyTest, AddsUpTheTensorsOfARowTheUnchangedOnesToo) {
  Save(1);
  weight_.assign(weight_.size(), 3);
  Save(2);
  const ReportSurvey survey = Survey({1, 2}, {.rows_max = 1, .histograms_max = 1});
  EXPECT_THAT(survey.rows, ElementsAre("model.bias … moment"));
  ASSERT_THAT(survey.cells, SizeIs(1));
  EXPECT_EQ(survey.cells[0].left_out, 0);
  EXPECT_EQ(survey.cells[0].of, 3);
  EXPECT_DOUBLE_EQ(survey.cells[0].value, std::sqrt(3000.0 / (4 * 3000 + 30)));
  EXPECT_EQ(survey.histograms[0].tensors, 3);
  EXPECT_EQ(survey.histograms[0].histogram.count(), 3006);
}

TEST_F(SurveyTest, ReadsNoMoreThanItMay) {
  Save(1);
  weight_.assign(weight_.size(), 3);
  moment_ = {5, 5};
  Save(2);
  const ReportSurvey survey = Survey({1, 2}, {.read_bytes_max = 100});
  EXPECT_EQ(survey.bytes_read, 32 + 32);
  EXPECT_EQ(survey.bytes_histograms_left_out, 12'000);
  EXPECT_EQ(survey.bytes_pairs_left_out, 24'000);
  EXPECT_EQ(survey.cells[0].kind, Kind::kUnchanged);
  EXPECT_EQ(survey.cells[1].kind, Kind::kNotRead);
  EXPECT_EQ(survey.cells[2].kind, Kind::kFromZero);
  EXPECT_EQ(survey.histograms[1].tensors_read, 0);
  // Of a row that was read in part the rest is named.
  const ReportSurvey row = Survey({1, 2}, {.read_bytes_max = 100, .rows_max = 1});
  EXPECT_EQ(row.cells[0].kind, Kind::kChanged);
  EXPECT_EQ(row.cells[0].left_out, 1);
}

TEST_F(SurveyTest, ComparesStepsThatAreEvenlyChosenWhereThereAreMany) {
  for (int64_t step = 1; step <= 7; ++step) Save(step);
  const ReportSurvey survey = Survey({1, 2, 3, 4, 5, 6, 7}, {.steps_max = 3});
  EXPECT_THAT(survey.steps, ElementsAre(1, 4, 7));
  EXPECT_EQ(survey.steps_given, 7);
}

TEST_F(SurveyTest, GoesOnWithoutWhatCannotBeRead) {
  Save(1);
  weight_.assign(weight_.size(), 3);
  Save(2);
  weight_.assign(weight_.size(), 4);
  Save(3);
  weight_.assign(weight_.size(), 5);
  Save(4);
  store_.DamageIndex(2);
  store_.RemoveShard(1);
  const ReportSurvey survey = Survey({1, 2, 3, 4});
  EXPECT_THAT(survey.steps, ElementsAre(3, 4));
  EXPECT_THAT(survey.problems, ElementsAre(Field(&ReadProblem::step, 1), Field(&ReadProblem::step, 2)));
  EXPECT_THAT(survey.problems[1].not_shown, ElementsAre("anything of it"));
  EXPECT_TRUE(survey.problems[0].damaged);
  EXPECT_TRUE(survey.damaged());
  EXPECT_FALSE(survey.failed());
  EXPECT_DOUBLE_EQ(survey.cells[1].value, 0.25);
}

TEST_F(SurveyTest, TellsDamageInWhatItReads) {
  store_.Save({1, 2});
  store_.DamageChunk(2);
  const ReportSurvey survey = Survey({1, 2});
  EXPECT_TRUE(survey.damaged());
  ASSERT_THAT(survey.problems, SizeIs(1));
  EXPECT_EQ(survey.problems[0].step, 2);
  EXPECT_TRUE(survey.problems[0].damaged);
  EXPECT_THAT(survey.problems[0].entries, ElementsAre("model.weight"));
  EXPECT_THAT(survey.problems[0].not_shown, ElementsAre("how step 2's numbers are spread"));
  ASSERT_THAT(survey.histograms, SizeIs(3));
  EXPECT_EQ(survey.histograms[0].tensors_read, 0);
  EXPECT_EQ(survey.bytes_histograms_unread, 40'012);
  EXPECT_EQ(survey.bytes_histograms_left_out, 0);
  EXPECT_EQ(survey.steps_read, 0);
}

TEST_F(SurveyTest, BlamesTheStepThatIsDamagedAndNotItsNeighbours) {
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight_.size())}, weight_.data());
  // Nothing that compresses to less than what is damaged.
  std::mt19937 random(7);
  for (int64_t step = 1; step <= 4; ++step) {
    for (float& value : weight_) value = static_cast<float>(random());
    Save(step, state);
  }
  store_.DamageChunk(2);
  const ReportSurvey survey = Survey({1, 2, 3, 4});
  ASSERT_THAT(survey.problems, SizeIs(1));
  EXPECT_EQ(survey.problems[0].step, 2);
  EXPECT_THAT(survey.problems[0].entries, ElementsAre("weight"));
  EXPECT_THAT(survey.problems[0].not_shown, ElementsAre("the change from step 2 to 3", "the change from step 1 to 2"));
  EXPECT_THAT(ProblemText(survey.problems[0]),
              AllOf(StartsWith("step 2: read "),
                    EndsWith("; not shown in full: the change from step 2 to 3, the change from step 1 to 2")));
  EXPECT_EQ(survey.bytes_pairs_unread, 2 * 2 * 12'000);
  EXPECT_EQ(survey.bytes_pairs_left_out, 0);
  EXPECT_EQ(survey.steps_read, 2);
}

class PassOverTest : public SurveyTest {
 protected:
  // Surveys the steps as they were before `change`, and passes over those that it took away.
  ReportSurvey SurveyAcross(const std::vector<int64_t>& steps, const std::function<void()>& change) {
    const auto then = StoreReader::Open(store_.directory());
    EXPECT_TRUE(then.ok()) << then.status();
    change();
    Console console(stdout, stderr);
    absl::StatusOr<ReportSurvey> survey = SurveySteps(**then, steps, {}, console);
    EXPECT_TRUE(survey.ok()) << survey.status();
    EXPECT_THAT(survey->problems, SizeIs(1));
    const auto now = StoreReader::Open(store_.directory());
    EXPECT_TRUE(now.ok()) << now.status();
    PassOverStepsTakenAway(**then, **now, &*survey);
    return *std::move(survey);
  }
};

TEST_F(PassOverTest, HoldsNothingAgainstAStepThatWasDeletedMeanwhile) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  const ReportSurvey survey = SurveyAcross({1, 2, 3}, [&] { store_.Delete(1, "not among the latest 2"); });
  EXPECT_THAT(survey.steps, ElementsAre(2, 3));
  EXPECT_THAT(survey.problems, IsEmpty());
  EXPECT_FALSE(survey.damaged());
  EXPECT_FALSE(survey.failed());
  ASSERT_THAT(survey.passed_over, SizeIs(1));
  EXPECT_EQ(PassedOverText(survey.passed_over[0]),
            "step 1 was deleted while this page was made, and is left out; not shown in full: anything of it");
}

TEST_F(PassOverTest, HoldsNothingAgainstAStepThatWasSavedAnewMeanwhile) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  const ReportSurvey survey = SurveyAcross({1, 2, 3}, [&] { store_.Save({1}, {.overwrite = true}); });
  EXPECT_THAT(survey.problems, IsEmpty());
  ASSERT_THAT(survey.passed_over, SizeIs(1));
  EXPECT_EQ(PassedOverText(survey.passed_over[0]),
            "step 1 was saved anew while this page was made, and is left out; not shown in full: anything of it");
}

TEST_F(PassOverTest, KeepsAStepThatIsStillToBeThere) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  const ReportSurvey survey = SurveyAcross({1, 2, 3}, [&] { store_.RemoveShard(1); });
  EXPECT_THAT(survey.problems, ElementsAre(Field(&ReadProblem::step, 1)));
  EXPECT_TRUE(survey.damaged());
  EXPECT_THAT(survey.passed_over, IsEmpty());
}

TEST_F(PassOverTest, KeepsAStepThatTheDiskDidNotGiveOut) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  const auto then = StoreReader::Open(store_.directory());
  ASSERT_TRUE(then.ok()) << then.status();
  store_.Delete(1, "not among the latest 2");
  const auto now = StoreReader::Open(store_.directory());
  ASSERT_TRUE(now.ok()) << now.status();
  ReportSurvey survey;
  survey.problems = {{.step = 1, .what = "read a: EIO", .failed = true}};
  PassOverStepsTakenAway(**then, **now, &survey);
  EXPECT_THAT(survey.problems, SizeIs(1));
  EXPECT_TRUE(survey.failed());
  EXPECT_THAT(survey.passed_over, IsEmpty());
}

TEST_F(PassOverTest, KeepsAStepThatNoManifestTellsOf) {
  for (int64_t step = 1; step <= 3; ++step) Save(step);
  const ReportSurvey survey = SurveyAcross({1, 2, 3}, [&] {
    store_.RemoveStep(1);
    store_.DamageJournal();
  });
  EXPECT_THAT(survey.problems, SizeIs(1));
  EXPECT_THAT(survey.passed_over, IsEmpty());
}

TEST_F(SurveyTest, HasNothingToSayOfNoSteps) {
  Save(1);
  EXPECT_THAT(Survey({}).histograms, IsEmpty());
  const ReportSurvey alone = Survey({1});
  EXPECT_THAT(alone.rows, IsEmpty());
  EXPECT_THAT(alone.histograms, SizeIs(3));
}

}  // namespace
}  // namespace tidemark::inspect
