// Memory that C++ cannot allocate is an error of the public function that needed it, not an exception.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/store/store.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/failing_allocations.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;

class MemoryShortageTest : public testing::Test {
 protected:
  MemoryShortageTest() {
    for (size_t i = 0; i < values_.size(); ++i) state_.AddValue(fmt::format("value.{}", i), &values_[i]);
    // It fills a hash table, and Abseil's do not survive an allocation that fails.
    EXPECT_THAT(state_.Refresh(), IsOk());
  }
  std::unique_ptr<AsyncCheckpointer> Open() {
    auto checkpointer = AsyncCheckpointer::Open({.directory = store_});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  // What the call returns if this thread gets no large pieces of memory. The lists of the state's entries are large.
  static absl::Status WithoutMemory(const std::function<absl::Status()>& call) {
    allocation_max = 64 * 1024;
    absl::Status status;
    try {
      status = call();
    } catch (const std::exception& error) {
      allocation_max = SIZE_MAX;
      ADD_FAILURE() << "threw: " << error.what();
      return absl::OkStatus();
    }
    allocation_max = SIZE_MAX;
    return status;
  }

  const TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  std::vector<int64_t> values_ = std::vector<int64_t>(20'000, 1);
  State state_;
};

TEST_F(MemoryShortageTest, IsAnErrorOfEachCall) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Save(1, state_)->committed().Wait(), IsOk());
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  const auto snapshot = Capture(state_);
  ASSERT_THAT(snapshot, IsOk());
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> calls = {
      {"Capture", [&] { return Capture(state_).status(); }},
      {"RestoreFrom", [&] { return RestoreFrom(**snapshot, state_); }},
      {"AsyncCheckpointer::Restore", [&] { return checkpointer->Restore(1, state_).status(); }},
      {"StoreReader::Restore", [&] { return (*reader)->Restore(1, state_).status(); }},
      {"StoreReader::Load", [&] { return (*reader)->Load(1).status(); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    EXPECT_THAT(WithoutMemory(call), StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
    EXPECT_THAT(call(), IsOk());
  }
}

TEST_F(MemoryShortageTest, KeepsNoPreemptedTrainerFromClosing) {
  auto checkpointer = Open();
  auto guard = PreemptionGuard::Install({.grace = absl::Minutes(5)});
  ASSERT_THAT(guard, IsOk());
  PreemptionReport report;
  const absl::Status saved = WithoutMemory([&] {
    report = (*guard)->SaveAndClose(*checkpointer, 1, state_, {});
    return report.save;
  });
  EXPECT_THAT(saved, StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  EXPECT_THAT(report.close, IsOk());
  // The store is free.
  EXPECT_THAT(Open()->Save(1, state_)->committed().Wait(), IsOk());
}

// It would count as pending for as long as anyone holds the save.
TEST_F(MemoryShortageTest, LeavesNoStepWaitingForARowThatIsDropped) {
  auto store = storage::Store::Open(storage::PosixFileSystem(), {.directory = store_, .warn = [](std::string_view) {}});
  ASSERT_THAT(store, IsOk());
  std::string warnings;
  const Listeners listeners(ObserverOf({.warning = [&](std::string_view line) { warnings += line; }}));
  StatisticsCollector statistics;
  auto keeper = Housekeeper::Start({.files = storage::PosixFileSystem(),
                                    .store = **store,
                                    .listeners = listeners,
                                    .statistics = statistics,
                                    .read_statistics = [] { return CheckpointerStatistics(); },
                                    .claims = [] { return storage::Claims(); }},
                                   {});
  ASSERT_THAT(keeper, IsOk());
  const auto save = std::make_shared<const PendingSave>(1, /*persist=*/true);
  (*keeper)->BeginSave(save, nullptr);
  save->ExpectRow();
  Evaluation evaluation{.evaluator = "validation"};
  allocation_max = sizeof(Report);  // the room for a report fails, and nothing that is smaller
  (*keeper)->Evaluated(*save, std::move(evaluation));
  allocation_max = SIZE_MAX;
  EXPECT_FALSE(save->expects_rows());
  EXPECT_EQ(warnings, "the result of an evaluator is dropped, because the system has no memory for it");
  SaveOutcome outcome;
  outcome.save = save->number();
  outcome.step = 1;
  (*keeper)->EndSave(outcome);
  EXPECT_THAT((*keeper)->Stop(), IsOk());
}

struct PublicCall {
  std::string name;
  std::function<absl::Status()> call;
};

// What `make` returns. None of its allocations fails: they are the caller's own.
template <typename Make>
auto Made(const Make& make) {
  const int64_t left = std::exchange(allocations_until_failure, INT64_MAX);
  auto made = make();
  allocations_until_failure = left;
  return made;
}

// The next one to fail: every one of the first eight, then some of the others. A call may make thousands.
int64_t Next(int64_t allowed) { return allowed + 1 + allowed / 8; }

// Lets one allocation of the call fail, then a later one, and so on until the call meets no failure.
void ExpectNoException(const PublicCall& called) {
  SCOPED_TRACE(called.name);
  const absl::Status usual = called.call();
  for (int64_t allowed = 0;; allowed = Next(allowed)) {
    bool failed = false;
    absl::Status status;
    try {
      allocations_until_failure = allowed;
      status = called.call();
      failed = allocations_until_failure < 0;
      allocations_until_failure = INT64_MAX;
    } catch (const std::bad_alloc&) {
      allocations_until_failure = INT64_MAX;
      ADD_FAILURE() << "threw after " << allowed << " allocations";
      return;
    }
    // What only adds to a message or a statistic may be left out.
    if (!absl::IsResourceExhausted(status)) {
      EXPECT_EQ(status.code(), usual.code()) << "after " << allowed << " allocations: " << status.ToString();
    }
    if (!failed) break;
  }
  EXPECT_EQ(called.call().code(), usual.code());
}

class PublicCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    // An object of RocksDB through which an exception has passed is left alone (AbandonRocksEnv).
    if (storage::kAddressSanitizer) GTEST_SKIP() << "it leaks by design, as LeakSanitizer says";
    if (storage::kThreadSanitizer) GTEST_SKIP() << "one thread runs it, in two minutes there";
    PrepareToFailAllocations();
    state_.AddValue("value", &value_);
    auto opened = AsyncCheckpointer::Open({.directory = store_, .retention = {.max_to_keep = 5}});
    EXPECT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
    for (const int64_t step : {1, 2}) {
      EXPECT_THAT(checkpointer_->Save(step, state_, {.metrics = {{"loss", 1.0}}})->committed().Wait(), IsOk());
    }
  }

  const TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  int64_t value_ = 7;
  State state_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(PublicCallsTest, OfACheckpointerReturnAnErrorWhereNoMemoryIsLeft) {
  AsyncCheckpointer& checkpointer = *checkpointer_;
  const std::string long_name(100, 'n');
  const std::vector<PublicCall> calls = {
      {"Save",
       [&] {
         SaveOptions options = Made([] { return SaveOptions{.metrics = {{"loss", 1.0}}, .overwrite = true}; });
         absl::StatusOr<SaveHandle> save = checkpointer.Save(2, state_, std::move(options));
         return save.ok() ? save->committed().Wait() : save.status();
       }},
      {"Evaluate", [&] { return checkpointer.Evaluate(5, state_).status(); }},
      {"Prepare", [&] { return checkpointer.Prepare(state_); }},
      {"PrepareInBackground", [&] { return checkpointer.PrepareInBackground(state_); }},
      {"ShouldSave",
       [&] {
         checkpointer.ShouldSave(3);
         return absl::OkStatus();
       }},
      {"RestoreLatest", [&] { return checkpointer.RestoreLatest(state_).status(); }},
      {"Resume", [&] { return checkpointer.Resume(state_).status(); }},
      {"Restore", [&] { return checkpointer.Restore(1, state_).status(); }},
      {"Restore of the best", [&] { return checkpointer.Restore(StepSelector::Best("loss"), state_).status(); }},
      {"DiscardAfter", [&] { return checkpointer.DiscardAfter(2, "test").status(); }},
      {"DiscardAfter of no step", [&] { return checkpointer.DiscardAfter(0, "test").status(); }},
      {"AddEvaluator of no name", [&] { return checkpointer.AddEvaluator({}, nullptr); }},
      {"AddCompanion of none", [&] { return checkpointer.AddCompanion(nullptr); }},
      {"statistics",
       [&] {
         checkpointer.statistics();
         return absl::OkStatus();
       }},
      {"SetSaveInterval", [&] { return checkpointer.SetSaveInterval(-1); }},
      {"WaitUntilStaged", [&] { return checkpointer.WaitUntilStaged(); }},
      {"WaitUntilStaged of an entry", [&] { return checkpointer.WaitUntilStaged(long_name); }},
      {"WaitUntilCommitted", [&] { return checkpointer.WaitUntilCommitted(); }},
      {"Committed", [&] { return checkpointer.Committed(1).Wait(); }},
      {"Committed of no step", [&] { return checkpointer.Committed(9).Wait(); }},
      {"CheckForErrors", [&] { return checkpointer.CheckForErrors(); }},
      {"LatestStep", [&] { return checkpointer.LatestStep().status(); }},
      {"BestStep", [&] { return checkpointer.BestStep("loss").status(); }},
      {"BestStep of no metric", [&] { return checkpointer.BestStep(long_name, BestMode::kLowest).status(); }},
      {"Steps", [&] { return checkpointer.Steps().status(); }},
      {"ReportMetrics",
       [&] {
         std::string evaluator = Made([&] { return long_name; });
         Metrics metrics = Made([] { return Metrics{{"loss", 2.0}}; });
         return checkpointer.ReportMetrics(1, std::move(evaluator), std::move(metrics)).Wait();
       }},
      {"Pin", [&] { return checkpointer.Pin(1, Made([&] { return long_name; })); }},
      {"Unpin", [&] { return checkpointer.Unpin(1); }},
      {"Tag", [&] { return checkpointer.Tag(1, "name"); }},
      {"Untag", [&] { return checkpointer.Untag(long_name); }},
      {"Delete", [&] { return checkpointer.Delete(9, "test"); }},
      {"WaitUntilEvaluated", [&] { return checkpointer.WaitUntilEvaluated(); }},
      {"Tidy", [&] { return checkpointer.Tidy(); }},
      {"RetentionPlan", [&] { return checkpointer.RetentionPlan().status(); }},
  };
  for (const PublicCall& call : calls) ExpectNoException(call);
  EXPECT_THAT(checkpointer.Close(), IsOk());
}

TEST_F(PublicCallsTest, OfAReaderReturnAnErrorWhereNoMemoryIsLeft) {
  auto opened = StoreReader::Open(store_);
  ASSERT_THAT(opened, IsOk());
  StoreReader& reader = **opened;
  const std::string nowhere = store_ + "/nowhere";
  const std::string long_name(100, 'n');
  const auto step = reader.OpenStep(1);
  ASSERT_THAT(step, IsOk());
  std::array<std::byte, sizeof(value_)> bytes = {};
  const std::vector<PublicCall> calls = {
      {"Open of no store", [&] { return StoreReader::Open(nowhere).status(); }},
      {"OpenUntrusted of no store", [&] { return StoreReader::OpenUntrusted(nowhere).status(); }},
      {"Refresh", [&] { return reader.Refresh(); }},
      {"LatestStep", [&] { return reader.LatestStep().status(); }},
      {"LatestHealthyStep", [&] { return reader.LatestHealthyStep().status(); }},
      {"BestStep", [&] { return reader.BestStep("loss").status(); }},
      {"BestStep of no metric", [&] { return reader.BestStep(long_name, BestMode::kLowest).status(); }},
      {"FindStep", [&] { return reader.FindStep(1).status(); }},
      {"FindStep of no step", [&] { return reader.FindStep(9).status(); }},
      {"References", [&] { return reader.References(2).status(); }},
      {"BestModeOf",
       [&] {
         EXPECT_TRUE(reader.BestModeOf("validation/loss"));
         return absl::OkStatus();
       }},
      {"Restore", [&] { return reader.Restore(1, state_).status(); }},
      {"RestoreLatest", [&] { return reader.RestoreLatest(state_).status(); }},
      {"Load", [&] { return reader.Load(1).status(); }},
      {"ReadEntry", [&] { return reader.ReadEntry(1, "value").status(); }},
      {"Contents", [&] { return reader.Contents(1).status(); }},
      {"OpenStep", [&] { return reader.OpenStep(1).status(); }},
      {"Verify", [&] { return reader.Verify(1).status(); }},
      {"StepReader::Read",
       [&] {
         const StepReader::Window window{.entry = 0, .offset = 0, .destination = bytes};
         return (*step)->Read({&window, 1});
       }},
      {"StepReader::Read of no entry",
       [&] {
         const StepReader::Window window{.entry = 9, .offset = 0, .destination = bytes};
         return (*step)->Read({&window, 1});
       }},
      {"Phases", [&] { return reader.Phases(1).status(); }},
      {"ReadEntry of no step", [&] { return reader.ReadEntry(9, long_name).status(); }},
      {"Contents of no step", [&] { return reader.Contents(9).status(); }},
      {"OpenStep of no step", [&] { return reader.OpenStep(9).status(); }},
      {"Verify of no step", [&] { return reader.Verify(9).status(); }},
  };
  for (const PublicCall& call : calls) ExpectNoException(call);
}

TEST_F(PublicCallsTest, OfAPreemptionGuardReturnAnErrorWhereNoMemoryIsLeft) {
  ExpectNoException({"Install", [] {
                       PreemptionOptions options = Made([] { return PreemptionOptions{}; });
                       return PreemptionGuard::Install(std::move(options)).status();
                     }});
  ExpectNoException({"Install of a wrong grace", [] {
                       PreemptionOptions options = Made([] { return PreemptionOptions{.grace = absl::Seconds(-1)}; });
                       return PreemptionGuard::Install(std::move(options)).status();
                     }});
  const auto guard = PreemptionGuard::Install({.grace = absl::Minutes(5)});
  ASSERT_THAT(guard, IsOk());
  // It closes the checkpointer whatever becomes of the save.
  ExpectNoException({"SaveAndClose", [&] {
                       if (checkpointer_ == nullptr) {
                         checkpointer_ = Made([&] { return *AsyncCheckpointer::Open({.directory = store_}); });
                       }
                       const PreemptionReport report = (*guard)->SaveAndClose(*checkpointer_, 1, state_, {});
                       Made([&] {
                         checkpointer_.reset();
                         return 0;
                       });
                       return report.save.ok() ? report.close : report.save;
                     }});
}

TEST_F(PublicCallsTest, OfAWorkerReturnAnErrorWhereNoMemoryIsLeft) {
  const WorkerOptions options{.directory = store_,
                              .evaluator = "validation",
                              .again_if_failed = true,
                              .idle_timeout = absl::ZeroDuration(),
                              .stop_on_signal = false,
                              .observer = NoWarnings()};
  const auto evaluate = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict(); };
  ExpectNoException({"FollowStore", [&] { return FollowStore(options, evaluate).status(); }});
  ExpectNoException({"FollowStore without a function", [&] { return FollowStore(options, nullptr).status(); }});
}

TEST_F(PublicCallsTest, ShouldSaveSaysYesWhereSaveWhenThrows) {
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  std::vector<std::string> warnings;
  auto opened = AsyncCheckpointer::Open(
      {.directory = store_,
       .save_when = [](const SaveQuestion& question) -> bool {
         if (question.step == 3) throw std::runtime_error("no answer");
         return false;
       },
       .observer = ObserverOf({.warning = [&](std::string_view line) { warnings.emplace_back(line); }})});
  ASSERT_THAT(opened, IsOk());
  EXPECT_TRUE((*opened)->ShouldSave(3));
  EXPECT_FALSE((*opened)->ShouldSave(4));
  EXPECT_THAT(warnings, testing::ElementsAre(testing::AllOf(testing::HasSubstr("step 3 is to be saved"),
                                                            testing::HasSubstr("no answer"))));
}

// A change that Refresh fails to take in is there after the next one.
TEST_F(PublicCallsTest, RefreshLosesNoChangeWhereNoMemoryIsLeft) {
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  bool failed = true;
  for (int64_t allowed = 0; failed; allowed = Next(allowed)) {
    const std::string note = fmt::format("after {} allocations", allowed);
    ASSERT_THAT(checkpointer_->Pin(1, note), IsOk());
    allocations_until_failure = allowed;
    const absl::Status status = (*reader)->Refresh();
    failed = allocations_until_failure < 0;
    allocations_until_failure = INT64_MAX;
    if (!status.ok()) {
      EXPECT_THAT((*reader)->Refresh(), IsOk());
    }
    EXPECT_EQ((*reader)->FindStep(1)->pin_note, note);
  }
}

}  // namespace
}  // namespace tidemark
