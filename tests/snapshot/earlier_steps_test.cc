// Steps that retention keeps until an evaluator has said something of them, and that were committed before it was
// there.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/store/store.h"
#include "tests/snapshot/evaluator_testing.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/storage/io/copy_in_use.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EarlierStepsTest : public HousekeeperTest {
 protected:
  static RetentionOptions Awaiting(int64_t every_steps = 1) {
    return {.max_to_keep = 1, .keep_unevaluated_until = {{.evaluator = "validation", .every_steps = every_steps}}};
  }

  // The store as a kill leaves it of a process that has committed these steps, while its evaluator was at the first one
  // and others waited.
  void KillWhileEvaluating(const std::vector<int64_t>& steps, const RetentionOptions& retention) {
    auto killed = Open({.staging_bytes_max = 1 << 20, .retention = retention});
    Gate gate;
    ASSERT_THAT(killed->AddEvaluator({.name = "validation", .max_pending = 9, .when_lagging = WhenLagging::kBlock},
                                     gate.function()),
                IsOk());
    for (int64_t step : steps) ASSERT_THAT(SaveStep(*killed, step), IsOk());
    gate.AwaitCalls(1);
    ASSERT_THAT(killed->Tidy(), IsOk());  // from now on its steps stay as they are
    const std::string image = directory_ / "image";
    ASSERT_NO_FATAL_FAILURE(storage::CopyInUse(store_, image));
    gate.LetThrough(9);
    ASSERT_THAT(killed->Close(), IsOk());
    std::filesystem::remove_all(store_);
    std::filesystem::rename(image, store_);
  }

  // "evaluator outcome: reason" of the step's rows.
  std::vector<std::string> Rows(const AsyncCheckpointer& checkpointer, int64_t step) {
    std::vector<std::string> rows;
    for (const Evaluation& row : Info(checkpointer, step).evaluations) {
      rows.push_back(fmt::format("{} {}{}{}", row.evaluator, OutcomeName(row.outcome), row.reason.empty() ? "" : ": ",
                                 row.reason));
    }
    return rows;
  }

  static EvaluatorFunction Left(const std::shared_ptr<Gate>& gate) {
    return [gate](const Snapshot& snapshot) { return (*gate)(snapshot); };
  }

  static constexpr const char* kSkipped = "validation skipped: the process ended before it was evaluated";
};

TEST_F(EarlierStepsTest, OfAKilledProcessAreSkippedWhenTheEvaluatorIsThereAgainSoThatRetentionGoesOn) {
  KillWhileEvaluating({1, 2, 3}, Awaiting());
  for (WhenLagging policy : {WhenLagging::kLatest, WhenLagging::kBlock, WhenLagging::kSkip}) {
    SCOPED_TRACE(static_cast<int>(policy));
    const std::string image = directory_ / "again";
    std::filesystem::copy(store_, image, std::filesystem::copy_options::recursive);
    auto checkpointer = Open({.retention = Awaiting()});
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 3)) << "they are awaited";
    Gate gate;
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = policy}, gate.function()), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
    EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(3));
    for (int64_t step : {1, 2, 3}) EXPECT_THAT(Rows(*checkpointer, step), ElementsAre(kSkipped)) << step;
    EXPECT_THAT(gate.seen(), IsEmpty());
    EXPECT_EQ(checkpointer->statistics().skipped.at("evaluator validation: the process ended before it was evaluated"),
              3u);
    ASSERT_THAT(checkpointer->Close(), IsOk());
    std::filesystem::remove_all(store_);
    std::filesystem::rename(image, store_);
  }
}

TEST_F(EarlierStepsTest, OfAKilledProcessAreEvaluatedFromTheStoreByAQueueThatDropsNothing) {
  KillWhileEvaluating({1, 2}, Awaiting());
  auto checkpointer = Open({.retention = Awaiting()});
  Gate gate;
  std::vector<int64_t> epochs;
  const auto function = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    epochs.push_back(*reinterpret_cast<const int64_t*>(snapshot.bytes(*snapshot.Find("epoch")).data()));
    return gate(snapshot);
  };
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, function),
              IsOk());
  gate.AwaitCalls(1);
  ASSERT_THAT(SaveStep(*checkpointer, 3), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 3)) << "none is evaluated yet";
  gate.LetThrough(9);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(gate.seen(), ElementsAre(1, 2, 3));
  EXPECT_THAT(epochs, ElementsAre(1, 2, 3));
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(3));
  for (int64_t step : {1, 2, 3}) {
    EXPECT_THAT(Rows(*checkpointer, step), ElementsAre("validation done"));
    EXPECT_EQ(Info(*checkpointer, step).metrics.at("validation/step"), static_cast<double>(step));
  }
}

// A scheduler has asked the process to end, and there was no time for all of them.
TEST_F(EarlierStepsTest, OfAProcessThatRanOutOfTimeAreEvaluatedByAQueueToo) {
  const auto gate = std::make_shared<Gate>();  // the thread that is left in it has it, too
  {
    auto hurried = Open({.retention = Awaiting(), .close_timeout = absl::Milliseconds(1)});
    ASSERT_THAT(hurried->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, Left(gate)), IsOk());
    for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*hurried, step), IsOk());
    gate->AwaitCalls(1);
    ASSERT_THAT(hurried->WaitUntilCommitted(), IsOk());
  }
  EXPECT_EQ(warnings_.Count("has not read 2 steps from 2 on"), 1) << testing::PrintToString(warnings_.Get());
  auto checkpointer = Open({.retention = Awaiting()});
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2, 3));
  for (int64_t step : {1, 2, 3}) EXPECT_THAT(Rows(*checkpointer, step), IsEmpty()) << step;
  Gate again;
  again.LetThrough(9);
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, again.function()),
              IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(again.seen(), ElementsAre(1, 2, 3));
  gate->LetThrough(9);
}

// A monitor that lags behind has called the first step healthy, and nobody knows of the others yet. That another
// evaluator is left without its last snapshot is recorded at the end.
TEST_F(EarlierStepsTest, OfAProcessThatRanOutOfTimeTakeNoHealthyOnesPlace) {
  const auto gate = std::make_shared<Gate>();  // the thread that is left in it has it, too
  const auto other = std::make_shared<Gate>();
  {
    auto hurried = Open({.retention = RetentionOptions::MaxToKeep(1), .close_timeout = absl::Milliseconds(1)});
    ASSERT_THAT(hurried->AddEvaluator({.name = "monitor", .when_lagging = WhenLagging::kQueue}, Left(gate)), IsOk());
    ASSERT_THAT(hurried->AddEvaluator({.name = "other", .every_steps = 4}, Left(other)), IsOk());
    gate->LetThrough(1);
    for (int64_t step : {1, 2, 3, 4}) ASSERT_THAT(SaveStep(*hurried, step), IsOk());
    gate->AwaitCalls(2);
    other->AwaitCalls(1);
    ASSERT_THAT(SaveStep(*hurried, 8), IsOk());
    ASSERT_THAT(hurried->Tidy(), IsOk());
    EXPECT_THAT(CommittedSteps(*hurried), testing::Contains(1));
  }
  auto checkpointer = Open({.retention = RetentionOptions::MaxToKeep(1)});
  EXPECT_THAT(CommittedSteps(*checkpointer), testing::Contains(1));
  EXPECT_THAT(Rows(*checkpointer, 1), ElementsAre("monitor done"));
  EXPECT_THAT(Rows(*checkpointer, 8), ElementsAre("other skipped: the checkpointer was closed"));
  gate->LetThrough(9);
  other->LetThrough(9);
}

TEST_F(EarlierStepsTest, OnWhichItFailedAreEvaluatedAgainByAQueueAndByNoOther) {
  const auto fail = [](const Snapshot&) -> absl::StatusOr<Verdict> { return absl::InternalError("no memory"); };
  {
    auto checkpointer = Open({.retention = Awaiting()});
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation"}, fail), IsOk());
    ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
    ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  }
  const auto succeed = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict(); };
  {
    auto checkpointer = Open({.retention = Awaiting()});
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation"}, succeed), IsOk());
    ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
    EXPECT_EQ(Info(*checkpointer, 1).evaluations.at(0).outcome, Evaluation::Outcome::kFailed);
  }
  auto checkpointer = Open({.retention = Awaiting()});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, succeed), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(Rows(*checkpointer, 1), ElementsAre("validation done"));
}

TEST_F(EarlierStepsTest, ThatAreReplacedBeforeTheQueueComesToThemGetOneRowOfTheNewAttempt) {
  KillWhileEvaluating({1, 2}, Awaiting());
  auto checkpointer = Open({.retention = Awaiting()});
  Gate gate;
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, gate.function()),
              IsOk());
  gate.AwaitCalls(1);
  trainer_.SetTo(2);
  auto save = checkpointer->Save(2, trainer_.state, {.overwrite = true});
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  gate.LetThrough(9);
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(gate.seen(), ElementsAre(1, 2, 2));
  EXPECT_THAT(Rows(*checkpointer, 2), ElementsAre("validation done"));
  EXPECT_EQ(warnings_.Count("the result of evaluator 'validation' for step 2 is dropped: step 2 has been saved again"),
            1);
}

TEST_F(EarlierStepsTest, GetNoRowWhereTheyAreNotAwaitedNotDueOrHaveOne) {
  KillWhileEvaluating({1, 2, 3, 4, 6}, Awaiting(/*every_steps=*/2));
  auto checkpointer = Open({.retention = Awaiting(/*every_steps=*/2)});
  ASSERT_THAT(checkpointer->ReportMetrics(6, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "other"}, [](auto&) { return Verdict(); }), IsOk());
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .every_steps = 4}, [](auto&) { return Verdict(); }),
              IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(Rows(*checkpointer, 2), IsEmpty()) << "this evaluator would not have been asked";
  EXPECT_THAT(Rows(*checkpointer, 4), ElementsAre(kSkipped));
  EXPECT_THAT(Rows(*checkpointer, 6), ElementsAre("validation done"));
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2, 6));
}

TEST_F(EarlierStepsTest, OfThisProcessAreSkippedWhereTheyWereSavedBeforeTheEvaluatorWasThere) {
  auto checkpointer = Open({.retention = Awaiting()});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Save(2, trainer_.state), IsOk());  // in flight, or committed by now
  Gate gate;
  gate.LetThrough(9);
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation"}, gate.function()), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 3), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  for (int64_t step : {1, 2}) {
    EXPECT_THAT(Rows(*checkpointer, step),
                ElementsAre("validation skipped: it was saved before the evaluator was added"));
  }
  EXPECT_THAT(gate.seen(), ElementsAre(3));
  EXPECT_THAT(Rows(*checkpointer, 3), ElementsAre("validation done"));
}

TEST_F(EarlierStepsTest, KeepWhatHasBeenReportedOfThemBeforeTheirRowIsRecorded) {
  KillWhileEvaluating({1, 2}, Awaiting());
  auto store = storage::Store::Open(files_, {.directory = store_, .warn = [](std::string_view) {}});
  ASSERT_THAT(store, IsOk());
  const Listeners listeners(nullptr);
  StatisticsCollector statistics;
  auto keeper = Housekeeper::Start({.files = files_,
                                    .store = **store,
                                    .listeners = listeners,
                                    .statistics = statistics,
                                    .read_statistics = [&] { return statistics.Get(); },
                                    .claims = [] { return storage::Claims(); }},
                                   {.retention = {}, .poll_interval = absl::InfiniteDuration()});
  ASSERT_THAT(keeper, IsOk());
  const auto find = [&](int64_t step) { return (*(*store)->catalog().Find(step))->info; };
  Evaluation reported;
  reported.evaluator = "validation";
  Evaluation skipped = reported;
  skipped.outcome = Evaluation::Outcome::kSkipped;
  const std::shared_ptr<const PendingSave> first = (*keeper)->PendingSaveOf(find(1));
  ASSERT_THAT((*keeper)->ReportMetrics(1, reported).Wait(), IsOk());
  (*keeper)->Evaluated(*first, skipped);
  FillDisk();
  (*keeper)->Evaluated(*(*keeper)->PendingSaveOf(find(2)), skipped);
  EXPECT_THAT((*keeper)->Flush(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("No space")));
  files_.Reset();
  ASSERT_THAT((*keeper)->Flush(), IsOk());
  EXPECT_EQ(find(1).evaluations.at(0).outcome, Evaluation::Outcome::kDone);
  EXPECT_EQ(find(2).evaluations.at(0).outcome, Evaluation::Outcome::kSkipped);
  EXPECT_EQ(statistics.Get().reports_recorded, 2u) << "what could not be written at first is, and counts";
  ASSERT_THAT((*keeper)->ReportMetrics(2, reported).Wait(), IsOk());
  EXPECT_EQ(find(2).evaluations.at(0).outcome, Evaluation::Outcome::kDone) << "the other way round it counts";
}

TEST_F(EarlierStepsTest, GetNoRowOfAnEvaluatorThatIsRefused) {
  KillWhileEvaluating({1}, Awaiting());
  auto checkpointer = Open({.retention = Awaiting()});
  EXPECT_THAT(checkpointer->AddEvaluator({.name = "validation", .every_steps = 0}, [](auto&) { return Verdict(); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("every_steps is 0")));
  EXPECT_THAT(checkpointer->AddEvaluator({.name = "validation"}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no function")));
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(Rows(*checkpointer, 1), IsEmpty());
}

}  // namespace
}  // namespace tidemark
