#include "eval/store_follower.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/retention/retention.h"
#include "tests/eval/following_store.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/sanitizers.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using End = WorkerReport::End;

class StoreFollowerTest : public FollowingStore {};

TEST_F(StoreFollowerTest, EvaluatesEveryCommittedStepInOrder) {
  OpenStore();
  for (int64_t step : {30, 10, 20}) CommitStep(step);
  options_.worker = "me";
  std::vector<int64_t> told;
  Observe({.evaluated = [&](int64_t step, const Evaluation& row) {
    told.push_back(step);
    EXPECT_EQ(row.evaluator, "validation");
  }});
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_EQ(report->evaluated, 3);
  EXPECT_EQ(report->failed, 0);
  EXPECT_EQ(report->last_step, 30);
  EXPECT_THAT(asked_, ElementsAre(10, 20, 30));
  EXPECT_THAT(told, ElementsAre(10, 20, 30));
  const Evaluation row = RowOf(20);
  EXPECT_EQ(row.evaluator, "validation");
  EXPECT_EQ(row.worker, "me");
  EXPECT_EQ(row.outcome, Evaluation::Outcome::kDone);
  EXPECT_EQ(row.metrics, (Metrics{{"value", 120}}));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory + "/leases"));
}

TEST_F(StoreFollowerTest, AFunctionThatIsCancelledEndsTheCallAndLeavesTheStepToTheNext) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  const EvaluatorFunction function = function_;
  function_ = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    if (snapshot.step() == 20) return absl::CancelledError("interrupted");
    return function(snapshot);
  };
  EXPECT_THAT(Run(), StatusIs(StatusCode::kCancelled, HasSubstr("interrupted")));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory + "/leases"));
  function_ = function;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
}

TEST_F(StoreFollowerTest, EvaluatesEachStepOnce) {
  OpenStore();
  CommitStep(10);
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(Run()->evaluated, 0) << "no trainer has taken in its report";
  RowOf(10);
  EXPECT_EQ(Run()->evaluated, 0) << "it has been taken in";
  CommitStep(20);
  EXPECT_EQ(Run()->evaluated, 1);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
}

TEST_F(StoreFollowerTest, TakesOnlyTheStepsThatAreAskedFor) {
  OpenStore();
  for (int64_t step : {10, 20, 25, 30, 40}) CommitStep(step);
  options_.every_steps = 20;
  options_.begin_step = 11;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(20, 40));
}

TEST_F(StoreFollowerTest, EndsWhenTheLastStepIsDone) {
  OpenStore();
  for (int64_t step : {10, 20, 30}) CommitStep(step);
  options_.idle_timeout = absl::InfiniteDuration();
  options_.until_step = 15;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
  report = Run();
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_EQ(report->evaluated, 0);
}

TEST_F(StoreFollowerTest, EndsWhenNoStepUpToTheLastIsToBeDone) {
  OpenStore();
  for (int64_t step = 10; step <= 100; step += 10) CommitStep(step);
  options_.idle_timeout = absl::Seconds(100);
  options_.every_steps = 30;
  options_.until_step = 100;
  EXPECT_EQ(Run()->end, End::kUntilStep) << "the last one that is asked for is done";
  EXPECT_THAT(asked_, ElementsAre(30, 60, 90));
  options_.evaluator = "another";
  options_.begin_step = 95;
  EXPECT_EQ(Run()->end, End::kUntilStep) << "none is asked for, and the training has come so far";
  options_.every_steps = 70;
  options_.begin_step = 0;
  options_.until_step = 140;
  EXPECT_EQ(Run()->end, End::kIdle) << "one is yet to come";
  EXPECT_THAT(asked_, ElementsAre(30, 60, 90, 70));
  EXPECT_THAT(waits_, testing::SizeIs(100));
}

TEST_F(StoreFollowerTest, RecordsThatTheFunctionFailed) {
  OpenStore();
  for (int64_t step : {1, 2, 3, 4, 5}) CommitStep(step);
  function_ = [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    if (snapshot.step() == 1) return absl::OutOfRangeError("no data");
    if (snapshot.step() == 2) throw std::runtime_error("out of luck");
    if (snapshot.step() == 3) throw 3;
    if (snapshot.step() == 4) return Verdict({{"", 1.0}}, "x, of a step");
    return Verdict({}, std::string(2 << 20, 'x'));
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 5);
  EXPECT_EQ(report->failed, 5);
  const std::vector<std::string> reasons = {"OUT_OF_RANGE: no data", "it threw: out of luck",
                                            "it threw something other than a std::exception", "INVALID_ARGUMENT",
                                            "INVALID_ARGUMENT"};
  for (int64_t step = 1; step <= 5; ++step) {
    const Evaluation row = RowOf(step);
    EXPECT_EQ(row.outcome, Evaluation::Outcome::kFailed) << step;
    EXPECT_THAT(row.reason, HasSubstr(reasons[static_cast<size_t>(step - 1)]));
    EXPECT_EQ(row.unhealthy.substr(0, 1), step < 4 ? "" : "x") << "a verdict counts all the same";
    EXPECT_LE(row.unhealthy.size(), 256u);
  }
  EXPECT_EQ(Run()->evaluated, 0) << "a failure is a result";
}

TEST_F(StoreFollowerTest, EvaluatesAgainWhatFailedIfItIsToldTo) {
  OpenStore();
  for (int64_t step : {1, 2, 3}) CommitStep(step);
  const EvaluatorFunction sound = function_;
  function_ = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    if (snapshot.step() == 3) return sound(snapshot);
    asked_.push_back(snapshot.step());
    return absl::InvalidArgumentError("wrong width");
  };
  EXPECT_EQ(Run()->failed, 2);
  EXPECT_EQ(RowOf(1).reason, "INVALID_ARGUMENT: wrong width");  // and the reports are taken in
  EXPECT_EQ(Run()->evaluated, 0);
  asked_.clear();
  options_.again_if_failed = true;
  options_.idle_timeout = 2 * StepBacklog::kFullReadInterval;
  on_wait_ = [&](size_t) { RowOf(1); };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->failed, 2);
  EXPECT_THAT(asked_, ElementsAre(1, 2)) << "each once, however often the catalog is read";
  asked_.clear();
  function_ = sound;
  EXPECT_EQ(Run()->failed, 0);
  EXPECT_THAT(asked_, ElementsAre(1, 2));
  EXPECT_EQ(Run()->evaluated, 0) << "the reports do not say any more that";
  EXPECT_EQ(RowOf(1).metrics, (Metrics{{"value", 101}}));
  EXPECT_EQ(RowOf(2).outcome, Evaluation::Outcome::kDone);
}

TEST_F(StoreFollowerTest, LeavesTheReportOfAnotherWorkerWhereItsOwnEvaluationFailed) {
  OpenStore();
  CommitStep(1);
  function_ = [&](const Snapshot&) -> absl::StatusOr<Verdict> {
    // As by one that took the lease for lost.
    EXPECT_THAT(ReportBySomebodyElse(1, {.metrics = {{"value", 7}}}), IsOk());
    return absl::OutOfRangeError("no data");
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 0);
  EXPECT_EQ(RowOf(1).metrics, (Metrics{{"value", 7}}));
}

// Whether a trainer holds the store or not.
TEST_F(StoreFollowerTest, ItsReportIsSeenByEveryReaderAtOnce) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  auto before = StoreReader::Open(options_.directory);
  ASSERT_THAT(before, IsOk());
  for (const int64_t step : {10, 20}) {
    if (step == 20) store_.reset();
    options_.until_step = step;
    ASSERT_THAT(Run(), IsOk());
    auto after = StoreReader::Open(options_.directory);
    ASSERT_THAT(after, IsOk());
    ASSERT_THAT((*before)->Refresh(), IsOk());
    for (const auto* reader : {&*before, &*after}) {
      EXPECT_EQ((*reader)->FindStep(step)->metrics.at("validation/value"), static_cast<double>(100 + step));
    }
  }
  OpenStore();
  EXPECT_EQ(RowOf(20).metrics.at("value"), 120) << "and by the next trainer";
}

TEST_F(StoreFollowerTest, RecordsWhatMakesAStepUnhealthy) {
  OpenStore();
  CommitStep(1);
  function_ = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict({{"norm", 1e9}}, "norms explode"); };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(RowOf(1).unhealthy, "norms explode");
}

TEST_F(StoreFollowerTest, RecordsThatAStepIsDamaged) {
  OpenStore();
  const storage::ShardIdentity identity = CommitStep(10);
  const std::string shard = store_->layout().shard(10, identity.attempt, 0, 1);
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2);
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->failed, 1);
  EXPECT_THAT(RowOf(10).reason, AllOf(HasSubstr("DATA_LOSS"), HasSubstr(shard)));
}

TEST_F(StoreFollowerTest, RecordsThatNothingMatchesAPattern) {
  OpenStore();
  CommitStep(10);
  options_.entries = {"model.*"};
  EXPECT_EQ(Run()->failed, 1);
  EXPECT_THAT(RowOf(10).reason, HasSubstr("model.*"));
}

TEST_F(StoreFollowerTest, DoesNotEvaluateWhatWasDeletedOrReplacedMeanwhile) {
  OpenStore();
  CommitStep(10);
  const storage::ShardIdentity deleted = CommitStep(20);
  CommitStep(30);
  during_ = [&](int64_t step) {
    if (step != 10) return;
    EXPECT_THAT(
        store_->NoteSteps(
            {{.step = 20, .attempt = storage::ToHex(deleted.attempt.bytes), .deleted = true, .reason = "by the test"}}),
        IsOk());
    storage::CommitStep(*store_, 30, 7);
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 30));
  EXPECT_EQ(RowOf(30).metrics.at("value"), 7);
}

TEST_F(StoreFollowerTest, EvaluatesAnEarlierStepThatIsWrittenAnew) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  options_.idle_timeout = absl::Seconds(5);
  on_wait_ = [&](size_t count) {
    if (count == 2) storage::CommitStep(*store_, 10, 7);
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 20, 10));
}

TEST_F(StoreFollowerTest, EndsAfterTheStepAtHandWhenAsked) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  during_ = [&](int64_t) { signalled_ = true; };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kSignal);
  EXPECT_EQ(report->evaluated, 1);
  signalled_ = false;
  during_ = nullptr;
  options_.stop = [&] { return asked_.size() == 2; };
  CommitStep(30);
  report = Run();
  EXPECT_EQ(report->end, End::kStopped);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
}

// It is asked between two looks of its own.
TEST_F(StoreFollowerTest, SaysThatItWasAskedToEndWhereStepsAreLeft) {
  OpenStore();
  for (int64_t step : {10, 20}) CommitStep(step);
  options_.until_step = 20;
  int looks = 0;
  options_.stop = [&] { return ++looks > 1; };
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kStopped);
  EXPECT_EQ(report->evaluated, 0);
}

// None follows it.
TEST_F(StoreFollowerTest, LooksAtTheLastStepThatThereIsOnceBetweenTwoWaits) {
  OpenStore();
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  auto lease = LeaseBySomebodyElse(storage::CommitStep(*store_, kLast, 7));
  int asked_to_stop = 0;
  options_.stop = [&] { return ++asked_to_stop > 100; };
  on_wait_ = [&](size_t count) {
    if (count == 3) lease.reset();
  };
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_LT(asked_to_stop, 20);
  EXPECT_EQ(RowOf(kLast).metrics.at("value"), 7);
}

TEST_F(StoreFollowerTest, HoldsTheLeaseWhileItEvaluatesAndRenewsIt) {
  OpenStore();
  CommitStep(10);
  options_.lease_expiry = absl::Seconds(1);
  uint64_t renewals = 0;
  during_ = [&](int64_t) {
    const std::filesystem::directory_entry lease = *std::filesystem::directory_iterator(options_.directory + "/leases");
    for (int tries = 0; renewals < 2 && tries < 100'000'000; ++tries) {
      std::ifstream in(lease.path());
      const std::string bytes(std::istreambuf_iterator<char>(in), {});
      if (auto note = storage::DecodeLeaseNote(bytes); note.ok()) renewals = note->renewals;
    }
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_GE(renewals, 2u);
}

TEST_F(StoreFollowerTest, KeepsTheStepThatItEvaluatesFromRetention) {
  OpenStore();
  const std::string folder = store_->layout().attempt(10, CommitStep(10).attempt);
  for (int64_t step : {20, 30}) CommitStep(step);
  const auto apply = [&] {
    std::vector<int64_t> deleted;
    auto decisions = storage::Retention(files_, *store_, {.max_to_keep = 1}, [](std::string_view line) {
                       ADD_FAILURE() << line;
                     }).Apply(nullptr);
    EXPECT_THAT(decisions, IsOk());
    for (const RetentionDecision& decision : *decisions) deleted.push_back(decision.step);
    return deleted;
  };
  during_ = [&](int64_t step) {
    if (step != 10) return;
    EXPECT_THAT(apply(), ElementsAre(20)) << "which nobody has begun with";
    EXPECT_TRUE(std::filesystem::exists(folder));
    auto record = store_->catalog().Find(10);
    ASSERT_THAT(record, IsOk());
    EXPECT_THAT((*record)->info.kept, HasSubstr("validation"));
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 30));
  EXPECT_EQ(RowOf(10).metrics.at("value"), 110);
  EXPECT_THAT(apply(), ElementsAre(10));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(StoreFollowerTest, EvaluatesAgainWhatCouldNotBeReported) {
  OpenStore();
  CommitStep(10);
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return IsNamingOfEntry(call.operation, call.path) ? absl::ResourceExhaustedError("disk full: " + call.path)
                                                      : absl::OkStatus();
  });
  EXPECT_THAT(Run(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("/journal/")));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory + "/leases"));
  files_.Reset();
  EXPECT_EQ(Run()->evaluated, 1);
  EXPECT_THAT(asked_, ElementsAre(10, 10));
  RowOf(10);
}

TEST_F(StoreFollowerTest, FailsAtAnyCallAndDoesTheStepTheNextTime) {
  OpenStore();
  CommitStep(1);
  files_.Reset();
  ASSERT_THAT(Run(), IsOk());
  const size_t calls = files_.calls().size();
  ASSERT_GT(calls, 5u);
  const storage::DrawnCalls drawn;
  for (size_t i = drawn.first; i < calls; i += drawn.stride) {
    const int64_t step = static_cast<int64_t>(i) + 2;
    CommitStep(step);
    files_.Reset();
    files_.FailCall(i, absl::InternalError("EIO"));
    auto report = Run();  // some of these calls a run can do without
    files_.Reset();
    ASSERT_THAT(Run(), IsOk()) << "after call " << i << " had failed";
    EXPECT_EQ(RowOf(step).metrics.at("value"), static_cast<double>(100 + step)) << "call " << i;
  }
}

TEST_F(StoreFollowerTest, RefusesAStoreOfANewerFormat) {
  std::filesystem::create_directory(options_.directory);
  std::ofstream(options_.directory + "/store.json") << R"({"format": 9, "store_id": "x", "check": "y"})";
  EXPECT_THAT(Run(), StatusIs(StatusCode::kUnimplemented, AllOf(HasSubstr("store.json"), HasSubstr("9"))));
}

TEST_F(StoreFollowerTest, RefusesWhatIsNoStore) {
  std::ofstream(options_.directory) << "a file";
  EXPECT_THAT(Run(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(options_.directory)));
  std::filesystem::remove(options_.directory);
  std::filesystem::create_directory(options_.directory);
  std::ofstream(options_.directory + "/store.json") << "{}";
  EXPECT_THAT(Run(), StatusIs(StatusCode::kDataLoss, HasSubstr("store.json")));
}

TEST_F(StoreFollowerTest, SaysThatTheJournalMayNotBeWritten) {
  if (storage::kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
  OpenStore();
  CommitStep(10);
  store_.reset();
  const std::string folder = options_.directory + "/journal/0000/00";
  ASSERT_EQ(chmod(folder.c_str(), 0500), 0);
  storage::EndIndexThreads();
  const std::string answer = storage::InChild([&]() -> std::string {
    if (!storage::GiveUpRights()) return "may not give up its rights";
    return Run().status().ToString();
  });
  chmod(folder.c_str(), 0700);
  EXPECT_THAT(answer, AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr(folder)));
}

TEST_F(StoreFollowerTest, RefusesOptionsOutOfTheirRange) {
  const auto refused = [&](auto change) {
    WorkerOptions changed = options_;
    change(changed);
    const absl::Status status = ValidateWorkerOptions(changed);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(ValidateWorkerOptions(options_), IsOk());
  EXPECT_THAT(refused([](WorkerOptions& o) { o.directory = ""; }), HasSubstr("directory is empty"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.evaluator = "a/b"; }), HasSubstr("evaluator"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.every_steps = 0; }), HasSubstr("every_steps is 0: 1 or more"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.begin_step = -1; }), HasSubstr("begin_step is -1: 0 or more"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.idle_timeout = -absl::Seconds(1); }), HasSubstr("idle_timeout is -1s"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.poll_interval = absl::ZeroDuration(); }), HasSubstr("poll_interval"));
  EXPECT_THAT(refused([](WorkerOptions& o) { o.lease_expiry = absl::Milliseconds(999); }),
              HasSubstr("lease_expiry is 999ms: 1s to 24h"));
}

}  // namespace
}  // namespace tidemark
