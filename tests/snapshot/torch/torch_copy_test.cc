// Copies from and to a device, on the pretend accelerator.

#include "snapshot/torch/torch_copy.h"

#include <cstring>
#include <deque>
#include <thread>

#include "c10/core/StreamGuard.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_device_testing.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// The staging thread of a save that has begun: copies every entry of a state.
class StagingThread {
 public:
  explicit StagingThread(TorchState& state) {
    std::vector<State::CopyRequest> requests;
    for (size_t i = 0; i < state.entries().size(); ++i) {
      copies_.emplace_back(state.entries()[i].bytes, kUntouched);
      requests.push_back({.entry = i, .destination = copies_.back().data()});
    }
    thread_ = std::thread([this, &state, requests] { status_ = state.CopyToHost(requests); });
  }
  ~StagingThread() {
    if (thread_.joinable()) thread_.join();
  }
  absl::Status Join() {
    thread_.join();
    return status_;
  }
  const std::vector<std::byte>& copy(size_t entry) const { return copies_[entry]; }

 private:
  std::deque<std::vector<std::byte>> copies_;
  absl::Status status_;
  std::thread thread_;
};

TEST(TorchCopy, WaitsForWorkThatWasEnqueuedBeforeTheSave) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 2);
  MustBegin(state);
  EXPECT_EQ(state.entries()[0].host, nullptr);
  const int64_t copies = Accelerator().CopiesEnqueued();
  StagingThread staging(state);
  // Whatever could run without the update has run now; the gate is what a slow kernel would be.
  Accelerator().WaitUntilQuiescent(copies + 1);
  EXPECT_THAT(staging.copy(0), Each(kUntouched));
  Accelerator().Open(gate);
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_THAT(staging.copy(0), Each(std::byte{2}));
}

TEST(TorchCopy, NeitherSeesNorWaitsForWorkThatIsEnqueuedAfterStagingBegan) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 9);
  StagingThread staging(state);
  // Returns although the compute stream is held: the copy has a stream of its own.
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_FALSE(Accelerator().Idle());
  EXPECT_THAT(staging.copy(0), Each(std::byte{1}));
  Accelerator().Open(gate);
  Accelerator().WaitUntilQuiescent();
  EXPECT_THAT(staging.copy(0), Each(std::byte{1}));
}

TEST(TorchCopy, WaitsForTheStreamThatIsCurrentAtTheSave) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  const PretendAccelerator::Gate default_gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), default_gate);
  {
    const c10::StreamGuard on_side(Accelerator().PoolStream(tensor.device()));
    Accelerator().EnqueueWait(tensor.device(), gate);
    Accelerator().EnqueueFill(tensor, 3);
    MustBegin(state);
  }
  StagingThread staging(state);
  Accelerator().Open(gate);
  // The default stream stays held all the while.
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_THAT(staging.copy(0), Each(std::byte{3}));
  Accelerator().Open(default_gate);
}

TEST(TorchCopy, WaitsForEachDevice) {
  const at::Tensor first = Accelerator().Bytes(kTensorBytes, 1, 0);
  const at::Tensor second = Accelerator().Bytes(kTensorBytes, 1, 1);
  const at::Tensor host = torch::full({16}, 5, at::kByte);
  TorchState state;
  state.AddTensor("first", first);
  state.AddTensor("second", second);
  state.AddTensor("host", host);
  const PretendAccelerator::Gate first_gate = Accelerator().NewGate();
  const PretendAccelerator::Gate second_gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(first.device(), first_gate);
  Accelerator().EnqueueFill(first, 2);
  Accelerator().EnqueueWait(second.device(), second_gate);
  Accelerator().EnqueueFill(second, 3);
  MustBegin(state);
  const int64_t copies = Accelerator().CopiesEnqueued();
  StagingThread staging(state);
  Accelerator().Open(second_gate);
  Accelerator().WaitUntilQuiescent(copies + 2);
  EXPECT_THAT(staging.copy(0), Each(kUntouched));
  Accelerator().Open(first_gate);
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_THAT(staging.copy(0), Each(std::byte{2}));
  EXPECT_THAT(staging.copy(1), Each(std::byte{3}));
  EXPECT_THAT(staging.copy(2), Each(std::byte{5}));
}

TEST(TorchCopy, ASecondSaveWaitsForItsOwnWork) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  ASSERT_TRUE(SaveToMemory(state).ok());
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 2);
  MustBegin(state);
  const int64_t copies = Accelerator().CopiesEnqueued();
  StagingThread staging(state);
  Accelerator().WaitUntilQuiescent(copies + 1);
  EXPECT_THAT(staging.copy(0), Each(kUntouched));
  Accelerator().Open(gate);
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_THAT(staging.copy(0), Each(std::byte{2}));
}

TEST(TorchCopy, AFailureNamesTheEntryAndLeavesNoCopyInFlight) {
  const at::Tensor first = Accelerator().Bytes(kTensorBytes, 1);
  const at::Tensor second = Accelerator().Bytes(kTensorBytes, 2);
  TorchState state;
  state.AddTensor("first", first);
  state.AddTensor("second", second);
  MustBegin(state);
  Accelerator().FailCopyAfter(1);
  StagingThread staging(state);
  const absl::Status status = staging.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("entry 'second': LibTorch: the pretend accelerator was told to fail"));
  EXPECT_THAT(staging.copy(0), Each(std::byte{1}));
  EXPECT_THAT(staging.copy(1), Each(kUntouched));
  EXPECT_TRUE(SaveToMemory(state).ok());
}

TEST(TorchCopy, ASaveAfterAFailedSynchronisationWaitsForItsOwnWork) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  Accelerator().FailNextSynchronize();
  const absl::Status failed = SaveToMemory(state).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("told to fail a synchronisation"));
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 2);
  MustBegin(state);
  const int64_t copies = Accelerator().CopiesEnqueued();
  StagingThread staging(state);
  Accelerator().WaitUntilQuiescent(copies + 1);
  EXPECT_THAT(staging.copy(0), Each(kUntouched));
  Accelerator().Open(gate);
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_THAT(staging.copy(0), Each(std::byte{2}));
}

TEST(TorchCopy, BothCopiesOfOneSaveWaitForTheSameWork) {
  const at::Tensor early = Accelerator().Bytes(kTensorBytes, 1);
  const at::Tensor late = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("early", early);
  state.AddTensor("late", late);
  Accelerator().EnqueueFill(early, 2);
  MustBegin(state);
  std::vector<std::byte> early_copy(kTensorBytes, kUntouched);
  const State::CopyRequest request{.entry = 0, .destination = early_copy.data()};
  ASSERT_TRUE(state.CopyToHost({&request, 1}).ok());
  EXPECT_THAT(early_copy, Each(std::byte{2}));
  // The second neither waits for what was enqueued since, nor misses the mark.
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(late.device(), gate);
  Accelerator().EnqueueFill(late, 9);
  StagingThread staging(state);
  ASSERT_TRUE(staging.Join().ok());
  EXPECT_FALSE(Accelerator().Idle());
  EXPECT_THAT(staging.copy(1), Each(std::byte{1}));
  Accelerator().Open(gate);
  Accelerator().WaitUntilQuiescent();
}

TEST(TorchCopy, BeforeBeginStagingIsRefused) {
  TorchState state;
  state.AddTensor("t", Accelerator().Bytes(kTensorBytes, 1));
  ASSERT_TRUE(state.Refresh().ok());
  StagingThread staging(state);
  const absl::Status status = staging.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()), "entry 't': copied before BeginStaging");
}

TEST(TorchCopy, ARestoreIsWrittenAfterThePendingWorkAndDoneOnReturn) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 8);
  const int64_t copies = Accelerator().CopiesEnqueued();
  std::thread opener([&] {
    Accelerator().WaitUntilQuiescent(copies + 1);
    Accelerator().Open(gate);
  });
  const absl::Status restored = RestoreFromMemory(state, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE(Accelerator().Idle());
  opener.join();
  const auto again = SaveToMemory(state);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->items.at("t").bytes, Each(std::byte{1}));
}

TEST(TorchCopy, ReceivingWaitsForTheDeviceOnceAtItsEnd) {
  const at::Tensor first = Accelerator().Bytes(kTensorBytes, 1, 0);
  const at::Tensor second = Accelerator().Bytes(kTensorBytes, 2, 0);
  const at::Tensor other = Accelerator().Bytes(kTensorBytes, 3, 1);
  TorchState state;
  state.AddTensor("first", first);
  state.AddTensor("second", second);
  state.AddTensor("other", other);
  ASSERT_TRUE(state.PrepareRestore({}).ok());
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(first.device(), gate);
  Accelerator().EnqueueWait(other.device(), gate);
  std::vector<std::byte> bytes(kTensorBytes, std::byte{7});
  // They return while the device is held: what they have enqueued reads the bytes later.
  for (size_t entry = 0; entry < 3; ++entry) ASSERT_TRUE(state.Receive(entry, bytes).ok());
  EXPECT_EQ(static_cast<const uint8_t*>(second.data_ptr())[0], 2);
  Accelerator().Open(gate);
  ASSERT_TRUE(state.FlushReceived().ok());
  EXPECT_TRUE(Accelerator().Idle());
  bytes.assign(kTensorBytes, std::byte{8});
  for (const at::Tensor& tensor : {first, second, other}) {
    EXPECT_EQ(static_cast<const uint8_t*>(tensor.data_ptr())[kTensorBytes - 1], 7);
  }
  ASSERT_TRUE(state.FinishRestore().ok());
}

TEST(TorchCopy, AFailureToFlushWhatWasReceivedIsReportedOnce) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  ASSERT_TRUE(state.PrepareRestore({}).ok());
  ASSERT_TRUE(state.Receive(0, std::vector<std::byte>(kTensorBytes)).ok());
  Accelerator().FailNextSynchronize();
  const absl::Status status = state.FlushReceived();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("writing to privateuseone:0: LibTorch: "));
  EXPECT_TRUE(state.FlushReceived().ok());
  state.AbandonRestore();
}

TEST(TorchCopy, StagingMemoryIsPageLockedWhereTheDeviceCan) {
  const at::Tensor host = torch::ones({2});
  TorchState on_host;
  on_host.AddTensor("t", host);
  ASSERT_TRUE(on_host.Refresh().ok());
  EXPECT_EQ(on_host.AllocateStaging(kTensorBytes), nullptr);
  std::shared_ptr<std::byte> memory;
  {
    TorchState on_device;
    on_device.AddTensor("t", Accelerator().Bytes(kTensorBytes, 1));
    ASSERT_TRUE(on_device.Refresh().ok());
    Accelerator().set_without_page_locked_memory(true);
    EXPECT_EQ(on_device.AllocateStaging(kTensorBytes), nullptr);
    Accelerator().set_without_page_locked_memory(false);
    for (const uint64_t bytes : {1, 100, 5000, 1 << 20}) {
      memory = on_device.AllocateStaging(bytes);
      EXPECT_EQ(memory != nullptr, PretendAccelerator::kPageLocksMemory);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 4096, 0U);
    }
  }
  if (memory != nullptr) std::memset(memory.get(), 1, 1 << 20);
}

TEST(TorchCopy, LayoutsOfDeviceTensorsAreKept) {
  const at::Tensor source = torch::randn({3, 5}).t();
  const at::Tensor tensor = at::empty_strided({5, 3}, {1, 5}, source.options().device(Accelerator().Device(1)));
  TorchState from;
  from.AddTensor("t", source);
  const auto saved = SaveToMemory(from);
  ASSERT_TRUE(saved.ok());
  TorchState into;
  into.AddTensor("t", tensor);
  const absl::Status restored = RestoreFromMemory(into, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(std::memcmp(tensor.data_ptr(), source.data_ptr(), source.nbytes()), 0);
  const auto again = SaveToMemory(into);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->items.at("t").bytes, saved->items.at("t").bytes);
}

TEST(TorchCopy, MomentsAreMadeOnTheDeviceOfTheirParameter) {
  struct Net : torch::nn::Module {
    explicit Net(const at::Tensor& w) { weight = register_parameter("weight", w); }
    at::Tensor weight;
  };
  Net on_host(torch::randn({4, 2}));
  torch::optim::Adam host_adam(on_host.parameters(), torch::optim::AdamOptions(0.1));
  on_host.weight.mutable_grad() = torch::randn({4, 2});
  host_adam.step();
  TorchState from;
  from.AddModule("model", on_host);
  from.AddOptimizer("optimizer", host_adam, on_host);
  const auto saved = SaveToMemory(from);
  ASSERT_TRUE(saved.ok());

  Net on_device(at::empty({4, 2}, at::TensorOptions().device(Accelerator().Device())));
  torch::optim::Adam device_adam(on_device.parameters(), torch::optim::AdamOptions(0.1));
  TorchState into;
  into.AddModule("model", on_device);
  into.AddOptimizer("optimizer", device_adam, on_device);
  const absl::Status restored = RestoreFromMemory(into, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  ASSERT_EQ(device_adam.state().size(), 1U);
  const auto& state = static_cast<const torch::optim::AdamParamState&>(*device_adam.state().begin()->second);
  EXPECT_EQ(state.exp_avg().device(), Accelerator().Device());
  const auto again = SaveToMemory(into);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->Names(), saved->Names());
  for (const auto& [name, item] : again->items) EXPECT_EQ(item.bytes, saved->items.at(name).bytes) << name;
}

TEST(TorchCopy, GeneratorsOfADeviceAreKept) {
  at::Generator generator = PretendAccelerator::NewGenerator(12);
  TorchState state;
  state.AddGenerator("rng", generator);
  auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->Value<uint64_t>("rng"), 12U);
  generator.set_current_seed(13);
  ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
  EXPECT_EQ(generator.current_seed(), 12U);
  saved->items.at("rng").bytes.resize(3);
  const absl::Status status = RestoreFromMemory(state, *saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the state is not a seed"));
}

TEST(TorchCopy, ADeviceTensorsTiesAreStoredOnce) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("a", tensor);
  state.AddTensor("b", tensor);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->items.at("b").alias_of, "a");
}

}  // namespace
}  // namespace tidemark
