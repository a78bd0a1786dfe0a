#include "tools/checkpoint_inspect/report/report_data.h"

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/report/report_page.h"
#include "tools/checkpoint_inspect/report/report_survey.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// With the reader whose steps it refers to.
struct Gathered : ReportData {
  std::unique_ptr<StoreReader> reader;
};

Gathered Gather(const TestStore& store, const std::vector<MetricChoice>& metrics = {}, int64_t last = 0,
                const ReportSurvey* survey = nullptr) {
  auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  absl::StatusOr<ReportData> data = GatherReport(**reader, metrics, last);
  EXPECT_TRUE(data.ok()) << data.status();
  JudgeHealth(**reader, survey, &*data);
  return {*std::move(data), *std::move(reader)};
}

TEST(GatherReport, KnowsTheLatestAndTheBest) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.5}, {"accuracy", 0.1}}});
  store.Save({2}, {.metrics = {{"loss", 0.25}, {"accuracy", 0.2}}});
  store.Save({3}, {.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}}});
  const Gathered data = Gather(store);
  EXPECT_EQ(data.latest->step, 3);
  EXPECT_EQ(data.committed, 3);
  EXPECT_EQ(data.steps_all, 3);
  EXPECT_GT(data.stored_bytes, 3 * 4096);
  EXPECT_EQ(data.logical_bytes, 3 * 40036);
  ASSERT_THAT(data.metrics, SizeIs(2));
  EXPECT_EQ(data.metrics[0].name, "accuracy");
  EXPECT_EQ(data.metrics[0].best, 2);
  EXPECT_EQ(data.metrics[0].latest, 2);
  EXPECT_EQ(data.metrics[1].best, 2);
  EXPECT_EQ(data.metrics[1].best_value, 0.25);
  EXPECT_EQ(data.metrics[1].latest, 3);
  EXPECT_EQ(data.grade, HealthGrade::kGood);
  EXPECT_EQ(
      data.verdict,
      "A restore takes step 3. No problem is on record. No tensor was read: checkpoint-inspect verify reads every "
      "byte.");
}

TEST(GatherReport, HasNoBestWhereNothingTellsWhichEndItIs) {
  TestStore store;
  store.Save({1}, {.metrics = {{"learning_rate", 0.5}}});
  EXPECT_EQ(Gather(store).metrics[0].mode, std::nullopt);
  EXPECT_EQ(Gather(store).metrics[0].best, std::nullopt);
  store.RecordBestModes({{"learning_rate", BestMode::kHighest}});
  EXPECT_EQ(Gather(store).metrics[0].mode, BestMode::kHighest);
  EXPECT_EQ(Gather(store).metrics[0].best, 1);
}

TEST(GatherReport, ShowsTheLastStepsAndTheMetricsThatItIsAskedFor) {
  TestStore store;
  store.Save({1, 2, 3}, {.metrics = {{"a", 1}, {"b", 2}}});
  const Gathered data = Gather(store, {{.name = "b", .mode = BestMode::kHighest}}, 2);
  EXPECT_THAT(data.steps, SizeIs(2));
  EXPECT_EQ(data.steps[0].step, 2);
  EXPECT_EQ(data.steps_all, 3);
  ASSERT_THAT(data.metrics, SizeIs(1));
  EXPECT_EQ(data.metrics[0].name, "b");
  EXPECT_THAT(Gather(store, {}, 100).steps, SizeIs(3));
}

TEST(GatherReport, RefusesAMetricThatNoStepHas) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 1}}});
  const auto reader = StoreReader::Open(store.directory());
  const absl::Status status = GatherReport(**reader, {{.name = "perplexity"}}, 0).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("loss"));
}

TEST(GatherReport, LeavesOutMetricsBeyondThoseThatThereIsRoomFor) {
  TestStore store;
  SaveOptions options;
  for (int i = 0; i < 30; ++i) options.metrics["m" + std::to_string(100 + i)] = i;
  store.Save({1}, options);
  const Gathered data = Gather(store);
  EXPECT_THAT(data.metrics, SizeIs(24));
  EXPECT_THAT(data.metrics_left_out, ElementsAre("m124", "m125", "m126", "m127", "m128", "m129"));
}

TEST(GatherReport, ListsWhatIsRecordedAgainstSteps) {
  TestStore store;
  store.Save({1, 2, 3});
  store.SaveInVain(4);
  store.DamageChunk(3);
  store.Restart();
  store.Update(1, [](StepInfo& info) { info.state = StepState::kLost; });
  store.Deliver(2, {.evaluator = "health", .unhealthy = "spike"});
  store.Deliver(2, {.evaluator = "late", .outcome = Evaluation::Outcome::kSkipped, .reason = "busy"});
  store.Deliver(2, {.evaluator = "validation", .outcome = Evaluation::Outcome::kFailed, .reason = "no device"});
  const Gathered data = Gather(store);
  std::vector<std::string> kinds;
  for (const HealthRow& row : data.health) kinds.push_back(std::string(HealthKindName(row.kind)));
  EXPECT_THAT(kinds,
              ElementsAre("lost", "unhealthy", "evaluation skipped", "evaluation failed", "damaged", "save failed"));
  EXPECT_EQ(data.health[1].by, "health");
  EXPECT_EQ(data.health[1].what, "spike");
  EXPECT_EQ(data.grade, HealthGrade::kBad);
  EXPECT_EQ(data.verdict,
            "On record: step 3 damaged, step 1 lost, 1 failed save, 1 unhealthy committed step. A "
            "restore takes step 2, which is unhealthy. There is no healthy step.");
}

TEST(GatherReport, SplitsTheBlockedTimeByThePhasesOfTheTrainer) {
  TestStore store;
  store.Save({1, 2}, {}, 500'000);
  const Gathered data = Gather(store);
  std::vector<std::string> names;
  for (const StepInfo& info : data.steps) {
    absl::Duration sum;
    for (const BlockedPart& part : data.blocked) {
      const auto found = part.by_step.find(info.step);
      if (found == part.by_step.end()) continue;
      EXPECT_GT(found->second, absl::ZeroDuration());
      sum += found->second;
      names.push_back(part.name);
    }
    EXPECT_EQ(sum, info.blocked);
  }
  EXPECT_THAT(names, testing::Contains("copy"));
}

TEST(GatherReport, NamesTheDigestThatChecksAnOverlappedSave) {
  TestStore store;
  {
    CheckpointerOptions options{.directory = store.directory()};
    options.tuning.check_overlapped_saves = true;
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    ASSERT_TRUE(checkpointer.ok()) << checkpointer.status();
    TestState state(500'000);
    ASSERT_TRUE((*checkpointer)->Save(1, state, {.staging = Staging::kOverlapped}).ok());
    ASSERT_TRUE((*checkpointer)->Close().ok());
  }
  const Gathered data = Gather(store);
  std::map<std::string, size_t> colours;
  for (const BlockedPart& part : data.blocked) colours[part.name] = part.colour;
  EXPECT_THAT(colours, testing::Contains(testing::Pair("digest", 5)));
}

TEST(GatherReport, NamesTheLatestHealthyStep) {
  TestStore store;
  store.Save({1, 2});
  store.Deliver(2, {.evaluator = "health", .unhealthy = "spike"});
  const Gathered data = Gather(store);
  EXPECT_EQ(data.latest_healthy->step, 1);
  EXPECT_THAT(data.verdict, HasSubstr("(the latest healthy one is step 1)"));
}

TEST(GatherReport, SaysThatThereIsNothingToRestore) {
  TestStore store;
  store.Save({});
  const Gathered data = Gather(store);
  EXPECT_FALSE(data.latest);
  EXPECT_THAT(data.metrics, IsEmpty());
  EXPECT_EQ(
      data.verdict,
      "There is no committed step to restore. No problem is on record. No tensor was read: checkpoint-inspect verify "
      "reads every byte.");
  EXPECT_EQ(data.grade, HealthGrade::kWarning);
}

TEST(GatherReport, SaysThatTheManifestCannotBeRead) {
  TestStore store;
  store.Save({1});
  store.DamageJournal();
  const Gathered data = Gather(store);
  EXPECT_EQ(data.grade, HealthGrade::kBad);
  EXPECT_THAT(data.verdict, HasSubstr("the journal cannot be read"));
}

TEST(JudgeHealth, SaysHowMuchWasReadOfAStoreThatNothingIsKnownAgainst) {
  TestStore store;
  store.Save({1, 2});
  ReportSurvey survey;
  survey.steps_read = 2;
  const Gathered data = Gather(store, {}, 0, &survey);
  EXPECT_EQ(data.grade, HealthGrade::kGood);
  EXPECT_EQ(data.verdict,
            "A restore takes step 2. No problem is on record, and none was found in the tensors of 2 steps. "
            "checkpoint-inspect verify reads every byte.");
}

TEST(JudgeHealth, SaysWhatReadingFoundAndWhatARestoreTakesThen) {
  TestStore store;
  store.Save({1, 2, 3});
  ReportSurvey survey;
  survey.problems = {{.step = 3, .what = "read a: checksum", .damaged = true, .entries = {"weight", "bias"}},
                     {.step = 1, .what = "read b: EIO"}};
  const Gathered data = Gather(store, {}, 0, &survey);
  EXPECT_EQ(data.grade, HealthGrade::kBad);
  EXPECT_EQ(data.verdict,
            "Found while reading tensors for this page: step 1 not readable, step 3 damaged (weight, bias). A restore "
            "takes step 2.");
  ASSERT_THAT(data.health, SizeIs(2));
  EXPECT_EQ(data.health[0].step, 1);
  EXPECT_EQ(HealthKindName(data.health[0].kind), "not readable");
  EXPECT_EQ(data.health[1].step, 3);
  EXPECT_EQ(HealthKindName(data.health[1].kind), "damaged");
  EXPECT_EQ(data.health[1].by, "this report");
  EXPECT_EQ(data.health[1].what, "read a: checksum");
}

TEST(JudgeHealth, FindsNothingInAStepThatWasPassedOver) {
  TestStore store;
  store.Save({1, 2, 3});
  ReportSurvey survey;
  survey.steps_read = 2;
  survey.passed_over = {{.step = 1}};
  const Gathered data = Gather(store, {}, 0, &survey);
  EXPECT_EQ(data.grade, HealthGrade::kGood);
  EXPECT_THAT(data.health, IsEmpty());
  EXPECT_THAT(data.verdict, HasSubstr("A restore takes step 3. No problem is on record"));
  // What was deleted no restore takes, and what was saved anew one may.
  survey.passed_over = {{.step = 3}};
  EXPECT_THAT(Gather(store, {}, 0, &survey).verdict, HasSubstr("A restore takes step 2."));
  survey.passed_over = {{.step = 3, .saved_anew = true}};
  EXPECT_THAT(Gather(store, {}, 0, &survey).verdict, HasSubstr("A restore takes step 3."));
}

TEST(ReportPage, NotesStepsThatWerePassedOver) {
  TestStore store;
  store.Save({1, 2});
  ReportSurvey survey;
  for (int64_t step = 1; step <= 22; ++step) survey.passed_over.push_back({.step = step, .not_shown = {"its change"}});
  const Gathered data = Gather(store, {}, 0, &survey);
  const std::string directory = store.directory();
  const std::string page = ReportPage({.title = "Run",
                                       .directory = directory,
                                       .store_id = data.reader->store_id(),
                                       .now = absl::UnixEpoch(),
                                       .data = data,
                                       .survey = &survey});
  EXPECT_THAT(page, HasSubstr("Note: step 20 was deleted while this page was made, and is left out; not shown in "
                              "full: its change."));
  EXPECT_THAT(page, testing::Not(HasSubstr("step 21 was deleted")));
  EXPECT_THAT(page, HasSubstr("2 more steps are left out for that."));
  EXPECT_THAT(page, testing::Not(HasSubstr("Not all could be read")));
}

TEST(JudgeHealth, KnowsNoStepToRestoreWhereNoneCouldBeRead) {
  TestStore store;
  store.Save({1});
  ReportSurvey survey;
  survey.problems = {{.step = 1, .what = "read a: checksum", .damaged = true}};
  EXPECT_THAT(
      Gather(store, {}, 0, &survey).verdict,
      HasSubstr("step 1 damaged. No committed step could be read, so it is not known which step a restore takes."));
}

TEST(JudgeHealth, NamesAFewStepsAndCountsTheRest) {
  TestStore store;
  store.Save({1, 2, 3, 4, 5, 6, 7, 8});
  ReportSurvey survey;
  for (int64_t step = 1; step <= 7; ++step) survey.problems.push_back({.step = step, .damaged = true});
  EXPECT_THAT(Gather(store, {}, 0, &survey).verdict,
              HasSubstr("step 5 damaged, 2 more steps. A restore takes step 8."));
  for (int64_t step = 1; step <= 7; ++step) {
    store.Update(step, [](StepInfo& info) { info.state = StepState::kDamaged; });
  }
  EXPECT_THAT(Gather(store).verdict, HasSubstr("On record: steps 1, 2, 3, 4, 5 and 2 more damaged. "));
}

}  // namespace
}  // namespace tidemark::inspect
