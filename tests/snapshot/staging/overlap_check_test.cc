// Tuning::check_overlapped_saves, on a state whose copies wait for the test.

#include "snapshot/staging/overlap_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLargeCount = (5 << 20) / sizeof(float);  // several pieces

// What copies wait for. Those of the trainer's thread wait for nothing.
struct CopyGates {
  absl::Notification drain;   // of an image
  absl::Notification device;  // of the device tensors behind an overlapped save
};

class OverlappedState final : public State {
 public:
  explicit OverlappedState(std::shared_ptr<CopyGates> gates) : gates_(std::move(gates)) {
    AddTensor("large", Dtype::kFloat32, {static_cast<int64_t>(kLargeCount)}, large.data());
    AddTensor("tied", Dtype::kFloat32, {static_cast<int64_t>(kLargeCount)}, large.data());
    AddTensor("small", Dtype::kFloat64, {8}, small.data());
    AddTensor("empty", Dtype::kFloat64, {0}, small.data());
    AddValue("epoch", &epoch);
    AddValue("note", &note);
    Derive();
  }
  void Derive() {
    SetDerivedEntries({Entry{.spec = {.name = "device 1", .dtype = Dtype::kInt32}, .bytes = 4},
                       Entry{.spec = {.name = "device 2", .dtype = Dtype::kInt32}, .bytes = 4}});
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    if (!copy_status.ok()) return copy_status;
    if (std::this_thread::get_id() != trainer_) gates_->device.WaitForNotification();
    for (const CopyRequest& request : requests) Copy(device, request);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t>, uint64_t) override {
    return std::make_unique<Image>(device, derived_begin(), gates_);
  }
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override {
    if (entry < derived_begin()) return State::Receive(entry, bytes);
    std::memcpy(&device[entry - derived_begin()], bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  std::vector<float> large = std::vector<float>(kLargeCount, 1.0F);
  std::vector<double> small = std::vector<double>(8, 1.0);
  std::vector<int32_t> device = {1, 1};
  int64_t epoch = 1;
  std::string note = "one";
  absl::Status copy_status;

 private:
  class Image final : public DeviceImage {
   public:
    Image(std::vector<int32_t> copy, size_t first, std::shared_ptr<CopyGates> gates)
        : copy_(std::move(copy)), first_(first), gates_(std::move(gates)) {}
    uint64_t bytes() const override { return 8; }
    absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
      gates_->drain.WaitForNotification();
      for (const CopyRequest& request : requests) {
        std::memcpy(request.destination, &copy_[request.entry - first_], 4);
      }
      return absl::OkStatus();
    }

   private:
    const std::vector<int32_t> copy_;
    const size_t first_;
    const std::shared_ptr<CopyGates> gates_;
  };
  void Copy(const std::vector<int32_t>& from, const CopyRequest& request) {
    std::memcpy(request.destination, &from[request.entry - derived_begin()], 4);
  }

  const std::thread::id trainer_ = std::this_thread::get_id();
  const std::shared_ptr<CopyGates> gates_;
};

class OverlapCheckTest : public testing::Test {
 protected:
  // A test that has failed must not leave a save waiting.
  void TearDown() override {
    for (absl::Notification* gate : {&gates_->drain, &gates_->device}) {
      if (!gate->HasBeenNotified()) gate->Notify();
    }
  }

  void Open(bool check) {
    auto checkpointer = AsyncCheckpointer::Open({.directory = store_,
                                                 .staging = Staging::kOverlapped,
                                                 .tuning = {.check_overlapped_saves = check},
                                                 .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
    checkpointer_ = *std::move(checkpointer);
  }

  // Saves step 1, which keeps the staging thread busy until the gate `drain` opens, and then step 2. Of this one
  // nothing has been copied.
  SaveHandle SaveBehindAnother() {
    EXPECT_THAT(checkpointer_->Save(1, state_, {.staging = Staging::kOnDevice}), IsOk());
    auto save = checkpointer_->Save(2, state_);
    EXPECT_THAT(save, IsOk());
    return *std::move(save);
  }

  // The tensors of `step` as a restore finds them: the first and last of "large", the first of "small", the devices'.
  std::vector<double> Restored(int64_t step) {
    OverlappedState restored(gates_);
    EXPECT_THAT(checkpointer_->Restore(step, restored), IsOk());
    return {restored.large.front(), restored.large.back(), restored.small.front(),
            static_cast<double>(restored.device[0]), static_cast<double>(restored.device[1])};
  }

  // How many phases of this name the step has.
  size_t Phases(int64_t step, const std::string& name) {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto phases = (*reader)->Phases(step);
    EXPECT_THAT(phases, IsOk());
    return static_cast<size_t>(
        std::count_if(phases->begin(), phases->end(), [&](const SavePhase& phase) { return phase.name == name; }));
  }

  const storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  const std::shared_ptr<CopyGates> gates_ = std::make_shared<CopyGates>();
  OverlappedState state_{gates_};
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(OverlapCheckTest, DropsAStepOfWhichATensorChangedBeforeItsCopy) {
  Open(true);
  const SaveHandle save = SaveBehindAnother();
  state_.large.back() = 2.0F;
  gates_->drain.Notify();
  gates_->device.Notify();
  const auto dropped =
      StatusIs(absl::StatusCode::kAborted,
               "step 2 is dropped: a tensor changed after Save and before it was copied: 'large'; call WaitUntilStaged "
               "before the optimizer's step, or use Staging::kBlocking");
  EXPECT_THAT(save.staged().Wait(), dropped);
  EXPECT_THAT(save.committed().Wait(), dropped);
  EXPECT_THAT(checkpointer_->WaitUntilStaged(), dropped);
  ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());  // its failure has been read
  EXPECT_EQ(checkpointer_->LatestStep()->step, 1);
  const auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  EXPECT_EQ(steps->at(1).state, StepState::kFailed);
  EXPECT_THAT(steps->at(1).reason, HasSubstr("'large'"));
  // The next one is no worse for it.
  auto next = checkpointer_->Save(3, state_);
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT(next->committed().Wait(), IsOk());
  EXPECT_THAT(Restored(3), ElementsAre(1, 2, 1, 1, 1));
  EXPECT_THAT(Restored(1), ElementsAre(1, 1, 1, 1, 1));
}

TEST_F(OverlapCheckTest, WithoutItAStepOfTwoStepsBytesIsCommitted) {
  Open(false);
  const SaveHandle save = SaveBehindAnother();
  state_.large.back() = 2.0F;
  gates_->drain.Notify();
  gates_->device.Notify();
  EXPECT_THAT(save.committed().Wait(), IsOk());
  EXPECT_THAT(Restored(2), ElementsAre(1, 2, 1, 1, 1));
  EXPECT_EQ(Phases(2, "digest"), 0u);
}

TEST_F(OverlapCheckTest, TakesATensorThatChangesBehindItsCopy) {
  Open(true);
  gates_->drain.Notify();
  auto save = checkpointer_->Save(1, state_);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(checkpointer_->WaitUntilStaged("small"), IsOk());
  state_.small.front() = 2.0;
  state_.epoch = 2;  // values have been read by Save
  state_.note = "two";
  gates_->device.Notify();
  EXPECT_THAT(save->committed().Wait(), IsOk());
  EXPECT_THAT(Restored(1), ElementsAre(1, 1, 1, 1, 1));
}

TEST_F(OverlapCheckTest, FindsATensorThatTheHostCannotReach) {
  Open(true);
  gates_->drain.Notify();
  auto save = checkpointer_->Save(1, state_);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(checkpointer_->WaitUntilStaged("small"), IsOk());
  state_.small.front() = 2.0;
  state_.device[1] = 2;
  gates_->device.Notify();
  EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kAborted, HasSubstr("copied: 'device 2'; call")));
}

TEST_F(OverlapCheckTest, FindsItInAStepThatIsOnlyEvaluated) {
  Open(true);
  ASSERT_THAT(checkpointer_->AddEvaluator({.name = "e"},
                                          [](const Snapshot&) -> absl::StatusOr<Verdict> {
                                            ADD_FAILURE() << "a snapshot of two steps was evaluated";
                                            return Verdict{};
                                          }),
              IsOk());
  gates_->drain.Notify();
  auto evaluation = checkpointer_->Evaluate(1, state_);
  ASSERT_THAT(evaluation, IsOk());
  state_.device[0] = 2;
  gates_->device.Notify();
  EXPECT_THAT(evaluation->committed().Wait(), StatusIs(absl::StatusCode::kAborted, HasSubstr("'device 1'")));
}

TEST_F(OverlapCheckTest, TakesUnchangedStatesInEveryMode) {
  Open(true);
  gates_->drain.Notify();
  gates_->device.Notify();
  int64_t step = 0;
  for (const Staging staging : {Staging::kOverlapped, Staging::kBlocking, Staging::kOnDevice, Staging::kOverlapped}) {
    state_.large.front() = static_cast<float>(++step);
    state_.device[0] = static_cast<int32_t>(step);
    auto save = checkpointer_->Save(step, state_, {.staging = staging});
    ASSERT_THAT(save, IsOk());
    EXPECT_EQ(save->staging(), staging);
    EXPECT_THAT(save->staged().Wait(), IsOk());
    EXPECT_THAT(save->committed().Wait(), IsOk());
    const auto number = static_cast<double>(step);
    EXPECT_THAT(Restored(step), ElementsAre(number, 1, 1, number, 1));
  }
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  EXPECT_EQ(Phases(1, "digest"), 1u);
  EXPECT_EQ(Phases(2, "digest"), 0u);
  EXPECT_EQ(Phases(3, "digest"), 0u);
  EXPECT_EQ(Phases(4, "digest"), 1u);
}

TEST_F(OverlapCheckTest, SaveReturnsTheErrorOfItsReadingAndLeavesTheStoreAsItWas) {
  Open(true);
  gates_->drain.Notify();
  gates_->device.Notify();
  state_.copy_status = absl::UnavailableError("the device is gone");
  EXPECT_THAT(checkpointer_->Save(1, state_), StatusIs(absl::StatusCode::kUnavailable, "the device is gone"));
  EXPECT_TRUE(checkpointer_->Steps()->empty());
  state_.copy_status = absl::OkStatus();
  auto save = checkpointer_->Save(1, state_);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
}

TEST(OverlapCheckMessageTest, NamesTheFirstTensorsAndCountsTheOthers) {
  std::vector<float> numbers(5);
  State state;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    state.AddTensor(name, Dtype::kFloat32, {1}, &numbers[static_cast<size_t>(name[0] - 'a')]);
  }
  ASSERT_THAT(state.Refresh(), IsOk());
  OverlapCheck check(std::make_shared<const StagingPlan>(state));
  const float before = 1.0F;
  const float after = 2.0F;
  for (size_t i = 0; i < 5; ++i) check.NotePiece(i, std::as_bytes(std::span(&before, 1)));
  check.ComparePiece(0, std::as_bytes(std::span(&before, 1)));
  EXPECT_THAT(check.Result(7), IsOk());
  for (size_t i = 1; i < 5; ++i) check.ComparePiece(i, std::as_bytes(std::span(&after, 1)));
  EXPECT_THAT(check.Result(7),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("step 7 is dropped: 4 tensors changed after Save and before they were "
                                 "copied: 'b', 'c', 'd' and 1 more; call WaitUntilStaged")));
}

}  // namespace
}  // namespace tidemark
