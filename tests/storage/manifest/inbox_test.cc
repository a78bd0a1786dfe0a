#include "storage/manifest/inbox.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/report_files.h"
#include "tests/storage/manifest/inbox_testing.h"
#include "tests/storage/manifest/unwritable_files.h"
#include "tests/storage/records/checked_object.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

class InboxTest : public ReportInboxFixture {};

TEST_F(InboxTest, TakesInAReportAndKeepsItWithTheStep) {
  const MetricReport report = ReportOn(step_, 0.5);
  EXPECT_FALSE(*HasReport(files_, layout_, 10, step_.attempt, "validation"));
  ASSERT_THAT(Deliver(report), IsOk());
  EXPECT_TRUE(*HasReport(files_, layout_, 10, step_.attempt, "validation"));
  EXPECT_FALSE(*HasReport(files_, layout_, 10, step_.attempt, "test"));
  EXPECT_THAT(Info(10).evaluations, IsEmpty());

  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  ASSERT_THAT(collected.recorded, SizeIs(1));
  EXPECT_EQ(collected.recorded[0].evaluation.evaluator, "validation");
  EXPECT_EQ(collected.rejected, 0);
  EXPECT_EQ(warnings_, "");
  const StepInfo info = Info(10);
  ASSERT_THAT(info.evaluations, SizeIs(1));
  EXPECT_EQ(info.evaluations[0].worker, "worker");
  EXPECT_EQ(info.metrics, (Metrics{{"loss", 42}, {"validation/loss", 0.5}}));
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_TRUE(fs::exists(FolderPathOf(report)));
  EXPECT_TRUE(*HasReport(files_, layout_, 10, step_.attempt, "validation"));
  EXPECT_EQ((*store_->manifest().FindBest("validation/loss", BestMode::kLowest))->info.step, 10);
}

TEST_F(InboxTest, IsEmptyWhereNobodyHasReported) {
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, IsEmpty());
  EXPECT_THAT(*PeekInbox(files_, layout_, store_->id()), IsEmpty());
}

TEST_F(InboxTest, CountsAReportOnceThatIsDeliveredTwice) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(Deliver(ReportOn(step_, 0.25)), IsOk());
  EXPECT_THAT(Inbox(), SizeIs(1));
  EXPECT_THAT(Collect().recorded, SizeIs(1));
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.25);

  ASSERT_THAT(Deliver(ReportOn(step_, 0.25)), IsOk());
  auto again = Collect();
  ASSERT_THAT(again.error, IsOk());
  EXPECT_THAT(again.recorded, IsEmpty()) << "it says nothing new";
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_THAT(Info(10).evaluations, SizeIs(1));
}

TEST_F(InboxTest, RecordsALaterReportThatCameBetweenReadingAndMoving) {
  const MetricReport later = ReportOn(step_, 0.25);
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  bool delivered = false;
  failing_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation != "Rename" || delivered) return absl::OkStatus();
    delivered = true;
    return Deliver(later);
  });
  auto collected = Collect();
  failing_.Reset();
  ASSERT_TRUE(delivered);
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(2));
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.25);
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_EQ(ReadReport(files_, FolderPathOf(later))->evaluation.metrics.at("loss"), 0.25);
  EXPECT_EQ(warnings_, "");
}

TEST_F(InboxTest, LeavesWhatWasFoundWhereALaterReportFoundNothing) {
  const MetricReport found = ReportOn(step_, 0.5);
  MetricReport nothing = found;
  nothing.evaluation = {.evaluator = "validation", .outcome = Evaluation::Outcome::kFailed, .reason = "no memory"};
  const auto expect_found = [&] {
    EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.5);
    EXPECT_EQ(ReadReport(files_, FolderPathOf(found))->evaluation.outcome, Evaluation::Outcome::kDone)
        << "a rebuild finds it too";
    EXPECT_THAT(Inbox(), IsEmpty());
    EXPECT_EQ(warnings_, "");
  };
  ASSERT_THAT(Deliver(found), IsOk());
  bool delivered = false;
  failing_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation != "Rename" || delivered) return absl::OkStatus();
    delivered = true;
    return Deliver(nothing);
  });
  EXPECT_THAT(Collect().recorded, SizeIs(1)) << "the later one came between reading and moving";
  failing_.Reset();
  expect_found();
  ASSERT_THAT(Deliver(nothing), IsOk());
  EXPECT_THAT(Collect().recorded, IsEmpty());
  expect_found();
  nothing.evaluation.outcome = Evaluation::Outcome::kSkipped;
  EXPECT_THAT(RecordOwn(files_, *store_, nothing),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'validation' has already reported")));
  expect_found();
}

TEST_F(InboxTest, WarnsWhereItCannotReadWhatItHasMoved) {
  const MetricReport report = ReportOn(step_, 0.5);
  ASSERT_THAT(Deliver(report), IsOk());
  failing_.SetRule([&](const FailingFileSystem::Call& call) {
    const bool moved = call.operation == "OpenForRead" && call.path == FolderPathOf(report);
    return moved ? absl::InternalError("EIO") : absl::OkStatus();
  });
  auto collected = Collect();
  failing_.Reset();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(1));
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.5);
  EXPECT_THAT(warnings_, HasSubstr("for step 10 is recorded, but a rebuild of the manifest may lose it: EIO"));
}

TEST_F(InboxTest, PeeksWithoutTouchingAnything) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(Deliver(ReportOn(step_, 0.75, "test")), IsOk());
  MetricReport foreign = ReportOn(step_, 1, "foreign");
  foreign.store.bytes[0] ^= 1;
  ASSERT_THAT(Deliver(foreign), IsOk());
  Place("0000000010-torn.json", "{");
  Place(InboxFileName(10, step_.attempt, "torn"), "{");
  fs::create_symlink(InboxPathOf(ReportOn(step_, 0.5)), layout_.inbox() + "/" + InboxFileName(10, step_.attempt, "x"));
  const std::vector<std::string> before = Inbox();
  auto reports = PeekInbox(files_, layout_, store_->id());
  ASSERT_THAT(reports, IsOk());
  EXPECT_THAT(*reports, SizeIs(2));
  EXPECT_EQ(Inbox(), before);
}

// What a name promises is what must be in it; anything else is out of the way after one warning.
TEST_F(InboxTest, MovesWhatIsNoReportToQuarantineWithOneWarningEach) {
  const std::string bytes = *EncodeMetricReport(ReportOn(step_, 0.5));
  MetricReport foreign = ReportOn(step_, 1, "foreign");
  foreign.store.bytes[0] ^= 1;
  Place(InboxFileName(10, step_.attempt, "foreign"), *EncodeMetricReport(foreign));
  Place(InboxFileName(10, step_.attempt, "somebody else"), bytes);
  Place(InboxFileName(10, step_.attempt, "torn"), bytes.substr(0, 20));
  Place(InboxFileName(10, step_.attempt, "large"), std::string(kMetricReportBytesMax + 1, ' '));
  Place(InboxFileName(11, step_.attempt, "validation"), *EncodeMetricReport([&] {
          MetricReport report = ReportOn(step_, 0.5);
          report.step = 11;
          return report;
        }()));
  Place("notes.txt", "hello");
  fs::create_directory(layout_.inbox() + "/folder");
  fs::create_symlink("/etc/passwd", layout_.inbox() + "/" + InboxFileName(10, step_.attempt, "link"));
  Place(".nfs0001", "");
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_EQ(collected.rejected, 8);
  EXPECT_THAT(collected.recorded, IsEmpty());
  EXPECT_THAT(Inbox(), ElementsAre(".nfs0001"));
  EXPECT_THAT(Quarantine(), SizeIs(8));
  EXPECT_THAT(warnings_, AllOf(HasSubstr("it is about store"), HasSubstr("it is the result of evaluator 'validation'"),
                               HasSubstr("it does not end in a check"), HasSubstr("where at most 1048576 are expected"),
                               HasSubstr("there is no step 11"), HasSubstr("notes.txt was moved to "),
                               HasSubstr("it is not a regular file"), HasSubstr("its name is not that of a report")));
  warnings_.clear();
  EXPECT_EQ(Collect().rejected, 0);
  EXPECT_EQ(warnings_, "");
}

TEST_F(InboxTest, DropsAReportOnAnAttemptThatWasReplaced) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  CommitStep(*store_, 10, 43);
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, IsEmpty());
  EXPECT_THAT(warnings_, HasSubstr("evaluator 'validation' for step 10 is dropped"));
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_THAT(Info(10).evaluations, IsEmpty());
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
}

TEST_F(InboxTest, RecordsAReportOnAStepThatWasDeletedMeanwhile) {
  CommitStep(*store_, 11, 43);
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(
      store_->NoteSteps(
          {{.step = 10, .attempt = ToHex(step_.attempt.bytes), .deleted = true, .reason = "not among the latest 1"}}),
      IsOk());
  ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(1));
  const StepInfo info = Info(10);
  EXPECT_EQ(info.state, StepState::kDeleted);
  EXPECT_EQ(info.metrics.at("validation/loss"), 0.5);
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_FALSE(fs::exists(layout_.attempt(10, step_.attempt)));
  EXPECT_EQ(warnings_, "");
}

TEST_F(InboxTest, RecordsAReportOnAStepWhoseFolderIsLost) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  fs::remove_all(layout_.attempt(10, step_.attempt));
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(1));
  EXPECT_THAT(Inbox(), IsEmpty());
}

TEST_F(InboxTest, LeavesANewerVersionsReportAndWarnsOnce) {
  const std::string newer = WithCheck(R"({"version":2})");
  const std::string name = InboxFileName(10, step_.attempt, "validation");
  Place(name, newer);
  std::set<std::string> warned;
  for (int i = 0; i < 3; ++i) {
    auto collected = Collect(&warned);
    ASSERT_THAT(collected.error, IsOk());
    EXPECT_EQ(collected.rejected, 0);
  }
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
  EXPECT_THAT(warnings_,
              AllOf(HasSubstr("a newer version of Tidemark wrote it"), HasSubstr(name), HasSubstr("version 2")));
  EXPECT_THAT(Inbox(), ElementsAre(name));
}

TEST_F(InboxTest, RemovesDraftsOnlyWhereNobodyCanNeedThem) {
  const std::string end = "." + std::string(32, 'a') + ".tmp";
  const std::string open = InboxFileName(10, step_.attempt, "validation") + end;
  const std::string no_step = InboxFileName(11, step_.attempt, "validation") + end;
  const std::string replaced = InboxFileName(10, AttemptId{{9}}, "validation") + end;
  for (const std::string& name : {open, no_step, replaced}) Place(name, "{");
  ASSERT_THAT(Collect().error, IsOk());
  EXPECT_THAT(Inbox(), ElementsAre(open));
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(Collect().error, IsOk());
  ASSERT_THAT(Collect().error, IsOk()) << "the draft may be looked at before the report";
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_EQ(warnings_, "");
}

TEST_F(InboxTest, DeliversOnceMoreWhereItsDraftWasTakenForADeadWritersOwn) {
  failing_.FailOperation("Rename", absl::NotFoundError("gone"));
  const MetricReport report = ReportOn(step_, 0.5);
  EXPECT_THAT(DeliverReport(failing_, layout_, report), IsOk());
  EXPECT_THAT(Inbox(), SizeIs(1));
}

TEST_F(InboxTest, DoesNotMakeAStoreToDeliverInto) {
  EXPECT_THAT(DeliverReport(files_, StoreLayout(directory_ / "nowhere"), ReportOn(step_, 0.5)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere/inbox")));
  MetricReport bad = ReportOn(step_, 0.5);
  bad.evaluation.evaluator = "a/b";
  EXPECT_THAT(Deliver(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'/'")));
}

TEST_F(InboxTest, DeliversAtTheSecondTryWhicheverCallFails) {
  const MetricReport report = ReportOn(step_, 0.5);
  ASSERT_THAT(DeliverReport(failing_, layout_, report), IsOk());
  const size_t calls = failing_.calls().size();
  ASSERT_GE(calls, 8u);
  for (size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(layout_.inbox());
    failing_.Reset();
    failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
    EXPECT_THAT(DeliverReport(failing_, layout_, report), StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
    EXPECT_THAT(DeliverReport(failing_, layout_, report), IsOk());
    EXPECT_THAT(*PeekInbox(files_, layout_, store_->id()), SizeIs(1));
  }
}

TEST_F(InboxTest, TakesInEveryReportAtTheSecondTryWhicheverCallFails) {
  const MetricReport first = ReportOn(step_, 0.5);
  const MetricReport second = ReportOn(step_, 0.75, "test");
  // A run without failures says how many calls there are.
  std::optional<size_t> calls;
  for (size_t i = 0; !calls || i < *calls; ++i) {
    SCOPED_TRACE(i);
    const int64_t step = 100 + static_cast<int64_t>(i);
    const ShardIdentity identity = CommitStep(*store_, step, 1);
    ASSERT_THAT(Deliver(ReportOn(identity, 0.5)), IsOk());
    ASSERT_THAT(Deliver(ReportOn(identity, 0.75, "test")), IsOk());
    Place("stranger", "x");
    failing_.Reset();
    if (calls) failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
    auto collected = Collect();
    if (!calls) {
      ASSERT_THAT(collected.error, IsOk());
      calls = failing_.calls().size();
      ASSERT_GE(*calls, 10u);
      i = static_cast<size_t>(-1);
      continue;
    }
    const size_t recorded = collected.recorded.size();
    // A report that was moved, and cannot be read where it is then, is only warned of.
    if (!collected.error.ok()) {
      EXPECT_THAT(collected.error, StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
    }
    collected = Collect();
    ASSERT_THAT(collected.error, IsOk());
    EXPECT_EQ(recorded + collected.recorded.size(), 2u) << "each is told once";
    EXPECT_THAT(Info(step).evaluations, SizeIs(2));
    EXPECT_THAT(Inbox(), IsEmpty());
    EXPECT_TRUE(fs::exists(FolderPathOf(ReportOn(identity, 0.5))));
    EXPECT_TRUE(fs::exists(FolderPathOf(ReportOn(identity, 0.75, "test"))));
  }
}

TEST_F(InboxTest, KeepsTheReportWhereTheManifestCannotBeWritten) {
  const MetricReport report = ReportOn(step_, 0.5);
  ASSERT_THAT(Deliver(report), IsOk());
  {
    const UnwritableFiles full;
    EXPECT_THAT(Collect().error, StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  }
  EXPECT_TRUE(fs::exists(InboxPathOf(report)));
  EXPECT_FALSE(fs::exists(FolderPathOf(report)));
  auto collected = Collect();
  ASSERT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(1));
  EXPECT_THAT(Info(10).evaluations, SizeIs(1));
}

TEST_F(InboxTest, WritesTheRowsOfAnAttemptTogether) {
  const ShardIdentity other = CommitStep(*store_, 20, 43);
  store_.reset();
  store_ = OpenSoundStore(path_, &warnings_, failing_);
  ASSERT_NE(store_, nullptr);
  ASSERT_THAT(Deliver(ReportOn(step_, 0.75, "loss")), IsOk());
  ASSERT_THAT(Collect().error, IsOk());  // which also removes the mark of a clean shutdown
  for (const ShardIdentity& identity : {step_, other}) {
    for (const char* evaluator : {"loss", "test", "validation"}) {
      ASSERT_THAT(Deliver(ReportOn(identity, 0.5, evaluator)), IsOk());
    }
  }
  failing_.Reset();
  EXPECT_THAT(Collect().recorded, SizeIs(6));
  const std::vector<FailingFileSystem::Call> calls = failing_.calls();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), IsManifestsSync), 2);
  EXPECT_THAT(Info(10).evaluations, SizeIs(3));
  EXPECT_THAT(Info(20).evaluations, SizeIs(3));
  EXPECT_THAT(Inbox(), IsEmpty());
}

// However many there are, a few megabytes of them are in memory at once.
TEST_F(InboxTest, WritesLargeRowsOfAnAttemptInParts) {
  store_.reset();
  store_ = OpenSoundStore(path_, &warnings_, failing_);
  ASSERT_NE(store_, nullptr);
  ASSERT_THAT(Deliver(ReportOn(step_, 0.75, "loss")), IsOk());
  ASSERT_THAT(Collect().error, IsOk());  // which also removes the mark of a clean shutdown
  for (const char* evaluator : {"a", "b", "c", "d", "e", "f"}) {
    MetricReport report = ReportOn(step_, 0.5, evaluator);
    report.evaluation.reason.assign(900'000, 'x');
    ASSERT_THAT(Deliver(report), IsOk());
  }
  failing_.Reset();
  EXPECT_THAT(Collect().recorded, SizeIs(6));
  const std::vector<FailingFileSystem::Call> calls = failing_.calls();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), IsManifestsSync), 2) << "five of them, and the last one";
  EXPECT_THAT(Info(10).evaluations, SizeIs(7));
  EXPECT_THAT(Inbox(), IsEmpty());
}

TEST_F(InboxTest, WritesTheRowsOfAnAttemptOneByOneWhereTheyCannotBeWrittenTogether) {
  store_.reset();
  store_ = OpenSoundStore(path_, &warnings_, failing_);
  ASSERT_NE(store_, nullptr);
  for (const char* evaluator : {"loss", "test", "validation"}) {
    ASSERT_THAT(Deliver(ReportOn(step_, 0.5, evaluator)), IsOk());
  }
  int syncs = 0;
  failing_.SetRule([&](const FailingFileSystem::Call& call) {
    return IsManifestsSync(call) && ++syncs == 1 ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const auto collected = Collect();
  failing_.Reset();
  EXPECT_THAT(collected.error, IsOk());
  EXPECT_THAT(collected.recorded, SizeIs(3));
  EXPECT_GT(syncs, 1);
  EXPECT_THAT(Info(10).evaluations, SizeIs(3));
  EXPECT_THAT(Inbox(), IsEmpty());
}

TEST_F(InboxTest, TakesInTheOtherReportsWhereOneCannotBeMoved) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(Deliver(ReportOn(step_, 0.75, "test")), IsOk());
  failing_.FailOperation("Rename", absl::InternalError("EIO"));
  auto collected = Collect();
  EXPECT_THAT(collected.error, StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT(collected.recorded, SizeIs(2));
  EXPECT_THAT(Inbox(), SizeIs(1));
  failing_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "Rename" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(Collect().error, StatusIs(absl::StatusCode::kInternal, "EIO")) << "nothing new was recorded";
}

TEST_F(InboxTest, TellsReportsOfFailedEvaluationsFromOthers) {
  MetricReport report = ReportOn(step_, 0.5);
  report.evaluation = {.evaluator = "validation", .outcome = Evaluation::Outcome::kFailed, .reason = "no memory"};
  const auto has_report = [&](CountedReports counted) {
    return *HasReport(files_, layout_, 10, step_.attempt, "validation", counted);
  };
  EXPECT_FALSE(has_report(CountedReports::kAll));
  ASSERT_THAT(Deliver(report), IsOk());
  for (int taken_in = 0; taken_in < 2; ++taken_in) {
    EXPECT_TRUE(has_report(CountedReports::kAll));
    EXPECT_FALSE(has_report(CountedReports::kNotFailed));
    EXPECT_THAT(Collect().error, IsOk());
  }
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  EXPECT_TRUE(has_report(CountedReports::kNotFailed)) << "in the inbox, before that of the folder";
  EXPECT_THAT(Collect().error, IsOk());
  EXPECT_TRUE(has_report(CountedReports::kNotFailed));
  std::ofstream(FolderPathOf(report)) << "{";
  EXPECT_TRUE(has_report(CountedReports::kNotFailed)) << "what cannot be read does not say that it failed";
}

}  // namespace
}  // namespace tidemark::storage
