#include "storage/manifest/report_files.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

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
    std::ofstream(PathOf(identity, evaluator), std::ios::binary) << *EncodeMetricReport(report);
  }

  absl::Status Apply(const ShardIdentity& identity, StepInfo& info, FileSystem& files = PosixFileSystem()) {
    return ApplyStoredReports(
        files, layout_, identity.store, {identity.step, identity.attempt},
        [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }, info);
  }

  static StepInfo InfoOf(const Store& store, int64_t step) {
    auto record = store.manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
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

TEST_F(ReportFilesTest, BringEvaluationsBackInARebuild) {
  ShardIdentity step;
  {
    auto store = Open();
    step = CommitStep(*store, 10, 42);
    CommitStep(*store, 11, 43);
    ASSERT_THAT(DeliverReport(PosixFileSystem(), layout_, ReportOn(step, 0.5, "validation")), IsOk());
    ASSERT_THAT(CollectInbox(PosixFileSystem(), *store, [](std::string_view) {}).error, IsOk());
    ASSERT_THAT(RecordOwn(PosixFileSystem(), *store, ReportOn(step, 0.75, "trainer")), IsOk());
    std::ofstream(PathOf(step, "torn")) << "{";
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("step 10 lacks an evaluation, because its report cannot be used"));
  EXPECT_EQ(ValueAt(*store, 10), 42);
  EXPECT_THAT(InfoOf(*store, 10).evaluations, SizeIs(2));
  EXPECT_EQ(InfoOf(*store, 10).metrics, (Metrics{{"loss", 42}, {"validation/loss", 0.5}, {"trainer/loss", 0.75}}));
  EXPECT_EQ((*store->manifest().FindBest("trainer/loss", BestMode::kLowest))->info.step, 10);
  EXPECT_THAT(InfoOf(*store, 11).evaluations, IsEmpty());
  store.reset();
  Open();
  EXPECT_EQ(warnings_, "") << "files of reports are nothing to warn of";
}

TEST_F(ReportFilesTest, SurviveARebuildWhicheverCallFails) {
  {
    auto store = Open();
    const ShardIdentity step = CommitStep(*store, 10, 42);
    ASSERT_THAT(RecordOwn(PosixFileSystem(), *store, ReportOn(step, 0.5, "validation")), IsOk());
  }
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 1000u);
    fs::remove_all(layout_.manifest());
    FailingFileSystem files(PosixFileSystem());
    files.FailCall(call, absl::InternalError("EIO"));
    opened = OpenStore(path_, &warnings_, files).ok() ? opened + 1 : 0;
    EXPECT_THAT(InfoOf(*Open(), 10).evaluations, SizeIs(1));
  }
}

TEST_F(ReportFilesTest, ComeWithAnAttemptThatIsAdopted) {
  {
    auto store = Open();
    const ShardIdentity step = WriteAttempt(*store, 10, 42);
    Place(step, ReportOn(step, 0.5, "validation"), "validation");
  }
  EXPECT_EQ(InfoOf(*Open(), 10).metrics.at("validation/loss"), 0.5);
}

}  // namespace
}  // namespace tidemark::storage
