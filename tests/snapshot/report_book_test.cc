#include "snapshot/report_book.h"

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

class ReportBookTest : public testing::Test {
 protected:
  // "step evaluator attempt" of what can be recorded.
  std::vector<std::string> Ready() {
    std::vector<std::string> lines;
    for (const Report& report : book_.TakeReady()) {
      lines.push_back(std::to_string(report.step) + " " + report.evaluation.evaluator + " " + report.attempt);
    }
    return lines;
  }

  // Its number. The ticket is held by the fixture.
  int64_t BeginSave(int64_t step, std::shared_ptr<const StepInfo> unsaved = nullptr) {
    tickets_.push_back(std::make_shared<SaveTicket>(step, /*persist=*/unsaved == nullptr));
    book_.BeginSave(tickets_.back(), std::move(unsaved));
    return tickets_.back()->number();
  }

  ReportBook book_;
  std::vector<std::shared_ptr<const SaveTicket>> tickets_;
  std::vector<std::string> notes_;
};

TEST_F(ReportBookTest, LetsReportsOfStepsThatAreNotInFlightThrough) {
  BeginSave(1);
  book_.Add(ReportBy(2, "a"));
  EXPECT_TRUE(book_.has_ready());
  EXPECT_THAT(Ready(), ElementsAre("2 a "));
  EXPECT_FALSE(book_.has_ready());
}

TEST_F(ReportBookTest, HoldsReportsUntilTheSaveIsCommitted) {
  const int64_t save = BeginSave(1);
  book_.Add(ReportBy(1, "a"));
  book_.Add(ReportBy(1, "b"));
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_THAT(book_.EndSave(save, absl::OkStatus(), "abc", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 a abc", "1 b abc"));
}

TEST_F(ReportBookTest, GivesBackTheReportsOfASaveThatFailed) {
  const int64_t save = BeginSave(1);
  book_.Add(ReportBy(1, "a"));
  EXPECT_THAT(book_.EndSave(save, absl::InternalError("EIO"), "", &notes_), SizeIs(1));
  EXPECT_THAT(Ready(), IsEmpty());
}

TEST_F(ReportBookTest, HoldsAReportForTheNewestOfSeveralSavesOfTheStep) {
  const int64_t first = BeginSave(1);
  book_.Add(ReportBy(1, "of the first"));
  const int64_t second = BeginSave(1);
  book_.Add(ReportBy(1, "of the second"));
  EXPECT_THAT(book_.EndSave(first, absl::OkStatus(), "abc", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 of the first abc"));
  EXPECT_THAT(book_.EndSave(second, absl::OkStatus(), "def", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), ElementsAre("1 of the second def"));
}

TEST_F(ReportBookTest, KnowsWhichAttemptARowIsOfWhetherItsSaveIsInFlightOrNot) {
  const int64_t first = BeginSave(1);
  const int64_t second = BeginSave(1);
  book_.Add(ReportOf(first, 1, "early"));
  EXPECT_THAT(book_.EndSave(second, absl::OkStatus(), "def", &notes_), IsEmpty());
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_THAT(book_.EndSave(first, absl::OkStatus(), "abc", &notes_), IsEmpty());
  BeginSave(2);  // forgets what nobody can have anything to say of any more
  book_.Add(ReportOf(first, 1, "late"));
  EXPECT_THAT(Ready(), ElementsAre("1 early abc", "1 late abc"));
}

TEST_F(ReportBookTest, KnowsThatTheSaveOfALateRowHasFailed) {
  const int64_t save = BeginSave(1);
  book_.EndSave(save, absl::InternalError("EIO"), "", &notes_);
  book_.Add(ReportOf(save, 1, "late"));
  book_.Add(ReportBy(1, "of whichever there is"));
  const auto ready = book_.TakeReady();
  ASSERT_THAT(ready, SizeIs(2));
  EXPECT_EQ(ready.front().failure, absl::InternalError("EIO"));
  EXPECT_EQ(ready.back().failure, absl::OkStatus());
}

TEST_F(ReportBookTest, LetsReportsOfASnapshotThatIsNotToBeSavedThroughWithWhatIsKnownOfIt) {
  auto unsaved = std::make_shared<StepInfo>();
  unsaved->step = 1;
  const int64_t save = BeginSave(1, unsaved);
  BeginSave(1);  // and then it is to be saved after all
  book_.Add(ReportOf(save, 1, "a"));
  const auto ready = book_.TakeReady();
  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_EQ(ready.front().unsaved, unsaved);
  EXPECT_THAT(book_.EndSave(save, absl::OkStatus(), "", &notes_), IsEmpty());
}

TEST_F(ReportBookTest, HandsOverTheNotesOnASave) {
  const int64_t first = BeginSave(1);
  const int64_t second = BeginSave(2);
  book_.NoteOnSave(first, "a skipped");
  book_.NoteOnSave(second + 1, "of none");
  book_.EndSave(second, absl::OkStatus(), "x", &notes_);
  EXPECT_THAT(notes_, IsEmpty());
  book_.EndSave(first, absl::OkStatus(), "y", &notes_);
  EXPECT_THAT(notes_, ElementsAre("a skipped"));
}

TEST_F(ReportBookTest, GivesUpWhatIsHeldWhenAsked) {
  BeginSave(1);
  book_.Add(ReportBy(1, "a"));
  EXPECT_THAT(book_.TakeHeld(), SizeIs(1));
  EXPECT_THAT(book_.TakeHeld(), IsEmpty());
}

TEST(VerdictOn, IsThatOfAnEvaluatorOnThisAttempt) {
  StepInfo info;
  info.step = 5;
  info.attempt = "a";
  Report report{.step = 5, .evaluation = {}, .attempt = "a", .unsaved = nullptr, .recorded = nullptr};
  report.evaluation.evaluator = "health";
  EXPECT_EQ(VerdictOn(info, report), "") << "it found nothing";
  report.evaluation.unhealthy = "3 NaN";
  EXPECT_EQ(VerdictOn(info, report), "health: 3 NaN");
  report.attempt.clear();
  EXPECT_EQ(VerdictOn(info, report), "health: 3 NaN") << "whichever the step has";
  report.attempt = "b";
  EXPECT_EQ(VerdictOn(info, report), "");
  report.attempt = "a";
  report.step = 6;
  EXPECT_EQ(VerdictOn(info, report), "");
  report.step = 5;
  report.unsaved = std::make_shared<StepInfo>();
  EXPECT_EQ(VerdictOn(info, report), "") << "it is of a snapshot that was not to be saved";
}

TEST_F(ReportBookTest, ReportsOnACommittedStepAreOfTheAttemptThatItHadThen) {
  StepInfo info;
  info.step = 4;
  info.attempt = "old";
  const std::shared_ptr<const SaveTicket> ticket = book_.AddCommitted(info);
  EXPECT_EQ(ticket->step(), 4);
  BeginSave(4);  // anew
  book_.Add(ReportOf(ticket->number(), 4, "a"));
  EXPECT_THAT(Ready(), ElementsAre("4 a old")) << "it does not wait for the new one";
}

// From when an evaluator is given the snapshot until its row has been taken, whatever becomes of the save meanwhile.
TEST_F(ReportBookTest, KnowsOnWhichStepsARowIsToCome) {
  const int64_t save = BeginSave(7);
  EXPECT_THAT(book_.AwaitingRows(), IsEmpty());
  tickets_.back()->ExpectRow();
  EXPECT_THAT(book_.AwaitingRows(), ElementsAre(7));
  tickets_.back()->RowGiven();
  book_.Add(ReportOf(save, 7, "health"));
  EXPECT_THAT(book_.AwaitingRows(), ElementsAre(7)) << "held";
  book_.EndSave(save, absl::OkStatus(), "a", &notes_);
  EXPECT_THAT(book_.AwaitingRows(), ElementsAre(7)) << "ready";
  EXPECT_THAT(Ready(), SizeIs(1));
  EXPECT_THAT(book_.AwaitingRows(), IsEmpty());
  BeginSave(8, std::make_shared<StepInfo>());
  tickets_.back()->ExpectRow();
  EXPECT_THAT(book_.AwaitingRows(), IsEmpty()) << "not to be saved";
}

}  // namespace
}  // namespace tidemark
