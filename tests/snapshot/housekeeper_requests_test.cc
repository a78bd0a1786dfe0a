// What people ask of a store that a trainer holds.

#include <atomic>
#include <string>
#include <string_view>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/housekeeper_testing.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

class HousekeeperRequestsTest : public HousekeeperTest {};

TEST_F(HousekeeperRequestsTest, CarriesOutWhatIsAskedAndTellsWhatItDeleted) {
  Lines lines;
  auto checkpointer = Open({}, {.deleted = [&](int64_t step, std::string_view why) {
                             lines.Add(std::to_string(step) + ": " + std::string(why));
                           }});
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(other_.Pin(1, "asked for"), IsOk());
  ASSERT_THAT(other_.AskToDelete(2, "asked for"), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_TRUE(Info(*checkpointer, 1).pinned);
  EXPECT_EQ(Info(*checkpointer, 1).pin_note, "asked for");
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 3));
  EXPECT_THAT(lines.Get(), ElementsAre("2: asked for"));
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 1u);
  EXPECT_EQ(ShardPath(store_, 2), "") << "its files go in the same round";
  EXPECT_EQ(other_.OpenRequests(), 0u);
}

// Nobody calls it: the thread looks for itself.
TEST_F(HousekeeperRequestsTest, LooksForRequestsInEveryInterval) {
  absl::Notification deleted;
  auto checkpointer = Open({.tuning = {.poll_interval = absl::Milliseconds(5)}},
                           {.deleted = [&](int64_t, std::string_view) { deleted.Notify(); }});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(other_.AskToDelete(1, "asked for"), IsOk());
  deleted.WaitForNotification();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

TEST_F(HousekeeperRequestsTest, WarnsOnceOfWhatItRefuses) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(other_.AskToDelete(2, "asked for"), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(warnings_.Count("refused to delete step 2, requested by pid 7 on node-3: latest"), 1)
      << testing::PrintToString(warnings_.Get());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
  EXPECT_EQ(other_.OpenRequests(), 0u) << "it is answered";
}

TEST_F(HousekeeperRequestsTest, LetsRetentionGoOnOnceAStepIsUnpinned) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Pin(1, ""), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
  ASSERT_THAT(other_.Unpin(1), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

// The same without a call that asks for everything: the thread finds out that there is something to delete.
TEST_F(HousekeeperRequestsTest, LetsRetentionGoOnWhenItHearsThatAStepIsUnpinned) {
  absl::Notification deleted;
  auto checkpointer = Open({.retention = {.max_to_keep = 1}, .tuning = {.poll_interval = absl::Milliseconds(5)}},
                           {.deleted = [&](int64_t, std::string_view) { deleted.Notify(); }});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Pin(1, ""), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(other_.Unpin(1), IsOk());
  deleted.WaitForNotification();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

TEST_F(HousekeeperRequestsTest, TriesAgainWhatTheDiskKeptFromBeingDone) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(other_.AskToDelete(1, "asked for"), IsOk());
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return IsNamingOfEntry(call.operation, call.path) ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kCommitted);
  EXPECT_EQ(other_.OpenRequests(), 1u);
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(other_.OpenRequests(), 0u);
}

// The deletion is recorded and its answer is not: the next look answers, and nothing is deleted twice.
TEST_F(HousekeeperRequestsTest, AnswersWhatItHasDoneWhenTheDiskTakesIt) {
  std::atomic<int> deleted = 0;
  auto checkpointer = Open({}, {.deleted = [&](int64_t, std::string_view) { ++deleted; }});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(other_.AskToDelete(1, "asked for"), IsOk());
  files_.SetRule([named = 0](const storage::FailingFileSystem::Call& call) mutable {
    // The first entry settles what the other process has appended, the second one deletes.
    return IsNamingOfEntry(call.operation, call.path) && ++named > 2 ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(other_.OpenRequests(), 1u);
  EXPECT_EQ(warnings_.Count("requests cannot be carried out, which is tried again until it works"), 1);
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(other_.OpenRequests(), 0u);
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 1u);
}

TEST_F(HousekeeperRequestsTest, AnswersAllOfARoundInOneEntry) {
  std::atomic<int> entries = 0;  // the rule below counts them until the checkpointer is closed
  auto checkpointer = Open();
  for (int64_t step = 1; step <= 9; ++step) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  for (int64_t step = 1; step <= 9; ++step) ASSERT_THAT(other_.AskToDelete(step, "asked for"), IsOk());
  files_.SetRule([&](const storage::FailingFileSystem::Call& call) {
    entries += IsNamingOfEntry(call.operation, call.path) ? 1 : 0;
    return absl::OkStatus();
  });
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(other_.OpenRequests(), 0u);
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(9)) << "it is the latest";
  EXPECT_EQ(entries, 3) << "the first settles the requests, the second one deletes";
}

TEST_F(HousekeeperRequestsTest, TakesInTheLastOnesWhenItCloses) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(other_.AskToDelete(1, "asked for"), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  checkpointer = Open();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
  EXPECT_EQ(ShardPath(store_, 1), "");
}

// While a restore looks for a step, none goes; see Housekeeper::RetentionPause.
TEST_F(HousekeeperRequestsTest, DeletesNothingWhileAStepIsBeingRestored) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(other_.AskToDelete(1, "asked for"), IsOk());
  absl::Notification reached;
  absl::Notification go_on;
  files_.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation != "OpenForRead" || !path.ends_with(".tmk") || reached.HasBeenNotified()) return;
    reached.Notify();
    go_on.WaitForNotification();
  });
  std::thread restore([&] { EXPECT_THAT(checkpointer->Restore(1, trainer_.state), IsOk()); });
  reached.WaitForNotification();
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_EQ(other_.OpenRequests(), 1u);
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kCommitted);
  go_on.Notify();
  restore.join();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(other_.OpenRequests(), 0u);
}

}  // namespace
}  // namespace tidemark
