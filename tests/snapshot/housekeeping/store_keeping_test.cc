// What the housekeeper does for the store itself: room for the next entries of the journal, segments, and the files of
// saves that earlier processes have not finished.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal_files.h"
#include "storage/journal/journal_spares.h"
#include "storage/store/lease.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/storage/store/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

class StoreKeepingTest : public HousekeeperTest {
 protected:
  StoreKeepingTest() : HousekeeperTest(/*in_memory=*/true) {}

  size_t Spares() const {
    const std::filesystem::recursive_directory_iterator all(store_ + "/journal");
    return static_cast<size_t>(std::count_if(begin(all), end(all), [](const auto& entry) {
      return entry.path().filename().string().starts_with(storage::kSparePrefix);
    }));
  }

  // A process that is killed before it commits this step leaves its attempt.
  storage::ShardIdentity LeaveUnfinishedSave(int64_t step) {
    std::string warnings;
    const auto store = storage::OpenSoundStore(store_, &warnings);
    return storage::WriteAttempt(*store, step, 1);
  }

  std::string FolderOf(const storage::ShardIdentity& identity) const {
    return storage::StoreLayout(store_).attempt(identity.step, identity.attempt);
  }
};

TEST_F(StoreKeepingTest, MakesSparesBehindASave) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_GE(Spares(), storage::kSparesMin);
  // Each save takes one, and the round behind it makes two, up to the most.
  for (int64_t step = 2; step <= 20; ++step) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
  }
  EXPECT_EQ(Spares(), storage::kSparesMax);
}

TEST_F(StoreKeepingTest, LeavesSparesToTheNextProcess) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_GE(Spares(), storage::kSparesMin);
}

// No file can be made, and none grows.
TEST_F(StoreKeepingTest, SoADeletionFindsRoomOnAFullDisk) {
  auto checkpointer = Open();
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  files_.SetRule([](const FailingFileSystem::Call& call) {
    const bool makes_file = call.operation == "Create" || call.operation == "CreateDirectory";
    return makes_file ? absl::ResourceExhaustedError("ENOSPC") : absl::OkStatus();
  });
  EXPECT_THAT(SaveStep(*checkpointer, 4), storage::StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  EXPECT_THAT(checkpointer->Delete(1, "to make room"), IsOk());
  ASSERT_THAT(other_.AskToDelete(2, "to make room"), IsOk());
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_THAT(CommittedSteps(*checkpointer), ElementsAre(3));
  EXPECT_EQ(ShardPath(store_, 1), "");
  EXPECT_EQ(ShardPath(store_, 2), "");
  files_.Reset();
  EXPECT_THAT(SaveStep(*checkpointer, 4), IsOk());
}

TEST_F(StoreKeepingTest, SaysOnceThatItCannotMakeSparesAndSavesAllTheSame) {
  auto checkpointer = Open();
  files_.SetRule([](const FailingFileSystem::Call& call) {
    const bool spare = call.operation == "Create" && call.path.find("/spare-") != std::string::npos;
    return spare ? absl::InternalError("EIO") : absl::OkStatus();
  });
  for (int64_t step : {1, 2}) {
    ASSERT_THAT(SaveStep(*checkpointer, step), IsOk());
    ASSERT_THAT(checkpointer->Tidy(), IsOk());
  }
  EXPECT_EQ(warnings_.Count("the journal cannot be maintained"), 1) << testing::PrintToString(warnings_.Get());
  EXPECT_EQ(Spares(), 0u);
  files_.Reset();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(Spares(), storage::kSparesMin);
}

TEST_F(StoreKeepingTest, PacksEntriesOnceASegmentIsFull) {
  auto checkpointer = Open();
  ASSERT_THAT(SaveStep(*checkpointer, 1), IsOk());
  {
    const auto journal = other_.Open();
    ASSERT_THAT(journal, IsOk());
    for (storage::EntryNumber i = 0; i <= storage::kSegmentEntries; ++i) {
      ASSERT_THAT((*journal)->Change([&](const storage::StepCatalog& catalog) {
        return storage::PinFacts(catalog, 1, std::to_string(i), std::nullopt);
      }),
                  IsOk());
    }
  }
  const std::string first = store_ + "/journal/0000/00/0000000001";
  ASSERT_EQ(std::filesystem::hard_link_count(first), 1u);
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_EQ(std::filesystem::hard_link_count(first), storage::kSegmentEntries);
  ASSERT_THAT(SaveStep(*checkpointer, 2), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  const auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->journal_problem(), IsOk());
  EXPECT_EQ((*reader)->FindStep(1)->pin_note, std::to_string(storage::kSegmentEntries));
  EXPECT_EQ((*reader)->LatestStep()->step, 2);
}

TEST_F(StoreKeepingTest, RemovesWhatEarlierProcessesLeftOfTheirSavesAndSaysSo) {
  const std::string left[] = {FolderOf(LeaveUnfinishedSave(7)), FolderOf(LeaveUnfinishedSave(8))};
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  for (const std::string& folder : left) EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  EXPECT_THAT(save_lines_.Get(),
              testing::UnorderedElementsAre("removed what an earlier process left of its unfinished save of step 7",
                                            "removed what an earlier process left of its unfinished save of step 8"));
  EXPECT_THAT(warnings_.Get(), IsEmpty());
}

TEST_F(StoreKeepingTest, DoesSoThoughNobodyAsks) {
  const std::string left = FolderOf(LeaveUnfinishedSave(7));
  absl::Notification removed;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation == "RemoveDirectory" && call.path == left && !removed.HasBeenNotified()) removed.Notify();
    return absl::OkStatus();
  });
  auto checkpointer = Open({.tuning = {.poll_interval = absl::Milliseconds(5)}});
  removed.WaitForNotification();
}

TEST_F(StoreKeepingTest, MakesNoCallerWaitWhoWaitsForReports) {
  const std::string left = FolderOf(LeaveUnfinishedSave(7));
  absl::Notification waited;
  bool timed_out = false;
  files_.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation != "RemoveDirectory" || path != left) return;
    timed_out = !waited.WaitForNotificationWithTimeout(absl::Seconds(20));
  });
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  waited.Notify();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_FALSE(timed_out);
  EXPECT_FALSE(std::filesystem::exists(left)) << "but Tidy waits for it";
}

TEST_F(StoreKeepingTest, SaysOnceWhatItLeavesThoughItHasToTryAgain) {
  const std::string left = FolderOf(LeaveUnfinishedSave(7));
  std::filesystem::create_directory(store_ + "/steps/stranger");
  files_.SetRule([](const FailingFileSystem::Call& call) {
    const bool leases = call.operation == "ListDirectory" && call.path.ends_with("/leases");
    return leases ? absl::InternalError("EIO") : absl::OkStatus();
  });
  auto checkpointer = Open();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(left));
  files_.Reset();
  EXPECT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(warnings_.Count("stranger is not an attempt"), 1) << testing::PrintToString(warnings_.Get());
  EXPECT_EQ(warnings_.Count("files of unfinished saves cannot be removed"), 1);
}

TEST_F(StoreKeepingTest, LeavesAnUnfinishedSaveThatIsLeased) {
  const storage::ShardIdentity left = LeaveUnfinishedSave(7);
  std::filesystem::create_directories(store_ + "/leases");
  std::ofstream(store_ + "/leases/" + storage::LeaseFileName(left.attempt, "validation")) << "{}";
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(FolderOf(left)));
}

TEST_F(StoreKeepingTest, LeavesItsOwnSaveThatIsInFlight) {
  auto checkpointer = Open({.staging = Staging::kOverlapped});
  GatedState state;
  absl::Notification made;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation == "Create" && call.path.ends_with(".tmk")) made.Notify();
    return absl::OkStatus();
  });
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  made.WaitForNotification();
  ASSERT_THAT(checkpointer->Tidy(), IsOk());  // its first round
  state.gate.Notify();
  EXPECT_THAT(save->committed().Wait(), IsOk());
  state.late = 0;
  ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
  EXPECT_EQ(state.late, 7);
}

}  // namespace
}  // namespace tidemark
