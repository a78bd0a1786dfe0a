// A trainer whose parameters and moments are on a device, through AsyncCheckpointer in every staging mode.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;

// Device images of it are drained only once the test says so.
class HeldDrainState : public TorchState {
 public:
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> entries,
                                                            uint64_t bytes_max) override {
    auto image = TorchState::CopyOnDevice(entries, bytes_max);
    if (!image.ok() || *image == nullptr) return image;
    return std::make_unique<HeldImage>(*std::move(image), drain_);
  }
  void Drain() {
    if (!drain_->HasBeenNotified()) drain_->Notify();
  }

 private:
  class HeldImage final : public DeviceImage {
   public:
    HeldImage(std::unique_ptr<DeviceImage> image, std::shared_ptr<absl::Notification> drain)
        : image_(std::move(image)), drain_(std::move(drain)) {}
    uint64_t bytes() const override { return image_->bytes(); }
    absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
      drain_->WaitForNotification();
      return image_->CopyToHost(requests);
    }

   private:
    const std::unique_ptr<DeviceImage> image_;
    const std::shared_ptr<absl::Notification> drain_;
  };
  const std::shared_ptr<absl::Notification> drain_ = std::make_shared<absl::Notification>();
};

struct HostNet : torch::nn::Module {
  HostNet()
      : a(register_module("a", torch::nn::Linear(4, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        b(register_module("b", torch::nn::Linear(8, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    return b(torch::dropout(torch::tanh(norm(a(x))), /*p=*/0.2, /*train=*/true));
  }
  torch::nn::Linear a;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear b;
};

// The parameters of another module, on the device.
struct DeviceNet : torch::nn::Module {
  explicit DeviceNet(const torch::nn::Module& host) {
    for (const at::Tensor& parameter : host.parameters()) {
      register_parameter(fmt::format("p{}", parameters().size()), parameter.detach().to(PretendAccelerator::Device()));
    }
  }
};

// The device has no arithmetic. So a step copies what is there to the host, computes, and copies the results back.
struct DeviceTrainer {
  DeviceTrainer() {
    state.AddModule("model", device);
    state.AddModule("statistics", *host.norm);  // BatchNorm's, in host memory
    state.AddOptimizer("optimizer", optimizer, host);
    state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
    state.AddValue("epoch", &epoch);
  }

  float ForwardAndBackward() {
    Copy(device.parameters(), host.parameters());
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(host.forward(torch::randn({16, 4})), torch::randn({16, 1}));
    loss.backward();
    return loss.item<float>();
  }
  void Update() {
    MoveMoments(at::kCPU);
    optimizer.step();
    MoveMoments(PretendAccelerator::Device());
    Copy(host.parameters(), device.parameters());
    ++epoch;
  }
  float Step() {
    const float loss = ForwardAndBackward();
    Update();
    return loss;
  }

  static void Copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
  }
  void MoveMoments(c10::Device to) {
    for (auto& [key, kept] : optimizer.state()) {
      auto& moments = static_cast<torch::optim::AdamWParamState&>(*kept);
      moments.exp_avg(moments.exp_avg().to(to));
      moments.exp_avg_sq(moments.exp_avg_sq().to(to));
    }
  }

  HostNet host;
  DeviceNet device{host};
  torch::optim::AdamW optimizer{host.parameters(), torch::optim::AdamWOptions(0.01)};
  int64_t epoch = 0;
  HeldDrainState state;
};

class TorchDeviceTraining : public ::testing::TestWithParam<Staging> {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open() {
    auto opened = AsyncCheckpointer::Open({.directory = directory_ / "store"});
    EXPECT_THAT(opened, IsOk());
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  storage::TestDirectory directory_;
};

TEST_P(TorchDeviceTraining, ResumesBitIdentically) {
  torch::manual_seed(5);
  std::vector<float> losses;
  {
    DeviceTrainer trainer;
    auto checkpointer = Open();
    for (int64_t step = 0; step < 5; ++step) trainer.Step();
    const auto save = checkpointer->Save(4, trainer.state, {.staging = GetParam()});
    ASSERT_THAT(save, IsOk());
    EXPECT_EQ(save->staging(), GetParam());
    losses.push_back(trainer.ForwardAndBackward());
    ASSERT_THAT(checkpointer->WaitUntilStaged(), IsOk());
    trainer.Update();
    for (int64_t step = 6; step < 10; ++step) losses.push_back(trainer.Step());
    // Everything on the device has been overwritten by now, and none of the image has been drained.
    if (GetParam() == Staging::kOnDevice) {
      EXPECT_FALSE(save->committed().ready());
    }
    trainer.state.Drain();
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }
  torch::manual_seed(99);
  DeviceTrainer trainer;
  auto checkpointer = Open();
  const auto restored = checkpointer->RestoreLatest(trainer.state);
  ASSERT_THAT(restored, IsOk());
  EXPECT_EQ(restored->step, 4);
  EXPECT_EQ(trainer.epoch, 5);
  std::vector<float> resumed;
  for (int64_t step = 5; step < 10; ++step) resumed.push_back(trainer.Step());
  EXPECT_EQ(resumed, losses);
  trainer.state.Drain();
}

INSTANTIATE_TEST_SUITE_P(EveryStagingMode, TorchDeviceTraining,
                         ::testing::Values(Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice));

}  // namespace
}  // namespace tidemark
