// A TorchState through AsyncCheckpointer, to disk and back.

#include <thread>

#include "absl/synchronization/notification.h"
#include "c10/core/StreamGuard.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::TestDirectory;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct DropoutNet : torch::nn::Module {
  explicit DropoutNet(int64_t hidden = 8)
      : a(register_module("a", torch::nn::Linear(4, hidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        b(register_module("b", torch::nn::Linear(hidden, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    return b(torch::dropout(torch::tanh(norm(a(x))), /*p=*/0.2, /*train=*/true));
  }
  torch::nn::Linear a;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear b;
};

template <typename Optimizer = torch::optim::AdamW, typename Options = torch::optim::AdamWOptions>
struct DropoutTrainer {
  explicit DropoutTrainer(int64_t hidden = 8) : net(hidden), optimizer(net.parameters(), Options(0.01)) {
    state.AddModule("model", net);
    state.AddOptimizer("optimizer", optimizer, net);
    state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
    state.AddValue("epoch", &epoch);
  }
  // The first part of a step, with data and dropout from the default generator; the loss. Changes the statistics of
  // BatchNorm and the generator.
  float ForwardAndBackward() {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(net.forward(torch::randn({16, 4})), torch::randn({16, 1}));
    loss.backward();
    return loss.item<float>();
  }
  // The rest.
  void Update() {
    optimizer.step();
    ++epoch;
  }
  float Step() {
    const float loss = ForwardAndBackward();
    Update();
    return loss;
  }
  DropoutNet net;
  Optimizer optimizer;
  int64_t epoch = 0;
  TorchState state;
};

std::unique_ptr<AsyncCheckpointer> MustOpen(const TestDirectory& directory) {
  auto opened = AsyncCheckpointer::Open({.directory = directory / "store"});
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

void MustStage(AsyncCheckpointer& checkpointer, int64_t step, State& state, Staging staging = Staging::kBlocking) {
  auto save = checkpointer.Save(step, state, {.staging = staging});
  ASSERT_TRUE(save.ok()) << save.status();
  ASSERT_TRUE(checkpointer.WaitUntilStaged().ok());
}

class TorchCheckpointerStaging : public ::testing::TestWithParam<Staging> {};

TEST_P(TorchCheckpointerStaging, ResumesBitIdentically) {
  const TestDirectory directory;
  torch::manual_seed(3);
  std::vector<float> losses;
  {
    auto checkpointer = MustOpen(directory);
    DropoutTrainer trainer;
    for (int64_t step = 0; step < 5; ++step) trainer.Step();
    const auto save = checkpointer->Save(4, trainer.state, {.staging = GetParam()});
    ASSERT_TRUE(save.ok()) << save.status();
    losses.push_back(trainer.ForwardAndBackward());
    ASSERT_TRUE(checkpointer->WaitUntilStaged().ok());
    trainer.Update();
    for (int64_t step = 6; step < 10; ++step) losses.push_back(trainer.Step());
    ASSERT_TRUE(checkpointer->Close().ok());
  }
  auto checkpointer = MustOpen(directory);
  torch::manual_seed(99);
  DropoutTrainer trainer;
  const auto restored = checkpointer->RestoreLatest(trainer.state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->step, 4);
  EXPECT_EQ(trainer.epoch, 5);
  std::vector<float> resumed;
  for (int64_t step = 5; step < 10; ++step) resumed.push_back(trainer.Step());
  EXPECT_EQ(resumed, losses);
  EXPECT_EQ(trainer.net.norm->num_batches_tracked.item<int64_t>(), 10);
}

// Without a device, a save on it is a blocking one. With one: torch_device_training_test.
INSTANTIATE_TEST_SUITE_P(EveryStagingMode, TorchCheckpointerStaging,
                         ::testing::Values(Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice));

// Its copies on other threads than the trainer's wait until they are deleted.
class HeldState : public TorchState {
 public:
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    if (std::this_thread::get_id() != trainer_) go_.WaitForNotification();
    return TorchState::CopyToHost(requests);
  }
  void LetGo() { go_.Notify(); }

 private:
  const std::thread::id trainer_ = std::this_thread::get_id();
  absl::Notification go_;
};

TEST(TorchCheckpointer, AnOverlappedSaveHasBuffersAsTheyWereBeforeTheNextForward) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  DropoutNet net;
  // Not in order, so that only the state's own CopyToHost can copy them.
  net.norm->running_mean.set_data(torch::zeros({8, 2}).select(1, 0));
  HeldState state;
  state.AddModule("model", net);
  state.AddTensor("held", torch::randn({3, 5}).t());
  net.forward(torch::randn({16, 4}));
  const at::Tensor mean = net.norm->running_mean.clone();
  const auto save = checkpointer->Save(0, state, {.staging = Staging::kOverlapped});
  ASSERT_TRUE(save.ok()) << save.status();
  net.forward(torch::randn({16, 4}));
  ASSERT_FALSE(at::equal(net.norm->running_mean, mean));
  EXPECT_FALSE(save->staged().ready());
  state.LetGo();
  ASSERT_TRUE(checkpointer->WaitUntilStaged().ok());
  const auto restored = checkpointer->RestoreLatest(state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(at::equal(net.norm->running_mean, mean));
}

TEST(TorchCheckpointer, AStepWithAnotherGeneratorIsAnErrorAndNotPassedOver) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  TorchState on_host;
  on_host.AddGenerator("rng", at::detail::createCPUGenerator(1));
  TorchState on_device;
  on_device.AddGenerator("rng", PretendAccelerator::NewGenerator(2));
  MustStage(*checkpointer, 0, on_host);
  MustStage(*checkpointer, 1, on_device);
  const auto restored = checkpointer->RestoreLatest(on_host);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(restored.status().message()), HasSubstr("entry 'rng': the checkpoint holds 8 bytes"));
}

TEST(TorchCheckpointer, AnotherOptimizerIsRefusedAndNothingTouched) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  DropoutTrainer saver;
  saver.Step();
  MustStage(*checkpointer, 0, saver.state);
  DropoutTrainer<torch::optim::SGD, torch::optim::SGDOptions> loader;
  const at::Tensor before = loader.net.a->weight.detach().clone();
  const auto restored = checkpointer->RestoreLatest(loader.state);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(restored.status().message()),
              HasSubstr("entry 'optimizer.type': the checkpoint has 'AdamW', the state 'SGD'"));
  EXPECT_TRUE(at::equal(loader.net.a->weight, before));
}

TEST(TorchCheckpointer, OtherParameterGroupsAreRefusedBeforeATensorIsTouched) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  DropoutNet net;
  const auto state_for = [&](TorchState& state, torch::optim::SGD& optimizer) {
    state.AddModule("model", net);
    state.AddOptimizer("optimizer", optimizer, net);
  };
  torch::optim::SGD all(net.parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::SGD some(net.a->parameters(), torch::optim::SGDOptions(0.1));
  TorchState saver;
  state_for(saver, all);
  MustStage(*checkpointer, 0, saver);
  {
    const torch::NoGradGuard no_grad;
    net.a->weight.fill_(7);
  }
  TorchState loader;
  state_for(loader, some);
  const auto restored = checkpointer->RestoreLatest(loader);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(restored.status().message()), HasSubstr("entry 'optimizer.param_groups.0.params'"));
  EXPECT_TRUE((net.a->weight == 7).all().item<bool>());
}

TEST(TorchCheckpointer, TheModelAloneIsRestoredBesideAnotherOptimizer) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  DropoutTrainer saver;
  saver.Step();
  MustStage(*checkpointer, 0, saver.state);
  DropoutTrainer<torch::optim::SGD, torch::optim::SGDOptions> loader;
  const auto restored =
      checkpointer->RestoreLatest(loader.state, {.only = {"model.*"}, .allow_missing = true, .allow_unexpected = true});
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(at::equal(loader.net.a->weight, saver.net.a->weight));
  EXPECT_EQ(loader.epoch, 0);
}

TEST(TorchCheckpointer, AModelOfAnotherWidthIsRefusedWithItsMoments) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  DropoutTrainer saver(6);
  saver.Step();
  MustStage(*checkpointer, 0, saver.state);
  DropoutTrainer loader(8);
  const auto restored = checkpointer->RestoreLatest(loader.state);
  EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(restored.status().message()), HasSubstr("model.a.weight"));
  EXPECT_THAT(std::string(restored.status().message()), HasSubstr("optimizer.a.weight.exp_avg"));
  EXPECT_TRUE(loader.optimizer.state().empty());
}

TEST(TorchCheckpointer, ASparseTensorIsRefusedAndTheStoreUnharmed) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  TorchState bad;
  bad.AddTensor("embedding", torch::eye(3).to_sparse());
  const auto refused = checkpointer->Save(0, bad);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("entry 'embedding': sparse tensors"));
  TorchState good;
  good.AddTensor("embedding", torch::eye(3));
  MustStage(*checkpointer, 0, good);
  ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
  const auto steps = checkpointer->Steps();
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, SizeIs(1));
}

TEST(TorchCheckpointer, TensorsThatLeaveHostMemoryBetweenSavesAreFollowed) {
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  torch::nn::Linear layer(4, 4);
  TorchState state;
  state.AddModule("layer", *layer);
  MustStage(*checkpointer, 0, state);
  const at::Tensor columns = torch::randn({4, 4}).t();
  layer->weight.set_data(columns);
  MustStage(*checkpointer, 1, state);
  const at::Tensor expected = columns.clone();
  {
    const torch::NoGradGuard no_grad;
    layer->weight.zero_();
  }
  const auto restored = checkpointer->RestoreLatest(state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(at::equal(layer->weight, expected));
}

TEST(TorchCheckpointer, AnOverlappedSaveOfADeviceSeesItsPendingWorkAndNothingLater) {
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  const TestDirectory directory;
  auto checkpointer = MustOpen(directory);
  const at::Tensor tensor = accelerator.Bytes(1 << 16, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  const PretendAccelerator::Gate before = accelerator.NewGate();
  accelerator.EnqueueWait(tensor.device(), before);
  accelerator.EnqueueFill(tensor, 2);
  const int64_t copies = accelerator.CopiesEnqueued();
  const auto save = checkpointer->Save(0, state, {.staging = Staging::kOverlapped});
  ASSERT_TRUE(save.ok()) << save.status();
  // Save has returned while the device is still busy, and the copy waits for it.
  accelerator.WaitUntilQuiescent(copies + 1);
  EXPECT_FALSE(save->staged().ready());
  accelerator.Open(before);
  ASSERT_TRUE(checkpointer->WaitUntilStaged().ok());
  accelerator.EnqueueFill(tensor, 9);
  const auto restored = checkpointer->RestoreLatest(state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(static_cast<const uint8_t*>(tensor.data_ptr())[0], 2);
  EXPECT_EQ(static_cast<const uint8_t*>(tensor.data_ptr())[(1 << 16) - 1], 2);
}

}  // namespace
}  // namespace tidemark
