#include "storage/store/first_format/report_files.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/first_format/written_files.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

class ReportFilesTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  static MetricReport ReportOn(const ShardIdentity& identity, double loss, const std::string& evaluator) {
    return {.store = identity.store,
            .step = identity.step,
            .attempt = identity.attempt,
            .evaluation = {.evaluator = evaluator, .metrics = {{"loss", loss}}, .took = absl::Seconds(1)}};
  }

  std::string PathOf(const ShardIdentity& identity, const std::string& evaluator) const {
    return layout_.attempt(identity.step, identity.attempt) + "/" + MetricFileName(evaluator);
  }

  void Place(const ShardIdentity& identity, const MetricReport& report, const std::string& evaluator) {
    std::ofstream(PathOf(identity, evaluator), std::ios::binary) << EncodeMetricReport(report);
  }

  absl::Status Apply(const ShardIdentity& identity, StepInfo& info, FileSystem& files = PosixFileSystem()) {
    return ApplyStoredReports(
        files, layout_, identity.store, {identity.step, identity.attempt},
        [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }, info);
  }

  std::vector<MetricReport> Read(const StoreId& store) {
    auto reports = ReadInbox(PosixFileSystem(), layout_, store,
                             [this](std::string_view line) { warnings_ += std::string(line) + "\n"; });
    EXPECT_THAT(reports, IsOk());
    return reports.ok() ? *std::move(reports) : std::vector<MetricReport>();
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(ReportFilesTest, AppliesTheReportsInAFolderAndLeavesWhatCannotBeUsed) {
  auto store = Open();
  const ShardIdentity step = CommitStep(*store, 10, 42);
  const ShardIdentity other = CommitStep(*store, 11, 43);
  Place(step, ReportOn(step, 0.5, "validation"), "validation");
  Place(step, ReportOn(step, 0.75, "test"), "test");
  Place(step, ReportOn(step, 1, "one name"), "another name");
  Place(step, ReportOn(other, 2, "misplaced"), "misplaced");
  MetricReport foreign = ReportOn(step, 3, "foreign");
  foreign.store.bytes[0] ^= 1;
  Place(step, foreign, "foreign");
  std::ofstream(PathOf(step, "torn")) << "{";
  std::ofstream(PathOf(step, "large")) << std::string(kMetricReportBytesMax + 1, ' ');
  fs::create_symlink(PathOf(step, "test"), PathOf(step, "link"));
  std::ofstream(layout_.attempt(10, step.attempt) + "/metrics-notes.json") << "{";
  StepInfo info;
  ASSERT_THAT(Apply(step, info), IsOk());
  EXPECT_EQ(info.metrics, (Metrics{{"validation/loss", 0.5}, {"test/loss", 0.75}}));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 5) << warnings_;
  EXPECT_THAT(warnings_, AllOf(HasSubstr("it is the result of evaluator 'one name' for step 10"),
                               HasSubstr("for step 11"), HasSubstr("it is about store"),
                               HasSubstr("it does not end in a check"), HasSubstr("at most 1048576 are expected")));
  EXPECT_TRUE(fs::exists(PathOf(step, "torn")));
}

TEST_F(ReportFilesTest, ReturnsWhatTheDiskFailsWith) {
  auto store = Open();
  const ShardIdentity step = CommitStep(*store, 10, 42);
  Place(step, ReportOn(step, 0.5, "validation"), "validation");
  for (const char* operation : {"ListDirectory", "OpenForRead", "Size", "ReadAt"}) {
    FailingFileSystem failing(PosixFileSystem());
    failing.FailOperation(operation, absl::InternalError("EIO"));
    StepInfo info;
    EXPECT_THAT(Apply(step, info, failing), StatusIs(absl::StatusCode::kInternal, "EIO")) << operation;
    EXPECT_THAT(info.evaluations, IsEmpty());
  }
}

// Of what is in inbox/, a report counts that its name promises.
TEST_F(ReportFilesTest, ReadsTheInboxAndLeavesOutWhatCannotBeUsed) {
  ShardIdentity step;
  step.step = 10;
  step.store = StoreId{{1}};
  EXPECT_THAT(Read(step.store), IsEmpty()) << "there is no inbox";
  fs::create_directories(layout_.inbox());
  const auto deliver = [&](const MetricReport& report, const std::string& evaluator) {
    std::ofstream(InboxPath(layout_, InboxFileName(step.step, step.attempt, evaluator)), std::ios::binary)
        << EncodeMetricReport(report);
  };
  deliver(ReportOn(step, 0.5, "validation"), "validation");
  deliver(ReportOn(step, 0.75, "test"), "test");
  deliver(ReportOn(step, 1, "one name"), "another name");
  MetricReport foreign = ReportOn(step, 3, "foreign");
  foreign.store.bytes[0] ^= 1;
  deliver(foreign, "foreign");
  std::ofstream(InboxPath(layout_, InboxFileName(10, step.attempt, "torn"))) << "{";
  // A draft, and what is no name of a report.
  const std::string name = InboxFileName(10, step.attempt, "draft");
  std::ofstream(InboxPath(layout_, name + ".00112233445566778899aabbccddeeff.tmp")) << "{";
  std::ofstream(InboxPath(layout_, "notes.txt")) << "{";
  const std::vector<MetricReport> reports = Read(step.store);
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_NE(reports[0].evaluation.evaluator, reports[1].evaluation.evaluator);
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 3) << warnings_;
  EXPECT_THAT(warnings_, AllOf(HasSubstr("a report is dropped"), HasSubstr("it is about store"),
                               HasSubstr("it does not end in a check")));
  for (const char* operation : {"ListDirectory", "OpenForRead", "Size", "ReadAt"}) {
    FailingFileSystem failing(PosixFileSystem());
    failing.FailOperation(operation, absl::InternalError("EIO"));
    EXPECT_THAT(ReadInbox(failing, layout_, step.store, [](std::string_view) {}),
                StatusIs(absl::StatusCode::kInternal, "EIO"))
        << operation;
  }
}

}  // namespace
}  // namespace tidemark::storage
