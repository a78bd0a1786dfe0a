#include "snapshot/housekeeping/pending_reports.h"

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Report ReportBy(int64_t step, std::string evaluator) {
  Report report;
  report.step = step;
  report.evaluation.evaluator = std::move(evaluator);
  return report;
}

Report ReportOf(int64_t save, int64_t step, std::string evaluator) {
  Report report = ReportBy(step, std::move(evaluator));
  report.save = save;
  return report;
}

class PendingReportsTest : public testing::Test {
 protected:
  // "step evaluator attempt" of what can be recorded.
  std::vector<std::string> Ready() {
    std::vector<std::string> lines;
    for (const Report& report : pending_reports_.TakeReady(/*keep_verdicts=*/false)) {
      lines.push_back(std::to_string(report.step) + " " + report.evaluation.evaluator + " " + report.attempt);
    }
    return lines;
  }

  // Its number. The pending save is held by the fixture.
  int64_t BeginSave(int64_t step, std::shared_ptr<const StepInfo> unsaved = nullptr) {
    saves_.push_back(std::make_shared<PendingSave>(step, /*persist=*/unsaved == nullptr));
    pending_reports_.BeginSave(saves_.back(), std::move(unsaved));
    return saves_.back()->number();
  }

  PendingReports pending_reports_;
  std::vector<std::shared_ptr<const PendingSave>> saves_;
  std::vector<std::string> notes_;
};

TEST_F(PendingReportsTest, LetsReportsOfStepsThatAreNotInFlightThrough) {
  BeginSave(1);
  pending_reports_.Add(ReportBy(2, "a"));
  EXPECT_TRUE(pending_reports_.has_ready());
  EXPECT_THAT(Ready(), ElementsAre("2 a "));
  EXPECT_FALSE(pending_reports_.has_ready());
}

TEST_F(PendingReportsTest, HoldsReportsUntilTheSaveIsCommitted) {
  const int64_t save = BeginSave(1);
  pending_reports_.Add(ReportBy(1, "a"));
  pending_reports_.Add(ReportBy(1, "b"));
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_THAT(pending_reports_.EndSave(save, absl::OkStatus(), "abc", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 a abc", "1 b abc"));
}

TEST_F(PendingReportsTest, GivesBackTheReportsOfASaveThatFailed) {
  const int64_t save = BeginSave(1);
  pending_reports_.Add(ReportBy(1, "a"));
  EXPECT_THAT(pending_reports_.EndSave(save, absl::InternalError("EIO"), "", &notes_), SizeIs(1));
  EXPECT_THAT(Ready(), IsEmpty());
}

TEST_F(PendingReportsTest, LetsReportsOfASaveThroughOfWhichItIsNotKnownWhetherItIsCommitted) {
  const int64_t save = BeginSave(1);
  pending_reports_.Add(ReportBy(1, "a"));
  EXPECT_THAT(pending_reports_.EndSave(save, absl::UnknownError("a sync failed"), "abc", &notes_), IsEmpty());
  pending_reports_.Add(ReportOf(save, 1, "b"));
  EXPECT_THAT(Ready(), ElementsAre("1 a abc", "1 b abc"));
  const int64_t before_its_commit = BeginSave(2);
  pending_reports_.Add(ReportBy(2, "a"));
  EXPECT_THAT(pending_reports_.EndSave(before_its_commit, absl::UnknownError("of the state"), "", &notes_), SizeIs(1));
}

TEST_F(PendingReportsTest, HoldsAReportForTheNewestOfSeveralSavesOfTheStep) {
  const int64_t first = BeginSave(1);
  pending_reports_.Add(ReportBy(1, "of the first"));
  const int64_t second = BeginSave(1);
  pending_reports_.Add(ReportBy(1, "of the second"));
  EXPECT_THAT(pending_reports_.EndSave(first, absl::OkStatus(), "abc", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 of the first abc"));
  EXPECT_THAT(pending_reports_.EndSave(second, absl::OkStatus(), "def", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 of the second def"));
}

TEST_F(PendingReportsTest, KnowsWhichAttemptARowIsOfWhetherItsSaveIsInFlightOrNot) {
  const int64_t first = BeginSave(1);
  const int64_t second = BeginSave(1);
  pending_reports_.Add(ReportOf(first, 1, "early"));
  EXPECT_THAT(pending_reports_.EndSave(second, absl::OkStatus(), "def", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_THAT(pending_reports_.EndSave(first, absl::OkStatus(), "abc", &notes_), IsEmpty());
  BeginSave(2);  // forgets saves that can get no more rows
  pending_reports_.Add(ReportOf(first, 1, "late"));
  EXPECT_THAT(Ready(), ElementsAre("1 early abc", "1 late abc"));
}

TEST_F(PendingReportsTest, KnowsThatTheSaveOfALateRowHasFailed) {
  const int64_t save = BeginSave(1);
  pending_reports_.EndSave(save, absl::InternalError("EIO"), "", &notes_);
  pending_reports_.Add(ReportOf(save, 1, "late"));
  pending_reports_.Add(ReportBy(1, "of whichever there is"));
  const auto ready = pending_reports_.TakeReady(/*keep_verdicts=*/false);
  ASSERT_THAT(ready, SizeIs(2));
  EXPECT_EQ(ready.front().failure, absl::InternalError("EIO"));
  EXPECT_EQ(ready.back().failure, absl::OkStatus());
}

TEST_F(PendingReportsTest, LetsReportsOfASnapshotThatIsNotToBeSavedThroughWithWhatIsKnownOfIt) {
  auto unsaved = std::make_shared<StepInfo>();
  unsaved->step = 1;
  const int64_t save = BeginSave(1, unsaved);
  BeginSave(1);  // and then it is to be saved after all
  pending_reports_.Add(ReportOf(save, 1, "a"));
  const auto ready = pending_reports_.TakeReady(/*keep_verdicts=*/false);
  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_EQ(ready.front().unsaved, unsaved);
  EXPECT_THAT(pending_reports_.EndSave(save, absl::OkStatus(), "", &notes_), IsEmpty());
}

TEST_F(PendingReportsTest, HandsOverTheNotesOnASave) {
  const int64_t first = BeginSave(1);
  const int64_t second = BeginSave(2);
  pending_reports_.NoteOnSave(first, "a skipped");
  pending_reports_.NoteOnSave(second + 1, "of none");
  pending_reports_.EndSave(second, absl::OkStatus(), "x", &notes_);
  EXPECT_THAT(notes_, IsEmpty());
  pending_reports_.EndSave(first, absl::OkStatus(), "y", &notes_);
  EXPECT_THAT(notes_, ElementsAre("a skipped"));
}

TEST_F(PendingReportsTest, GivesUpWhatIsHeldWhenAsked) {
  BeginSave(1);
  pending_reports_.Add(ReportBy(1, "a"));
  EXPECT_THAT(pending_reports_.TakeHeld(), SizeIs(1));
  EXPECT_THAT(pending_reports_.TakeHeld(), IsEmpty());
}

TEST_F(PendingReportsTest, AVerdictIsThatOfAnEvaluatorOnThisAttempt) {
  StepInfo info;
  info.step = 5;
  info.attempt = "a";
  const auto verdict_of = [&](const Report& report) {
    PendingReports reports;
    std::list<Report> unrecorded;
    unrecorded.push_back(report);
    reports.SetUnrecorded(unrecorded);
    return reports.VerdictOn(info);
  };
  Report report{.step = 5, .evaluation = {}, .attempt = "a", .unsaved = nullptr, .recorded = nullptr};
  report.evaluation.evaluator = "health";
  EXPECT_EQ(verdict_of(report), "") << "it found nothing";
  report.evaluation.unhealthy = "3 NaN";
  EXPECT_EQ(verdict_of(report), "health: 3 NaN");
  report.attempt.clear();
  EXPECT_EQ(verdict_of(report), "health: 3 NaN") << "whichever the step has";
  report.attempt = "b";
  EXPECT_EQ(verdict_of(report), "");
  report.attempt = "a";
  report.step = 6;
  EXPECT_EQ(verdict_of(report), "");
  report.step = 5;
  report.unsaved = std::make_shared<StepInfo>();
  EXPECT_EQ(verdict_of(report), "") << "it is of a snapshot that was not to be saved";
}

// From when it is given until it is in the journal.
TEST_F(PendingReportsTest, KnowsVerdictsUntilTheyAreRecorded) {
  StepInfo info;
  info.step = 5;
  Report report = ReportBy(5, "health");
  report.evaluation.unhealthy = "3 NaN";
  report.recorded = std::make_shared<Promise>();
  pending_reports_.Add(std::move(report));
  pending_reports_.Add(ReportBy(6, "loss"));
  EXPECT_EQ(pending_reports_.VerdictOn(info), "health: 3 NaN") << "ready";
  std::list<Report> taken = pending_reports_.TakeReady(/*keep_verdicts=*/true);
  EXPECT_EQ(pending_reports_.VerdictOn(info), "health: 3 NaN") << "taken";
  EXPECT_THAT(pending_reports_.Unjudged(), ElementsAre(5));
  pending_reports_.SetUnrecorded(taken);
  EXPECT_EQ(pending_reports_.VerdictOn(info), "health: 3 NaN") << "the disk is full";
  EXPECT_EQ(taken.front().recorded.use_count(), 1) << "who waits for it is not told by a copy";
  taken.pop_front();
  pending_reports_.SetUnrecorded(taken);
  EXPECT_EQ(pending_reports_.VerdictOn(info), "");
  EXPECT_THAT(pending_reports_.Unjudged(), IsEmpty());
}

TEST_F(PendingReportsTest, ReportsOnACommittedStepAreOfTheAttemptThatItHadThen) {
  StepInfo info;
  info.step = 4;
  info.attempt = "old";
  const std::shared_ptr<const PendingSave> pending_save = pending_reports_.AddCommitted(info);
  EXPECT_EQ(pending_save->step(), 4);
  BeginSave(4);  // anew
  pending_reports_.Add(ReportOf(pending_save->number(), 4, "a"));
  EXPECT_THAT(Ready(), ElementsAre("4 a old")) << "it does not wait for the new one";
}

// From when an evaluator is given the snapshot until its row has been taken, whatever becomes of the save meanwhile.
TEST_F(PendingReportsTest, KnowsOnWhichStepsARowIsToCome) {
  const int64_t save = BeginSave(7);
  EXPECT_THAT(pending_reports_.Unjudged(), IsEmpty());
  saves_.back()->ExpectRow();
  EXPECT_THAT(pending_reports_.Unjudged(), ElementsAre(7));
  saves_.back()->RowGiven();
  pending_reports_.Add(ReportOf(save, 7, "health"));
  EXPECT_THAT(pending_reports_.Unjudged(), ElementsAre(7)) << "held";
  pending_reports_.EndSave(save, absl::OkStatus(), "a", &notes_);
  EXPECT_THAT(pending_reports_.Unjudged(), ElementsAre(7)) << "ready";
  EXPECT_THAT(Ready(), SizeIs(1));
  EXPECT_THAT(pending_reports_.Unjudged(), IsEmpty());
  BeginSave(8, std::make_shared<StepInfo>());
  saves_.back()->ExpectRow();
  EXPECT_THAT(pending_reports_.Unjudged(), IsEmpty()) << "not to be saved";
}

}  // namespace
}  // namespace tidemark
