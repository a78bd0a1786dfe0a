// Workers that are killed at random moments while a trainer saves steps, takes in reports and deletes old steps: no
// step is left out, and none is counted twice.

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/retention/retention.h"
#include "storage/store/lease.h"
#include "tests/eval/worker_process.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::IsEmpty;

constexpr int kKills = 100;
constexpr size_t kWorkers = 2;  // of the same name

class WorkerKillTest : public testing::Test {
 protected:
  void SetUp() override {
    store_ = storage::OpenSoundStore(path_, &warnings_);
    ASSERT_NE(store_, nullptr);
  }
  void CommitNext() {
    ++last_step_;
    storage::CommitStep(*store_, last_step_, 1000 + last_step_);
  }
  void TakeInReports() {
    const auto news = store_->Look();
    ASSERT_THAT(news, IsOk());
    for (const storage::Fact& fact : *news) reports_ += std::holds_alternative<storage::EvaluationFact>(fact) ? 1 : 0;
  }
  // Lets all but the latest go that are evaluated.
  void ApplyRetention() {
    const RetentionOptions rules{.max_to_keep = 1, .keep_unevaluated_until = {{.evaluator = "validation"}}};
    auto deleted = storage::Retention(storage::PosixFileSystem(), *store_, rules, [](std::string_view line) {
                     std::cout << line << "\n";
                   }).Apply(nullptr);
    ASSERT_THAT(deleted, IsOk());
    deleted_ += static_cast<int64_t>(deleted->size());
  }
  std::vector<std::string> Names(const std::string& folder) const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(folder)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
    return names;
  }

  storage::TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  std::string warnings_;
  std::unique_ptr<storage::Store> store_;
  int64_t last_step_ = 0;
  int64_t deleted_ = 0;
  int64_t reports_ = 0;  // those that said something new, as the trainer counts them
};

TEST_F(WorkerKillTest, EveryStepIsEvaluatedAndCountedOnce) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };

  std::vector<std::unique_ptr<WorkerProcess>> workers(kWorkers);
  int while_evaluating = 0;
  int early = 0;
  for (int kills = 0; kills < kKills; ++kills) {
    for (auto& worker : workers) {
      if (worker == nullptr) worker = std::make_unique<WorkerProcess>(std::vector<std::string>{path_, "validation"});
    }
    for (int steps = up_to(2); steps > 0; --steps) CommitNext();
    if (up_to(3) == 0) TakeInReports();
    if (up_to(3) == 0) ApplyRetention();
    auto& victim = workers[static_cast<size_t>(up_to(kWorkers - 1))];
    if (kills % 10 < 2) {
      // Between evaluation and report, or behind a report, however long a worker takes to begin: nobody else is there
      // to take the step.
      for (auto& worker : workers) {
        if (worker != victim) worker.reset();
      }
      while (victim->Next(0)) continue;
      CommitNext();
      const char wanted = kills % 10 == 0 ? 'e' : 'r';
      for (char did = 0; did != wanted;) {
        const std::optional<char> next = victim->Next(60'000);
        ASSERT_TRUE(next) << "it hangs";
        did = *next;
      }
    } else {
      // A moment: after so many of its doings, or none in a tenth of a second, and a little later.
      for (int doings = up_to(4); doings > 0 && victim->Next(100); --doings) continue;
      if (up_to(1) == 0) victim->Next(up_to(10));
    }
    const int how = victim->End(SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(how)) << "it had ended by itself: " << how;
    while (victim->Next(0)) continue;
    if (victim->last() == 'e') ++while_evaluating;
    if (victim->last() == 0) ++early;
    victim.reset();
  }
  workers.clear();
  std::cout << kKills << " kills, " << while_evaluating << " of them between evaluation and report, " << early
            << " before the first; " << last_step_ << " steps\n";
  EXPECT_GT(while_evaluating, 0) << "else little is tested";
  EXPECT_GT(deleted_, 0) << "beside the workers";

  CommitNext();
  for (auto& worker : workers = std::vector<std::unique_ptr<WorkerProcess>>(kWorkers)) {
    worker = std::make_unique<WorkerProcess>(std::vector<std::string>{path_, "validation", std::to_string(last_step_)});
  }
  for (auto& worker : workers) EXPECT_EQ(worker->End(0), 0);
  TakeInReports();

  int64_t rows = 0;
  for (int64_t step = 1; step <= last_step_; ++step) {
    auto record = store_->catalog().Find(step);
    ASSERT_TRUE(record.ok() && record->has_value()) << step;
    for (const Evaluation& row : (*record)->info.evaluations) {
      ++rows;
      EXPECT_EQ(row.evaluator, "validation");
      EXPECT_EQ(row.outcome, Evaluation::Outcome::kDone) << row.reason;
      EXPECT_EQ(row.metrics, (Metrics{{"double", static_cast<double>(2 * (1000 + step))}}));
    }
    EXPECT_EQ((*record)->info.evaluations.size(), 1u) << "step " << step;
  }
  EXPECT_EQ(rows, last_step_);
  EXPECT_EQ(reports_, last_step_) << "a step was counted twice";
  // A worker that was killed before it had written its lease's note leaves an empty one, which counts as held for some
  // seconds from the first look at it.
  absl::Time now = storage::MonotonicNow();
  storage::LeaseObserver leases(storage::PosixFileSystem(), store_->layout(), storage::ThisMachine(),
                                [&now] { return now; });
  ASSERT_THAT(leases.Live(), IsOk());
  now += absl::Minutes(1);
  auto live = leases.Live();
  ASSERT_THAT(live, IsOk());
  EXPECT_THAT(live->size(), 0u);
  EXPECT_THAT(Names(path_ + "/leases"), IsEmpty());
  EXPECT_THAT(Names(path_ + "/quarantine"), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(WorkerKillTest, ASignalEndsAWorkerThatWaitsAtOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    CommitNext();
    WorkerProcess worker({path_, "validation"});
    ASSERT_EQ(worker.Next(60'000), 'e');
    ASSERT_EQ(worker.Next(60'000), 'r');
    EXPECT_EQ(worker.End(signal), 0) << signal;
  }
}

}  // namespace
}  // namespace tidemark
