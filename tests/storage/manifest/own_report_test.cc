// What the trainer itself says of a step, and an inbox in which workers may have said something too.

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/report_files.h"
#include "tests/storage/manifest/inbox_testing.h"
#include "tests/storage/records/checked_object.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

class OwnReportTest : public ReportInboxFixture {};

TEST_F(OwnReportTest, IsRecordedAndKeptWithTheStep) {
  const MetricReport report = ReportOn(step_, 0.5, "trainer");
  for (const size_t news : {1, 0}) {
    const InboxResult result = RecordReport(files_, *store_, report, Warn());
    EXPECT_THAT(result.error, IsOk());
    EXPECT_THAT(result.recorded, SizeIs(news));
  }
  EXPECT_THAT(Info(10).evaluations, SizeIs(1));
  EXPECT_EQ(Info(10).metrics.at("trainer/loss"), 0.5);
  EXPECT_TRUE(fs::exists(FolderPathOf(report)));
  EXPECT_TRUE(*HasReport(files_, layout_, 10, step_.attempt, "trainer"));
}

TEST_F(OwnReportTest, TakesThePlaceOfNoneThatWaitsWhereThatOutranksIt) {
  const MetricReport found = ReportOn(step_, 0.5);
  MetricReport skipped = found;
  skipped.evaluation = {.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped, .reason = "lagging"};
  ASSERT_THAT(Deliver(found), IsOk());
  ASSERT_THAT(RecordOwn(files_, *store_, skipped), IsOk());
  EXPECT_EQ(ReadReport(files_, FolderPathOf(found))->evaluation.outcome, Evaluation::Outcome::kSkipped);
  EXPECT_THAT(Collect().recorded, SizeIs(1));
  EXPECT_THAT(Info(10).evaluations, SizeIs(1));
  EXPECT_EQ(Info(10).evaluations.at(0).outcome, Evaluation::Outcome::kDone);
  EXPECT_EQ(ReadReport(files_, FolderPathOf(found))->evaluation.outcome, Evaluation::Outcome::kDone);
  EXPECT_THAT(Inbox(), IsEmpty());
}

TEST_F(OwnReportTest, LeavesANewerVersionsThatWaits) {
  const MetricReport report = ReportOn(step_, 0.5);
  const std::string newer = WithCheck(R"({"version":2})");
  Place(fs::path(InboxPathOf(report)).filename(), newer);
  ASSERT_THAT(RecordOwn(files_, *store_, report), IsOk());
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.5);
  EXPECT_EQ(ReadReport(files_, FolderPathOf(report))->evaluation.metrics, report.evaluation.metrics);
  EXPECT_EQ(*ReadSmallFile(files_, InboxPathOf(report), 4096), newer);
}

// Who calls takes kNotFound for a step that there is none of, and drops the report.
TEST_F(OwnReportTest, IsNotCalledOneOfAMissingStepWhereTheStoreIsOutOfSight) {
  failing_.FailOperation("CreateDirectory", absl::NotFoundError("no such directory"));
  EXPECT_THAT(RecordOwn(failing_, *store_, ReportOn(step_, 0.5)),
              StatusIs(absl::StatusCode::kInternal, "no such directory"));
}

// Its file is there; a worker has more to say between the two.
TEST_F(OwnReportTest, GivesTheNewsOfAWorkersReportThatCameWhileItWasMoved) {
  const MetricReport own = ReportOn(step_, 0.5);
  const MetricReport workers = ReportOn(step_, 0.25);
  bool delivered = false;
  failing_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation != "Rename" || call.path != FolderPathOf(own) || delivered) return absl::OkStatus();
    delivered = true;
    return Deliver(workers);
  });
  const InboxResult result = RecordReport(failing_, *store_, own, Warn());
  EXPECT_TRUE(delivered);
  EXPECT_THAT(result.error, IsOk());
  EXPECT_THAT(result.recorded, SizeIs(2));
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.25);
}

TEST_F(OwnReportTest, LeavesAWorkersThatWaitsWhereItIsRefused) {
  ASSERT_THAT(Deliver(ReportOn(step_, 0.5)), IsOk());
  ASSERT_THAT(store_->MarkStep(10, ToHex(step_.attempt.bytes), StepState::kDeleted, "too old"), IsOk());
  EXPECT_THAT(RecordOwn(files_, *store_, ReportOn(step_, 0.25)), StatusIs(absl::StatusCode::kNotFound, testing::_));
  EXPECT_THAT(Collect().recorded, SizeIs(1));
  EXPECT_EQ(Info(10).metrics.at("validation/loss"), 0.5);
}

TEST_F(OwnReportTest, IsRefusedOfWhatIsNotCommitted) {
  const auto expect_missing = [&](const MetricReport& report) {
    EXPECT_THAT(RecordOwn(files_, *store_, report),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("which is not committed")));
  };
  MetricReport other = ReportOn(step_, 0.5);
  other.step = 11;
  expect_missing(other);
  other = ReportOn(step_, 0.5);
  other.attempt.bytes[0] ^= 1;
  expect_missing(other);
  ASSERT_THAT(store_->MarkStep(10, ToHex(step_.attempt.bytes), StepState::kDeleted, "too old"), IsOk());
  expect_missing(ReportOn(step_, 0.5));
  other = ReportOn(step_, 0.5, "");
  EXPECT_THAT(RecordOwn(files_, *store_, other), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 bytes")));
}

// Its files may be sound again one day, and a rebuild takes those for committed.
TEST_F(OwnReportTest, IsInTheFolderOfADamagedStepToo) {
  const MetricReport report = ReportOn(step_, 0.5, "trainer");
  ASSERT_THAT(store_->MarkStep(10, ToHex(step_.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  ASSERT_THAT(RecordOwn(files_, *store_, report), IsOk());
  EXPECT_EQ(Info(10).state, StepState::kDamaged);
  EXPECT_EQ(Info(10).metrics.at("trainer/loss"), 0.5);
  EXPECT_TRUE(fs::exists(FolderPathOf(report)));
}

TEST_F(OwnReportTest, IsRecordedWithoutAFileWhereTheFolderOfTheStepIsGone) {
  const MetricReport report = ReportOn(step_, 0.5, "trainer");
  MetricReport skipped = report;
  skipped.evaluation = {.evaluator = "other", .outcome = Evaluation::Outcome::kSkipped};
  fs::remove_all(layout_.attempt(10, step_.attempt));
  ASSERT_THAT(RecordOwn(files_, *store_, report), IsOk());
  ASSERT_THAT(RecordOwn(files_, *store_, skipped), IsOk());
  EXPECT_THAT(Info(10).evaluations, SizeIs(2));
  EXPECT_EQ(Info(10).metrics.at("trainer/loss"), 0.5);
  EXPECT_FALSE(fs::exists(layout_.attempt(10, step_.attempt)));
}

TEST_F(OwnReportTest, IsRecordedAtTheSecondTryOrTheNextLookWhicheverCallFails) {
  ASSERT_THAT(RecordOwn(files_, *store_, ReportOn(step_, 0.5, "trainer")), IsOk());
  failing_.Reset();
  ASSERT_THAT(RecordOwn(failing_, *store_, ReportOn(step_, 0.75, "trainer")), IsOk());
  const size_t calls = failing_.calls().size();
  size_t errors = 0;
  for (const bool again : {true, false}) {
    for (size_t i = 0; i < calls; ++i) {
      SCOPED_TRACE(testing::Message() << "call " << i << (again ? ", a second try" : ", the next look"));
      const ShardIdentity identity = CommitStep(*store_, static_cast<int64_t>(100 + 2 * i + (again ? 1 : 0)), 1);
      const MetricReport report = ReportOn(identity, 1);
      failing_.Reset();
      failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
      const absl::Status status = RecordOwn(failing_, *store_, report);
      if (status.ok()) {  // reading what was moved, which tells whether it is another one, may fail
        EXPECT_THAT(Info(identity.step).evaluations, SizeIs(1));
        EXPECT_TRUE(fs::exists(FolderPathOf(report)));
        continue;
      }
      ++errors;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
      if (again) {
        EXPECT_THAT(RecordOwn(failing_, *store_, report), IsOk());
        EXPECT_THAT(Info(identity.step).evaluations, SizeIs(1));
      } else {
        const bool delivered = *HasReport(files_, layout_, identity.step, identity.attempt, "validation");
        EXPECT_THAT(Collect().error, IsOk());
        EXPECT_THAT(Info(identity.step).evaluations, SizeIs(delivered ? 1 : 0));
        EXPECT_EQ(fs::exists(FolderPathOf(report)), delivered) << "a rebuild knows what the manifest knows";
      }
    }
  }
  EXPECT_GE(errors, 2 * 8u);
}

TEST_F(OwnReportTest, ThatFoundNothingOutIsRecordedAtTheSecondTryWhicheverCallFails) {
  const auto skipped = [this](const ShardIdentity& identity) {
    MetricReport report = ReportOn(identity, 0);
    report.evaluation = {.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped, .reason = "lagging"};
    return report;
  };
  ASSERT_THAT(RecordOwn(failing_, *store_, skipped(step_)), IsOk());
  const size_t calls = failing_.calls().size();
  EXPECT_GE(calls, 4u);
  for (size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(testing::Message() << "call " << i);
    const ShardIdentity identity = CommitStep(*store_, static_cast<int64_t>(100 + i), 1);
    failing_.Reset();
    failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
    const InboxResult first = RecordReport(failing_, *store_, skipped(identity), Warn());
    EXPECT_THAT(first.error, StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
    EXPECT_THAT(first.recorded, SizeIs(1)) << "only its file is late";
    const InboxResult second = RecordReport(failing_, *store_, skipped(identity), Warn());
    EXPECT_THAT(second.error, IsOk());
    EXPECT_THAT(second.recorded, IsEmpty()) << "told once";
    EXPECT_TRUE(fs::exists(FolderPathOf(skipped(identity))));
    EXPECT_THAT(Info(identity.step).evaluations, SizeIs(1));
  }
  EXPECT_THAT(Inbox(), IsEmpty());
}

class OwnReportsTest : public OwnReportTest {
 protected:
  // The store does all that it does on `failing_`, and has taken back its mark of a clean shutdown.
  void SetUp() override {
    OwnReportTest::SetUp();
    store_.reset();
    store_ = OpenSoundStore(path_, &warnings_, failing_);
    ASSERT_NE(store_, nullptr);
    ASSERT_THAT(RecordOwn(failing_, *store_, ReportOn(step_, 0.25, "earlier")), IsOk());
    failing_.Reset();
  }

  OwnReportsResult Record(const std::vector<MetricReport>& reports) {
    return RecordReports(failing_, *store_, reports, Warn());
  }

  int64_t ManifestSyncs() const {
    const std::vector<FailingFileSystem::Call> calls = failing_.calls();
    return std::count_if(calls.begin(), calls.end(), IsManifestsSync);
  }

  MetricReport Skipped(const std::string& evaluator) const {
    MetricReport report = ReportOn(step_, 0, evaluator);
    report.evaluation = {.evaluator = evaluator, .outcome = Evaluation::Outcome::kSkipped, .reason = "lagging"};
    return report;
  }
};

TEST_F(OwnReportsTest, AreRecordedInOneChangeOfTheStepsRecord) {
  const std::vector<MetricReport> reports = {ReportOn(step_, 0.5, "a"), Skipped("earlier"), ReportOn(step_, 0.5, ""),
                                             Skipped("b"), ReportOn(step_, 0.75, "c")};
  const OwnReportsResult result = Record(reports);
  EXPECT_EQ(ManifestSyncs(), 1);
  ASSERT_THAT(result.each, SizeIs(5));
  for (const size_t i : {0, 3, 4}) {
    EXPECT_THAT(result.each[i].status, IsOk());
    EXPECT_TRUE(result.each[i].recorded);
    EXPECT_TRUE(fs::exists(FolderPathOf(reports[i])));
  }
  EXPECT_THAT(result.each[1].status, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'earlier'")));
  EXPECT_THAT(result.each[2].status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 bytes")));
  for (const size_t i : {1, 2}) EXPECT_FALSE(result.each[i].recorded);
  EXPECT_THAT(result.recorded, SizeIs(3));
  EXPECT_THAT(Info(10).evaluations, SizeIs(4));
  EXPECT_THAT(Inbox(), IsEmpty());
}

TEST_F(OwnReportsTest, AreRecordedInPartsWhereTheyAreLarge) {
  std::vector<MetricReport> reports;
  for (const char* evaluator : {"a", "b", "c", "d", "e", "f"}) {
    reports.push_back(ReportOn(step_, 0.5, evaluator));
    reports.back().evaluation.reason.assign(900'000, 'x');
  }
  EXPECT_THAT(Record(reports).recorded, SizeIs(6));
  EXPECT_EQ(ManifestSyncs(), 2) << "five of them, and the last one";
  EXPECT_THAT(Info(10).evaluations, SizeIs(7));
}

TEST_F(OwnReportsTest, AreNotTriedBehindOneThatTheDiskRefuses) {
  const std::vector<MetricReport> reports = {ReportOn(step_, 0.5, "a"), ReportOn(step_, 0.5, "b"),
                                             ReportOn(step_, 0.5, "c")};
  failing_.FailOperation("Create", absl::ResourceExhaustedError("ENOSPC"), /*before=*/1);
  const OwnReportsResult result = Record(reports);
  EXPECT_THAT(result.each[0].status, IsOk());
  for (const size_t i : {1, 2}) {
    EXPECT_THAT(result.each[i].status, StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
    EXPECT_FALSE(result.each[i].recorded);
    EXPECT_FALSE(fs::exists(FolderPathOf(reports[i])));
  }
  EXPECT_THAT(result.recorded, SizeIs(1));
  EXPECT_THAT(Info(10).evaluations, SizeIs(2));
  EXPECT_THAT(Inbox(), IsEmpty()) << "the last one was not tried";
}

TEST_F(OwnReportsTest, AreNotCalledThoseOfAMissingStepWhereTheManifestIsOutOfSight) {
  const std::vector<MetricReport> reports = {ReportOn(step_, 0.5, "a"), ReportOn(step_, 0.5, "b")};
  failing_.SetRule([](const FailingFileSystem::Call& call) {
    return IsManifestsSync(call) ? absl::NotFoundError("no such file") : absl::OkStatus();
  });
  for (const OwnReportsResult::Each& own : Record(reports).each) {
    EXPECT_THAT(own.status, StatusIs(absl::StatusCode::kInternal, HasSubstr("no such file")));
  }
  EXPECT_THAT(Inbox(), SizeIs(2)) << "nothing is lost";
  failing_.Reset();
  for (const OwnReportsResult::Each& own : Record(reports).each) EXPECT_THAT(own.status, IsOk());
  EXPECT_THAT(Info(10).evaluations, SizeIs(3));
}

TEST_F(OwnReportsTest, AreRefusedWhereTheStepIsSavedAgainMeanwhile) {
  bool saved = false;
  failing_.SetGate([&](const std::string& operation, const std::string& path) {
    if (saved || operation != "Create" || path.find("/inbox/") == std::string::npos) return;
    saved = true;
    CommitStep(*store_, 10, 43);
  });
  for (const OwnReportsResult::Each& own : Record({ReportOn(step_, 0.5, "a"), Skipped("b")}).each) {
    EXPECT_THAT(own.status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("which is not committed")));
    EXPECT_FALSE(own.recorded);
  }
  failing_.SetGate(nullptr);  // which outlives what the gate captures
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_THAT(Info(10).evaluations, IsEmpty());
}

TEST_F(OwnReportsTest, AreRecordedAtTheSecondTryOrTheNextLookWhicheverCallFails) {
  const auto on = [this](const ShardIdentity& identity) {
    return std::vector<MetricReport>{ReportOn(identity, 1, "a"), ReportOn(identity, 2, "b")};
  };
  ASSERT_THAT(Record(on(step_)).recorded, SizeIs(2));
  const size_t calls = failing_.calls().size();
  EXPECT_GE(calls, 20u);
  size_t errors = 0;
  for (const bool again : {true, false}) {
    for (size_t i = 0; i < calls; ++i) {
      SCOPED_TRACE(testing::Message() << "call " << i << (again ? ", a second try" : ", the next look"));
      const ShardIdentity identity = CommitStep(*store_, static_cast<int64_t>(100 + 2 * i + (again ? 1 : 0)), 1);
      const std::vector<MetricReport> reports = on(identity);
      failing_.Reset();
      failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
      const OwnReportsResult first = Record(reports);
      failing_.Reset();
      for (size_t j = 0; j < 2; ++j) {
        if (first.each[j].status.ok()) continue;
        ++errors;
        EXPECT_THAT(first.each[j].status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
      }
      if (again) {
        const OwnReportsResult second = Record(reports);
        for (size_t j = 0; j < 2; ++j) {
          EXPECT_THAT(second.each[j].status, IsOk());
          EXPECT_FALSE(first.each[j].recorded && second.each[j].recorded) << "told once";
        }
        EXPECT_THAT(Info(identity.step).evaluations, SizeIs(2));
        continue;
      }
      std::set<std::string> found;
      for (const MetricReport& report : reports) {
        const std::string& evaluator = report.evaluation.evaluator;
        if (*HasReport(files_, layout_, identity.step, identity.attempt, evaluator)) found.insert(evaluator);
      }
      EXPECT_THAT(Collect().error, IsOk());
      std::set<std::string> rows;
      for (const Evaluation& row : Info(identity.step).evaluations) rows.insert(row.evaluator);
      EXPECT_EQ(rows, found) << "a rebuild knows what the manifest knows";
      EXPECT_THAT(Inbox(), IsEmpty());
    }
  }
  EXPECT_GE(errors, 40u);
}

}  // namespace
}  // namespace tidemark::storage
