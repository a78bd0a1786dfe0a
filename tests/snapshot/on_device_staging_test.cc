// Staging::kOnDevice, on a state whose "device" is a vector and whose drains wait for the test.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

constexpr int64_t kCount = 1000;
constexpr uint64_t kDeviceBytes = kCount * sizeof(float);

// What a drain waits for, and how it ends. Outlives states.
struct Drain {
  absl::Notification gate;
  absl::Status status;
};

class DeviceState final : public State {
 public:
  explicit DeviceState(std::shared_ptr<Drain> drain) : device(kCount, 1.0F), drain_(std::move(drain)) {
    AddTensor("on_host", Dtype::kFloat32, {kCount}, host.data());
    SetDerivedEntries(
        {Entry{.spec = {.name = "on_device", .dtype = Dtype::kFloat32, .shape = {kCount}}, .bytes = kDeviceBytes}});
  }

  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> wanted,
                                                            uint64_t bytes_max) override {
    EXPECT_THAT(wanted, testing::ElementsAre(1));
    budget_seen = bytes_max;
    if (!copy_status.ok()) return copy_status;
    if (full) return nullptr;
    return std::make_unique<Image>(device, drain_);
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    ++blocking_copies;
    std::memcpy(requests[0].destination, device.data(), kDeviceBytes);
    return absl::OkStatus();
  }
  absl::Status Receive(size_t, std::span<const std::byte> bytes) override {
    std::memcpy(device.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  std::vector<float> host = std::vector<float>(kCount, 1.0F);
  std::vector<float> device;
  bool full = false;
  absl::Status copy_status;
  uint64_t budget_seen = 0;
  int blocking_copies = 0;

 private:
  class Image final : public DeviceImage {
   public:
    Image(std::vector<float> copy, std::shared_ptr<Drain> drain) : copy_(std::move(copy)), drain_(std::move(drain)) {}
    uint64_t bytes() const override { return kDeviceBytes; }
    absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
      drain_->gate.WaitForNotification();
      std::memcpy(requests[0].destination, copy_.data(), kDeviceBytes);
      return drain_->status;
    }

   private:
    const std::vector<float> copy_;
    const std::shared_ptr<Drain> drain_;
  };
  const std::shared_ptr<Drain> drain_;
};

class OnDeviceStagingTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = directory_.path() + "/store";
    options.staging = Staging::kOnDevice;
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  std::string StagingOf(int64_t step) {
    auto reader = StoreReader::Open(directory_.path() + "/store");
    EXPECT_THAT(reader, IsOk());
    return (*reader)->Contents(step)->properties.at("staging");
  }

  storage::TestDirectory directory_;
  std::shared_ptr<Drain> drain_ = std::make_shared<Drain>();
};

TEST_F(OnDeviceStagingTest, IsStagedBeforeTheHostHasItAndOutlivesTheState) {
  auto checkpointer = Open();
  auto state = std::make_unique<DeviceState>(drain_);
  auto save = checkpointer->Save(1, *state);
  ASSERT_THAT(save, IsOk());
  EXPECT_EQ(save->staging(), Staging::kOnDevice);
  EXPECT_TRUE(save->staged().ready());
  EXPECT_FALSE(save->committed().ready());
  EXPECT_THAT(checkpointer->WaitUntilStaged("on_device"), IsOk());
  state->device.assign(kCount, 2.0F);
  state->host.assign(kCount, 2.0F);
  state.reset();
  drain_->gate.Notify();
  ASSERT_THAT(save->committed().Wait(), IsOk());
  DeviceState restored(drain_);
  restored.device.assign(kCount, 0.0F);
  ASSERT_THAT(checkpointer->RestoreLatest(restored), IsOk());
  EXPECT_EQ(restored.device, std::vector<float>(kCount, 1.0F));
  EXPECT_EQ(restored.host, std::vector<float>(kCount, 1.0F));
  EXPECT_EQ(restored.blocking_copies, 0);
  EXPECT_EQ(StagingOf(1), "on_device");
}

TEST_F(OnDeviceStagingTest, DoesNotHoldUpTheNextSave) {
  auto checkpointer = Open({.staging_bytes_max = 64 << 20});
  DeviceState state(drain_);
  auto first = checkpointer->Save(1, state);
  ASSERT_THAT(first, IsOk());
  auto second = checkpointer->Save(2, state);
  ASSERT_THAT(second, IsOk());
  EXPECT_FALSE(first->committed().ready());
  drain_->gate.Notify();
  EXPECT_THAT(second->committed().Wait(), IsOk());
  EXPECT_TRUE(first->committed().ready());
}

TEST_F(OnDeviceStagingTest, BlocksAndSaysSoWhereTheDeviceIsFull) {
  auto checkpointer = Open();
  DeviceState state(drain_);
  state.full = true;
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_EQ(save->staging(), Staging::kBlocking);
  EXPECT_EQ(state.blocking_copies, 1);
  ASSERT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(StagingOf(1), "blocking: no memory on the device, or device_staging_bytes_max is reached");
}

TEST_F(OnDeviceStagingTest, CountsImagesThatAreNotDrainedAgainstItsBudget) {
  auto checkpointer =
      Open({.staging_bytes_max = 64 << 20, .tuning = {.device_staging_bytes_max = kDeviceBytes * 3 / 2}});
  DeviceState state(drain_);
  auto first = checkpointer->Save(1, state);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->staging(), Staging::kOnDevice);
  EXPECT_EQ(state.budget_seen, kDeviceBytes * 3 / 2);
  auto second = checkpointer->Save(2, state);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->staging(), Staging::kBlocking);
  drain_->gate.Notify();
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_THAT(StagingOf(2), HasSubstr("device_staging_bytes_max is 6000, and 4000 of them are in use"));
  auto third = checkpointer->Save(3, state);
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(third->staging(), Staging::kOnDevice);
}

TEST_F(OnDeviceStagingTest, ReportsADrainThatFailsAndSavesTheNextStep) {
  drain_->status = absl::InternalError("bus error");
  drain_->gate.Notify();
  auto checkpointer = Open();
  DeviceState state(drain_);
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->staged().Wait(), IsOk());
  EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr("bus error")));
  drain_->status = absl::OkStatus();
  save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), IsOk());
}

TEST_F(OnDeviceStagingTest, SavesNothingWhereTheDeviceFails) {
  auto checkpointer = Open();
  DeviceState state(drain_);
  state.copy_status = absl::InternalError("the device fell off the bus");
  EXPECT_THAT(checkpointer->Save(1, state), StatusIs(absl::StatusCode::kInternal, HasSubstr("fell off")));
  EXPECT_TRUE(checkpointer->Steps()->empty());
  EXPECT_THAT(checkpointer->WaitUntilStaged("on_device"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
  drain_->gate.Notify();
}

TEST_F(OnDeviceStagingTest, IsBlockingForAStateWithoutDevice) {
  auto checkpointer = Open();
  State state;
  std::vector<float> weight(10);
  state.AddTensor("weight", Dtype::kFloat32, {10}, weight.data());
  auto save = checkpointer->Save(1, state);
  ASSERT_THAT(save, IsOk());
  EXPECT_EQ(save->staging(), Staging::kBlocking);
  EXPECT_THAT(checkpointer->WaitUntilStaged("weight"), IsOk());
  EXPECT_THAT(checkpointer->WaitUntilStaged("nobody"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("'nobody'")));
  ASSERT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(StagingOf(1), "blocking: no tensor is on a device");
}

}  // namespace
}  // namespace tidemark
