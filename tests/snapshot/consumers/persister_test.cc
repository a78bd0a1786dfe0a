#include "snapshot/consumers/persister.h"

#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kHostBytes = 8 << 20;

// Eight MiB in host memory, and behind them a tensor that arrives when the test lets it.
class HalfGatedState final : public State {
 public:
  HalfGatedState() : host_(kHostBytes, std::byte{7}) {
    AddTensor("early", Dtype::kUint8, {kHostBytes}, host_.data());
    SetDerivedEntries({Entry{.spec = {.name = "late", .dtype = Dtype::kInt32}, .bytes = 4}});
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    gate.WaitForNotification();
    std::memcpy(requests[0].destination, &late, 4);
    return copy_status;
  }
  absl::Status Receive(size_t, std::span<const std::byte> bytes) override {
    std::memcpy(&late, bytes.data(), 4);
    return absl::OkStatus();
  }
  absl::Notification gate;
  absl::Status copy_status;
  int32_t late = 7;

 private:
  std::vector<std::byte> host_;
};

class PersisterTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = directory_ / "store";
    options.staging = Staging::kOverlapped;
    options.observer =
        ObserverOf({.warning = [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }});
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  // From now on the first block that goes to the disk opens `written`.
  void NotifyOfTheFirstWrite(absl::Notification& written) {
    files_.SetRule([&written](const storage::FailingFileSystem::Call& call) {
      if (call.operation == "QueueWrite" && !written.HasBeenNotified()) written.Notify();
      return absl::OkStatus();
    });
  }

  static absl::Status SaveStep(AsyncCheckpointer& checkpointer, int64_t step, State& state) {
    auto save = checkpointer.Save(step, state);
    return save.ok() ? save->committed().Wait() : absl::Status(save.status());
  }

  // From now on what is written whole is not committed.
  void RefuseCommits() {
    files_.SetRule([this](const storage::FailingFileSystem::Call& call) {
      return call.operation == "SyncDirectory" && call.path == directory_ / "store/steps"
                 ? absl::ResourceExhaustedError("disk full")
                 : absl::OkStatus();
    });
  }

  storage::TestDirectory directory_;
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  std::string warnings_;
};

TEST_F(PersisterTest, WritesWhatIsThereWhileTheRestIsStaged) {
  HalfGatedState state;
  auto checkpointer = Open({.compression = Compression::kNone});
  absl::Notification written;
  NotifyOfTheFirstWrite(written);
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  written.WaitForNotification();
  EXPECT_FALSE(save->staged().ready());
  EXPECT_FALSE(save->committed().ready());
  EXPECT_THAT(checkpointer->WaitUntilStaged("early"), IsOk());  // while "late" is still to come
  state.gate.Notify();
  EXPECT_THAT(checkpointer->WaitUntilStaged("late"), IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  state.late = 0;
  ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
  EXPECT_EQ(state.late, 7);
}

// Saves two steps with kAuto. Nothing of the second one is written until `meanwhile` returns. Only `meanwhile` waits
// for a commit.
class AutoCompressionTest : public PersisterTest {
 protected:
  // The stored bytes of the second step ÷ its bytes.
  double Save(absl::Duration interval, uint64_t snapshots,
              const std::function<void(AsyncCheckpointer&, const SaveHandle&)>& meanwhile) {
    const std::string store = directory_ / "store";
    std::filesystem::remove_all(store);
    std::vector<float> weights(1 << 20);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + static_cast<float>(i % 1000) / 4096;
    state_ = std::make_unique<State>();
    state_->AddTensor("weights", Dtype::kFloat32, {1 << 20}, weights.data());
    auto checkpointer = Open({.staging_bytes_max = snapshots * weights.size() * sizeof(float),
                              .when_full = WhenFull::kSkip,
                              .compression = Compression::kAuto,
                              .reuse = false});
    auto first = checkpointer->Save(1, *state_, {.staging = Staging::kBlocking});
    EXPECT_THAT(first, IsOk());
    Poll(*first);
    absl::SleepFor(interval);
    absl::Notification goes_on;
    files_.SetRule([&](const storage::FailingFileSystem::Call& call) {
      if (call.operation == "Create" || call.operation == "OpenForRewrite") goes_on.WaitForNotification();
      return absl::OkStatus();
    });
    auto second = checkpointer->Save(2, *state_, {.staging = Staging::kBlocking});
    EXPECT_THAT(second, IsOk());
    if (meanwhile) meanwhile(*checkpointer, *second);
    goes_on.Notify();
    Poll(*second);
    EXPECT_THAT(checkpointer->Close(), IsOk());
    files_.SetRule(nullptr);
    const auto reader = StoreReader::Open(store);
    EXPECT_THAT(reader, IsOk());
    std::vector<double> shares;
    for (const StepInfo& step : (*reader)->Steps()) {
      if (step.step <= 2) shares.push_back(static_cast<double>(step.stored_bytes) / (4 << 20));
    }
    EXPECT_EQ(shares.size(), 2u);
    EXPECT_GT(shares.front(), 0.99) << "nothing is known of the disk, nor of the next save";
    return shares.back();
  }

  static void Poll(const SaveHandle& save) {
    while (!save.committed().ready()) absl::SleepFor(absl::Milliseconds(1));
  }

  static constexpr double kCompressed = 0.7;
  std::unique_ptr<State> state_;
};

// On a busy machine a short time may pass before the first chunk is taken.
TEST_F(AutoCompressionTest, CompressesEverythingWhereThereIsTime) {
  double share = 1;
  for (int seconds = 1; seconds <= 16 && share > kCompressed; seconds *= 4) {
    share = Save(absl::Seconds(seconds), 1, nullptr);
  }
  EXPECT_LT(share, kCompressed);
}

TEST_F(AutoCompressionTest, LeavesOffWhereTheTrainerWaitsForTheCommit) {
  const auto share = Save(absl::Seconds(2), 1, [](AsyncCheckpointer&, const SaveHandle& save) {
    EXPECT_THAT(save.committed().WaitUntil(absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not ready")));
  });
  EXPECT_GT(share, kCompressed);
}

TEST_F(AutoCompressionTest, LeavesOffWhereTheTrainerWaitsForALaterCommit) {
  const auto share = Save(absl::Seconds(2), 2, [&](AsyncCheckpointer& checkpointer, const SaveHandle&) {
    const auto third = checkpointer.Save(3, *state_, {.staging = Staging::kBlocking});
    ASSERT_THAT(third, IsOk());
    EXPECT_FALSE(third->skipped());
    EXPECT_THAT(third->committed().WaitUntil(absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not ready")));
  });
  EXPECT_GT(share, kCompressed);
}

TEST_F(AutoCompressionTest, LeavesOffWhereTheTrainerWaitsForAllThatIsBehindASave) {
  const auto share = Save(absl::Seconds(2), 1, [](AsyncCheckpointer& checkpointer, const SaveHandle&) {
    EXPECT_THAT(checkpointer.WaitUntilEvaluated(absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still running")));
  });
  EXPECT_GT(share, kCompressed);
}

TEST_F(AutoCompressionTest, LeavesOffAtTheEnd) {
  const auto share = Save(absl::Seconds(2), 1, [](AsyncCheckpointer& checkpointer, const SaveHandle&) {
    EXPECT_THAT(checkpointer.Close(absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still running")));
  });
  EXPECT_GT(share, kCompressed);
}

TEST_F(AutoCompressionTest, LeavesOffWhereTheNextSaveNeedsItsMemory) {
  const auto share = Save(absl::Seconds(2), 1, [](AsyncCheckpointer& checkpointer, const SaveHandle&) {
    float weight = 0;
    State small;
    small.AddTensor("weight", Dtype::kFloat32, {}, &weight);
    const auto next = checkpointer.Save(3, small);
    ASSERT_THAT(next, IsOk());
    EXPECT_TRUE(next->skipped());
  });
  EXPECT_GT(share, kCompressed);
}

TEST_F(PersisterTest, LeavesNothingOfAStepWhoseStagingFailedHalfWay) {
  HalfGatedState state;
  state.copy_status = absl::InternalError("the device fell off the bus");
  auto checkpointer = Open({.compression = Compression::kNone});
  absl::Notification written;
  NotifyOfTheFirstWrite(written);
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  written.WaitForNotification();
  state.gate.Notify();
  EXPECT_THAT(checkpointer->WaitUntilStaged(), StatusIs(absl::StatusCode::kInternal, HasSubstr("fell off the bus")));
  EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr("fell off the bus")));
  EXPECT_THAT(warnings_, Not(HasSubstr("written anew")));  // as it would be after an error of the disk
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "store/steps"));
  state.copy_status = absl::OkStatus();
  save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
}

TEST_F(PersisterTest, RecordsHowLongTheTrainerWasHeldInTheShardToo) {
  HalfGatedState state;
  state.gate.Notify();
  auto checkpointer = Open();
  auto save = checkpointer->Save(1, state, {.staging = Staging::kBlocking});
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  LoseJournalAndIndex(directory_ / "store");
  const auto steps = Open()->Steps();
  ASSERT_THAT(steps, IsOk());
  EXPECT_GT(steps->back().blocked, absl::ZeroDuration());
}

TEST_F(PersisterTest, BuildsUponNothingAfterACommitThatFailed) {
  HalfGatedState state;
  state.gate.Notify();
  auto checkpointer = Open();
  const auto save = [&](int64_t step) { return SaveStep(*checkpointer, step, state); };
  ASSERT_THAT(save(1), IsOk());
  ASSERT_THAT(save(2), IsOk());
  EXPECT_GT(checkpointer->LatestStep()->reused_bytes, 0u);
  RefuseCommits();
  EXPECT_THAT(save(3), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("step 3 was not committed")));
  files_.Reset();
  ASSERT_THAT(save(4), IsOk());
  EXPECT_EQ(checkpointer->LatestStep()->reused_bytes, 0u) << "step 3 may be there, and step 2's files may go";
  ASSERT_THAT(save(5), IsOk());
  EXPECT_GT(checkpointer->LatestStep()->reused_bytes, 0u);
}

// The disk has room for one step more than there is: what a commit that failed has left takes it.
TEST_F(PersisterTest, MakesRoomForTheNextSaveWhereOneFindsNone) {
  HalfGatedState state;
  state.gate.Notify();
  auto checkpointer = Open();
  const auto save = [&](int64_t step) { return SaveStep(*checkpointer, step, state); };
  const auto folders = [&] {
    return std::distance(std::filesystem::directory_iterator(directory_ / "store/steps"),
                         std::filesystem::directory_iterator());
  };
  ASSERT_THAT(save(1), IsOk());
  RefuseCommits();
  EXPECT_THAT(save(2), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
  EXPECT_EQ(folders(), 1) << "nothing was appended";
  files_.SetRule([&](const storage::FailingFileSystem::Call& call) {
    return call.operation == "QueueWrite" && folders() > 2 ? absl::ResourceExhaustedError("disk full")
                                                           : absl::OkStatus();
  });
  EXPECT_THAT(save(3), IsOk());
}

// Its entry is there, but no sync says that it survives. The next entry carries it.
TEST_F(PersisterTest, KeepsTheFilesOfACommitWhoseOutcomeIsNotKnown) {
  HalfGatedState state;
  state.gate.Notify();
  auto checkpointer = Open();
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return IsSyncOfEntry(call.operation, call.path) ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  });
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("it is not known whether step 1 is committed")));
  EXPECT_FALSE(std::filesystem::is_empty(directory_ / "store/steps"));
  files_.Reset();
  state.copy_status = absl::ResourceExhaustedError("the device has no memory");
  save = checkpointer->Save(2, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_FALSE(std::filesystem::is_empty(directory_ / "store/steps"));
  EXPECT_EQ(checkpointer->LatestStep()->step, 1);
  checkpointer.reset();
  const auto latest = Open()->LatestStep();
  ASSERT_THAT(latest, IsOk());
  EXPECT_EQ(latest->step, 1);
}

TEST_F(PersisterTest, CommitsAStateWithoutBytesOnceItIsStaged) {
  std::string empty;
  State state;
  state.AddValue("empty", &empty);
  auto checkpointer = Open();
  auto save = checkpointer->Save(1, state, {.staging = Staging::kBlocking});
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  EXPECT_GT(checkpointer->LatestStep()->blocked, absl::ZeroDuration());
}

TEST_F(PersisterTest, NamesWhatTheMachineLacksOnce) {
  HalfGatedState state;
  state.gate.Notify();
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return call.operation == "Allocate" ? absl::UnimplementedError("not here") : absl::OkStatus();
  });
  auto checkpointer = Open();
  for (int64_t step : {1, 2}) {
    auto save = checkpointer->Save(step, state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  const std::string line = "files are not preallocated, because the file system does not support fallocate\n";
  const size_t first = warnings_.find(line);
  ASSERT_NE(first, std::string::npos) << warnings_;
  EXPECT_EQ(warnings_.find(line, first + 1), std::string::npos) << warnings_;
}

}  // namespace
}  // namespace tidemark
