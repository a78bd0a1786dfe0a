// What a StoreFollower waits for, and how long.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "eval/store_follower.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/eval/following_store.h"
#include "tests/snapshot/journal_calls.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using End = WorkerReport::End;

class StoreFollowerWaitingTest : public FollowingStore {};

TEST_F(StoreFollowerWaitingTest, WaitsForTheStoreAndItsSteps) {
  options_.idle_timeout = absl::Seconds(10);
  on_wait_ = [&](size_t count) {
    if (count == 3) OpenStore();
    if (count == 5) CommitStep(10);
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 15u) << "five, and ten seconds after the step";
  EXPECT_EQ(waits_[0], absl::Seconds(1));
}

TEST_F(StoreFollowerWaitingTest, LooksAgainWhereALinkWasTurnedWhileItLooked) {
  OpenStore();
  CommitStep(10);
  std::filesystem::create_directory_symlink(directory_ / "store", directory_ / "link");
  options_.until_step = 10;
  bool first = true;
  locate_ = [&] { return std::exchange(first, false) ? directory_ / "link" : options_.directory; };
  options_.idle_timeout = absl::Seconds(10);
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 1u);
}

TEST_F(StoreFollowerWaitingTest, EndsAtALinkThatStaysWhereNoneMayBe) {
  OpenStore();
  std::filesystem::create_directory_symlink(directory_ / "store", directory_ / "link");
  locate_ = [&] { return directory_ / "link"; };
  EXPECT_THAT(Run(), storage::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
}

TEST_F(StoreFollowerWaitingTest, EndsAtOnceWhereThereIsNoStoreAndNoTimeToWait) {
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_THAT(waits_, IsEmpty());
}

TEST_F(StoreFollowerWaitingTest, DoesNotWaitLongerThanItMayBeIdle) {
  OpenStore();
  options_.poll_interval = absl::Seconds(4);
  options_.idle_timeout = absl::Seconds(10);
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(waits_, ElementsAre(absl::Seconds(4), absl::Seconds(4), absl::Seconds(2)));
}

TEST_F(StoreFollowerWaitingTest, EvaluatesAStepWhoseFilesAreSeenLate) {
  OpenStore();
  const std::string folder = store_->layout().attempt(10, CommitStep(10).attempt);
  CommitStep(20);
  std::filesystem::rename(folder, directory_ / "hidden");
  options_.until_step = 20;
  on_wait_ = [&](size_t count) {
    if (count == 5) std::filesystem::rename(directory_ / "hidden", folder);
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_THAT(asked_, ElementsAre(20, 10));
  EXPECT_EQ(waits_.size(), 7u) << "it is looked for after 1, 3 and 7 seconds";
  EXPECT_THAT(warnings_, AllOf(HasSubstr("step 10 is tried again later"), HasSubstr(folder)));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
}

TEST_F(StoreFollowerWaitingTest, PassesOverAStepWhoseFilesStayGone) {
  OpenStore();
  const storage::ShardIdentity identity = CommitStep(10);
  CommitStep(20);
  std::filesystem::remove_all(store_->layout().attempt(10, identity.attempt));
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_THAT(asked_, ElementsAre(20));
  EXPECT_EQ(waits_.size(), 63u);
  EXPECT_THAT(warnings_, HasSubstr("step 10 is skipped after 7 tries"));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 2) << warnings_;
}

TEST_F(StoreFollowerWaitingTest, PrintsNoControlCharacters) {
  options_.directory = directory_ / "st\x1b[2J\nore";
  OpenStore();
  std::filesystem::remove_all(store_->layout().attempt(10, CommitStep(10).attempt));
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("/st\\x1b[2J\\nore/"));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 2) << warnings_;
  options_.observer = nullptr;
  testing::internal::CaptureStderr();
  ASSERT_THAT(Run(), IsOk());
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, HasSubstr("tidemark: step 10 is skipped after 7 tries: "));
  EXPECT_THAT(printed, HasSubstr("/st\\x1b[2J\\nore/"));
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 2) << printed;
}

TEST_F(StoreFollowerWaitingTest, EndsWhereTheFilesOfTheLastStepStayGone) {
  OpenStore();
  CommitStep(10);
  std::filesystem::remove_all(store_->layout().attempt(20, CommitStep(20).attempt));
  options_.idle_timeout = absl::Seconds(100);
  options_.until_step = 20;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 63u);
}

TEST_F(StoreFollowerWaitingTest, PassesOverAStepThatIsCalledLostMeanwhile) {
  OpenStore();
  const storage::ShardIdentity identity = CommitStep(10);
  std::filesystem::remove_all(store_->layout().attempt(10, identity.attempt));
  on_wait_ = [&](size_t count) {
    if (count > 1) return;
    EXPECT_THAT(store_->MarkStep(10, storage::ToHex(identity.attempt.bytes), StepState::kLost, "by the test"), IsOk());
  };
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_EQ(waits_.size(), 1u);
  EXPECT_THAT(warnings_, Not(HasSubstr("passed over")));
}

TEST_F(StoreFollowerWaitingTest, LeavesAStepToItsHolderAndDoesItWhenThatDies) {
  OpenStore();
  const storage::ShardIdentity identity = CommitStep(10);
  CommitStep(20);
  std::unique_ptr<storage::Lease> lease = LeaseBySomebodyElse(identity);
  on_wait_ = [&](size_t count) {
    if (count == 3) lease.reset();
  };
  auto report = Run();  // it may not be idle at all, but it is not
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(asked_, ElementsAre(20, 10));
  EXPECT_EQ(waits_.size(), 3u);
}

TEST_F(StoreFollowerWaitingTest, LeavesAStepToWhoeverHasDoneItMeanwhile) {
  OpenStore();
  const storage::ShardIdentity identity = CommitStep(10);
  std::unique_ptr<storage::Lease> lease = LeaseBySomebodyElse(identity);
  on_wait_ = [&](size_t) {
    if (lease == nullptr) return;
    EXPECT_THAT(ReportBySomebodyElse(10, {.worker = "another"}), IsOk());
    lease.reset();
  };
  options_.until_step = 10;
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kUntilStep);
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_EQ(RowOf(10).worker, "another");
}

// It has fewer entries than the one that the worker had read, and the worker's report goes into it.
TEST_F(StoreFollowerWaitingTest, TakesUpAJournalThatIsMadeAnew) {
  OpenStore();
  for (int i = 0; i < 10; ++i) ASSERT_THAT(store_->RecordUnsaved({.step = 100 + i, .state = StepState::kUnsaved}), IsOk());
  CommitStep(10);
  options_.idle_timeout = absl::Seconds(6);
  on_wait_ = [&](size_t count) {
    if (count == 1) {
      RowOf(10);  // so the index has it
      store_.reset();
    }
    if (count == 2) std::filesystem::remove_all(options_.directory + "/journal");
    if (count == 4) {
      EXPECT_THAT(storage::OpenStore(options_.directory, &store_warnings_), IsOk());
      EXPECT_THAT(store_warnings_, HasSubstr("made anew from the index"));
      OpenStore();
      CommitStep(20);
    }
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10, 20));
  EXPECT_EQ(RowOf(20).metrics.at("value"), 120);
  EXPECT_EQ(RowOf(10).metrics.at("value"), 110);
}

// The report is on its way when the journal is made anew.
TEST_F(StoreFollowerWaitingTest, ReportsIntoTheJournalThatWasMadeAnewWhileItEvaluated) {
  OpenStore();
  CommitStep(10);
  options_.until_step = 10;
  during_ = [&](int64_t) {
    store_.reset();
    std::filesystem::remove_all(options_.directory + "/journal");
    EXPECT_THAT(storage::OpenStore(options_.directory, &store_warnings_), IsOk());
    OpenStore();
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(RowOf(10).metrics.at("value"), 110);
}

// A rebuild is between its two renames when the report is to be appended.
TEST_F(StoreFollowerWaitingTest, DeliversItsReportWhenTheJournalIsBack) {
  OpenStore();
  CommitStep(10);
  options_.until_step = 10;
  const std::string journal = options_.directory + "/journal";
  during_ = [&](int64_t) { std::filesystem::rename(journal, directory_ / "away"); };
  on_wait_ = [&](size_t count) {
    if (count == 3) std::filesystem::rename(directory_ / "away", journal);
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 3u);
  EXPECT_EQ(RowOf(10).metrics.at("value"), 110);
}

TEST_F(StoreFollowerWaitingTest, DeliversItsReportToAJournalThatIsMadeAnewUnderItsAppend) {
  OpenStore();
  CommitStep(10);
  options_.until_step = 10;
  const std::string journal = options_.directory + "/journal";
  during_ = [&](int64_t) {
    store_.reset();
    files_.SetRule([&, done = false](const storage::FailingFileSystem::Call& call) mutable {
      if (call.operation != "Create" || !IsInJournal(call.path) || std::exchange(done, true)) return absl::OkStatus();
      std::filesystem::rename(journal, directory_ / "old");
      std::filesystem::copy(directory_ / "old", journal, std::filesystem::copy_options::recursive);
      return absl::OkStatus();
    });
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 1u);
  OpenStore();
  EXPECT_EQ(RowOf(10).metrics.at("value"), 110);
}

TEST_F(StoreFollowerWaitingTest, DoesNotWaitForeverToDeliverAReport) {
  OpenStore();
  CommitStep(10);
  during_ = [&](int64_t) { std::filesystem::rename(options_.directory + "/journal", directory_ / "away"); };
  EXPECT_THAT(Run(), storage::StatusIs(absl::StatusCode::kNotFound, HasSubstr("journal")));
  EXPECT_EQ(waits_.size(), 10u) << "seconds";
}

TEST_F(StoreFollowerWaitingTest, SaysOnceThatItWaitsForAnOldStoreToBeConverted) {
  OpenStore();
  CommitStep(10);
  store_.reset();
  for (const char* part : {"/journal", "/index"}) std::filesystem::remove_all(options_.directory + part);
  const std::string identity = options_.directory + "/store.json";
  std::string text;
  std::getline(std::ifstream(identity), text);
  text.at(text.find('2', text.find("\"format\""))) = '1';
  std::ofstream(identity) << text;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(waits_.size(), 10u) << "seconds";
  EXPECT_THAT(warnings_, AllOf(HasSubstr("older version of Tidemark wrote the store"), HasSubstr("repair --apply")));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
}

TEST_F(StoreFollowerWaitingTest, WaitsForAJournalThatIsAwayEvenWhereItMayNotBeIdle) {
  OpenStore();
  CommitStep(10);
  store_.reset();
  const std::string journal = options_.directory + "/journal";
  std::filesystem::rename(journal, directory_ / "away");
  on_wait_ = [&](size_t count) {
    if (count == 3) std::filesystem::rename(directory_ / "away", journal);
  };
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(asked_, ElementsAre(10));
  EXPECT_EQ(waits_.size(), 3u);
}

TEST_F(StoreFollowerWaitingTest, DoesNotWaitForeverForAJournal) {
  OpenStore();
  CommitStep(10);
  store_.reset();
  std::filesystem::remove_all(options_.directory + "/journal");
  auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, End::kIdle);
  EXPECT_EQ(waits_.size(), 10u) << "seconds";
}

}  // namespace
}  // namespace tidemark
