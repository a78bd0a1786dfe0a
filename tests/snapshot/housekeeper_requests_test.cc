// What people ask of a store that a trainer holds.

#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/request_inbox.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/housekeeper_testing.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::StoreRequest;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class HousekeeperRequestsTest : public HousekeeperTest {
 protected:
  // The path of the request's file.
  std::string Ask(const AsyncCheckpointer& checkpointer, StoreRequest::Kind kind, int64_t step) {
    const storage::MetricReport place = ReportOn(checkpointer, step);
    const StoreRequest request{.kind = kind,
                               .store = place.store,
                               .step = step,
                               .attempt = place.attempt,
                               .text = "asked for",
                               .asker = "pid 7 on node-3",
                               .asked = absl::FromUnixSeconds(1'700'000'000 + ++asked_)};
    const auto path = storage::DeliverRequest(storage::PosixFileSystem(), storage::StoreLayout(store_), request);
    EXPECT_THAT(path, IsOk());
    return path.value_or("");
  }

  int64_t asked_ = 0;
};

TEST_F(HousekeeperRequestsTest, CarriesOutWhatIsAskedAndTellsWhatItDeleted) {
  Lines lines;
  auto checkpointer = Open({}, {.deleted = [&](int64_t step, std::string_view why) {
                             lines.Add(std::to_string(step) + ": " + std::string(why));
                           }});
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  Ask(*checkpointer, StoreRequest::Kind::kPin, 1);
  Ask(*checkpointer, StoreRequest::Kind::kDelete, 2);
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_TRUE(Info(*checkpointer, 1).pinned);
  EXPECT_EQ(Info(*checkpointer, 1).pin_note, "asked for");
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 3));
  EXPECT_THAT(lines.Get(), ElementsAre("2: asked for"));
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 1u);
  EXPECT_EQ(ShardPath(store_, 2), "") << "its files go in the same round";
  EXPECT_TRUE(std::filesystem::is_empty(store_ + "/inbox"));
}

// Nobody calls it: the thread looks for itself.
TEST_F(HousekeeperRequestsTest, LooksIntoTheInboxInEveryInterval) {
  absl::Notification deleted;
  auto checkpointer = Open({.tuning = {.inbox_poll_interval = absl::Milliseconds(5)}},
                           {.deleted = [&](int64_t, std::string_view) { deleted.Notify(); }});
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  Ask(*checkpointer, StoreRequest::Kind::kDelete, 1);
  deleted.WaitForNotification();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

TEST_F(HousekeeperRequestsTest, WarnsOnceOfWhatItRefuses) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  Ask(*checkpointer, StoreRequest::Kind::kDelete, 2);
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(warnings_.Count("refused to delete step 2, requested by pid 7 on node-3: latest"), 1);
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
}

TEST_F(HousekeeperRequestsTest, LetsRetentionGoOnOnceAStepIsUnpinned) {
  auto checkpointer = Open({.retention = {.max_to_keep = 1}});
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Pin(1, ""), IsOk());
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(1, 2));
  Ask(*checkpointer, StoreRequest::Kind::kUnpin, 1);
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
}

TEST_F(HousekeeperRequestsTest, TriesAgainWhatTheDiskKeptFromBeingDone) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  Ask(*checkpointer, StoreRequest::Kind::kPin, 1);
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return call.operation == "Create" && call.path.find("/pin.json") != std::string::npos
               ? absl::ResourceExhaustedError("No space left on device (ENOSPC)")
               : absl::OkStatus();
  });
  EXPECT_THAT(checkpointer->Tidy(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_FALSE(Info(*checkpointer, 1).pinned);
  EXPECT_EQ(warnings_.Count("requests cannot be carried out, which is tried again until it works"), 1);
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_TRUE(Info(*checkpointer, 1).pinned);
}

TEST_F(HousekeeperRequestsTest, TakesInTheLastOnesWhenItCloses) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  Ask(*checkpointer, StoreRequest::Kind::kDelete, 1);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  checkpointer = Open();
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(2));
  EXPECT_EQ(ShardPath(store_, 1), "");
}

// While a restore looks for a step, none goes; see Housekeeper::RetentionPause.
TEST_F(HousekeeperRequestsTest, DeletesNothingWhileAStepIsBeingRestored) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  const std::string path = Ask(*checkpointer, StoreRequest::Kind::kDelete, 1);
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
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kCommitted);
  go_on.Notify();
  restore.join();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tidemark
