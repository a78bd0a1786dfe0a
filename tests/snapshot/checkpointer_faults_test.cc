// AsyncCheckpointer under every single fault of its disk, RocksDB's calls included: a save, an opening, a restore or a
// closing succeeds or says what failed; what was committed before stays, bit for bit; and on a healthy disk everything
// goes on.

#include <filesystem>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/faulty_store.h"
#include "tests/snapshot/journal_calls.h"

namespace tidemark {
namespace {

using storage::FaultsToRun;
using storage::InjectedFault;
using storage::IsOk;
using storage::SweepFaults;

class CheckpointerFaultsTest : public FaultyStoreTest {
 protected:
  // A store with step 1, and perhaps 2, closed in good order.
  void MakeStore(int64_t steps) {
    auto checkpointer = Open();
    for (int64_t step = 1; step <= steps; ++step) ASSERT_THAT(Save(*checkpointer, step, step), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
    Keep();
  }

  // What a save under a fault leaves to check, on the checkpointer that it has failed on and on the next one.
  // `expected`: with what the save may have made of its step.
  void ExpectToGoOn(const absl::Status& status, const InjectedFault& fault, Expected expected) {
    EXPECT_TRUE(IsTold(status, fault)) << status;
    ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, expected));
    ASSERT_THAT(Save(*checkpointer_, 9, 9), IsOk());
    expected[9] = {9};
    ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, expected));
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
    ExpectStepsReopened(expected);
  }

  static constexpr size_t kSitesMin = 5;
};

// The mode that is new cannot be recorded; the rule of the other metric must not lose its own for that.
TEST_F(CheckpointerFaultsTest, KnowsTheRecordedModesWhereANewOneCannotBeRecorded) {
  CheckpointerOptions options = Options();
  options.retention.keep_best = {{.metric = "x", .mode = BestMode::kHighest}};
  checkpointer_ = Open(options);
  ASSERT_NE(checkpointer_, nullptr);
  ASSERT_THAT(Save(*checkpointer_, 1, 1), IsOk());
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  checkpointer_.reset();
  options.retention.keep_best = {{.metric = "x"}, {.metric = "y", .mode = BestMode::kLowest}};
  std::string warnings;
  options.observer = ObserverOf({.warning = [&](std::string_view line) { warnings += line; }});
  files_.SetRule([named = 0](const storage::FailingFileSystem::Call& call) mutable {
    // The first entry says that the store is open.
    const bool refused = IsNamingOfEntry(call.operation, call.path) && ++named > 1;
    return refused ? absl::ResourceExhaustedError("no room") : absl::OkStatus();
  });
  checkpointer_ = Open(options);
  ASSERT_NE(checkpointer_, nullptr);
  EXPECT_THAT(warnings, testing::HasSubstr("the best modes of metrics could not be recorded"));
  files_.Reset();
}

TEST_F(CheckpointerFaultsTest, ASaveFailsCleanlyOrSucceeds) {
  MakeStore(1);
  const auto figures = SweepFaults(
      files_,
      {.name = "save",
       .prepare =
           [&] {
             UseKept();
             checkpointer_ = OpenAtRest();
           },
       .act = [&] { return Save(*checkpointer_, 2, 2); },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             ExpectToGoOn(status, fault,
                          {{1, {1}}, {2, status.ok() ? std::set<int64_t>{2} : std::set{kNothing, int64_t{2}}}});
           }},
      FaultsToRun(2));
  EXPECT_GT(figures.sites, kSitesMin);
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(CheckpointerFaultsTest, AnOverwriteLeavesTheOldContentsOrTheNew) {
  MakeStore(1);
  const auto figures = SweepFaults(
      files_,
      {.name = "overwrite",
       .prepare =
           [&] {
             UseKept();
             checkpointer_ = OpenAtRest();
           },
       .act = [&] { return Save(*checkpointer_, 1, 5, {.overwrite = true}); },
       .check =
           [&](const absl::Status& status, const InjectedFault& fault) {
             ExpectToGoOn(status, fault, {{1, status.ok() ? std::set<int64_t>{5} : std::set<int64_t>{1, 5}}});
           }},
      FaultsToRun(2));
  EXPECT_GT(figures.sites, kSitesMin);
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(CheckpointerFaultsTest, ASaveThatIsClosedOnAFailingDiskLeavesASoundStore) {
  MakeStore(1);
  SweepFaults(files_,
              {.name = "save and close",
               .prepare =
                   [&] {
                     UseKept();
                     checkpointer_ = OpenAtRest();
                   },
               .act =
                   [&] {
                     absl::Status status = Save(*checkpointer_, 2, 2);
                     status.Update(checkpointer_->Close());
                     checkpointer_.reset();
                     return status;
                   },
               .check =
                   [&](const absl::Status& status, const InjectedFault& fault) {
                     EXPECT_TRUE(IsTold(status, fault)) << status;
                     ExpectStepsReopened({{1, {1}}, {2, {2, status.ok() ? 2 : kNothing}}});
                   }},
              FaultsToRun(2));
}

TEST_F(CheckpointerFaultsTest, AFirstOpeningLeavesNothingThatTheNextCannotUse) {
  const auto figures = SweepFaults(files_,
                                   {.name = "first open",
                                    .prepare = [&] { std::filesystem::remove_all(store_); },
                                    .act =
                                        [&] {
                                          auto opened = TryOpen();
                                          if (!opened.ok()) return opened.status();
                                          checkpointer_ = *std::move(opened);
                                          return absl::OkStatus();
                                        },
                                    .check =
                                        [&](const absl::Status& status, const InjectedFault& fault) {
                                          if (!status.ok()) {
                                            EXPECT_TRUE(fault.Explains(status));
                                            checkpointer_ = Open();
                                            ASSERT_NE(checkpointer_, nullptr);
                                          }
                                          ASSERT_THAT(Save(*checkpointer_, 1, 1), IsOk());
                                          ASSERT_THAT(checkpointer_->Close(), IsOk());
                                          checkpointer_.reset();
                                          ExpectStepsReopened({{1, {1}}});
                                        }},
                                   FaultsToRun(12));
  EXPECT_GT(figures.sites, kSitesMin);
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(CheckpointerFaultsTest, AClosingLosesNothing) {
  MakeStore(1);
  SweepFaults(files_,
              {.name = "close",
               .prepare =
                   [&] {
                     UseKept();
                     checkpointer_ = OpenAtRest();
                     ASSERT_THAT(Save(*checkpointer_, 2, 2), IsOk());
                   },
               .act =
                   [&] {
                     const absl::Status status = checkpointer_->Close();
                     checkpointer_.reset();
                     return status;
                   },
               .check =
                   [&](const absl::Status& status, const InjectedFault&) {
                     EXPECT_THAT(status, IsOk());  // there was nothing left to be lost
                     ExpectStepsReopened({{1, {1}}, {2, {2}}});
                   }},
              FaultsToRun(1));
}

TEST_F(CheckpointerFaultsTest, ARestoreIsExactOrSaysWhatFailedAndMarksNothing) {
  MakeStore(2);
  const auto figures = SweepFaults(files_,
                                   {.name = "restore",
                                    .prepare =
                                        [&] {
                                          UseKept();
                                          checkpointer_ = OpenAtRest();
                                        },
                                    .act = [&]() -> absl::Status {
                                      trainer_.SetTo(-7);
                                      auto report = checkpointer_->RestoreLatest(trainer_.state);
                                      if (!report.ok()) return report.status();
                                      EXPECT_TRUE(trainer_.IsAt(report->step));
                                      EXPECT_TRUE(report->step == 2 || report->passed_over.at(0).first == 2);
                                      return absl::OkStatus();
                                    },
                                    .check =
                                        [&](const absl::Status& status, const InjectedFault& fault) {
                                          // As it is, or among the reasons why no step can be restored.
                                          EXPECT_TRUE(status.ok() || fault.IsNamedIn(status)) << status;
                                          ASSERT_NO_FATAL_FAILURE(ExpectSteps(*checkpointer_, {{1, {1}}, {2, {2}}}));
                                          EXPECT_THAT(checkpointer_->Close(), IsOk());
                                          checkpointer_.reset();
                                        }},
                                   FaultsToRun(1));
  EXPECT_GT(figures.sites, kSitesMin);
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark
