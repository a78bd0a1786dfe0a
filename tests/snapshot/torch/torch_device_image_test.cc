// Copies that stay on the device until they are drained, on the pretend accelerator.

#include "snapshot/torch/torch_device_image.h"

#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "c10/core/StreamGuard.h"
#include "tests/snapshot/torch/torch_device_testing.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Image = std::unique_ptr<State::DeviceImage>;

// Copies every entry that is not in host memory.
absl::StatusOr<Image> TryCopy(TorchState& state, uint64_t bytes_max = 0) {
  std::vector<size_t> entries;
  for (size_t i = 0; i < state.entries().size(); ++i) {
    if (state.entries()[i].host == nullptr) entries.push_back(i);
  }
  return state.CopyOnDevice(entries, bytes_max);
}

Image MustCopy(TorchState& state) {
  auto image = TryCopy(state);
  EXPECT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(!image.ok() || *image != nullptr);
  return image.ok() ? *std::move(image) : nullptr;
}

std::vector<std::byte> MustDrain(State::DeviceImage& image, size_t entry, size_t bytes = kTensorBytes) {
  std::vector<std::byte> copy(bytes, kUntouched);
  const State::CopyRequest request{.entry = entry, .destination = copy.data()};
  const absl::Status status = image.CopyToHost({&request, 1});
  EXPECT_TRUE(status.ok()) << status;
  return copy;
}

uint8_t FirstByte(const at::Tensor& tensor) { return *static_cast<const uint8_t*>(tensor.data_ptr()); }

// What a device holds once nothing in its streams keeps memory any more.
int64_t MemoryAtRest(c10::DeviceIndex device) {
  Accelerator().WaitUntilQuiescent();
  return Accelerator().MemoryTaken(device);
}

// Holds every stream of the device's pool until it is opened.
PretendAccelerator::Gate HoldPool(c10::Device device) {
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  for (int i = 0; i < PretendAccelerator::kPoolStreams; ++i) {
    const c10::StreamGuard on_stream(Accelerator().PoolStream(device));
    Accelerator().EnqueueWait(device, gate);
  }
  return gate;
}

TEST(TorchDeviceImage, IsMadeWithoutWaitingAndDrainedOnceThePendingWorkIsDone) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  Accelerator().EnqueueWait(tensor.device(), gate);
  Accelerator().EnqueueFill(tensor, 2);
  const int64_t copies = Accelerator().CopiesEnqueued();
  MustBegin(state);
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  Accelerator().EnqueueFill(tensor, 9);
  std::vector<std::byte> copy(kTensorBytes, kUntouched);
  const State::CopyRequest request{.entry = 0, .destination = copy.data()};
  absl::Status drained;
  std::thread draining([&] { drained = image->CopyToHost({&request, 1}); });
  // Both the copy and its drain have been enqueued, and whatever could run without the update has run.
  Accelerator().WaitUntilQuiescent(copies + 2);
  EXPECT_EQ(FirstByte(tensor), 1);
  EXPECT_THAT(copy, Each(kUntouched));
  Accelerator().Open(gate);
  draining.join();
  ASSERT_TRUE(drained.ok()) << drained;
  EXPECT_THAT(copy, Each(std::byte{2}));
  Accelerator().WaitUntilQuiescent();
  EXPECT_EQ(FirstByte(tensor), 9);
}

TEST(TorchDeviceImage, LaterWorkOfTheCurrentStreamWaitsForTheCopies) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  const PretendAccelerator::Gate gate = HoldPool(tensor.device());
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  Accelerator().EnqueueFill(tensor, 9);
  Accelerator().WaitUntilQuiescent();
  EXPECT_EQ(FirstByte(tensor), 1);
  Accelerator().Open(gate);
  EXPECT_THAT(MustDrain(*image, 0), Each(std::byte{1}));
  Accelerator().WaitUntilQuiescent();
  EXPECT_EQ(FirstByte(tensor), 9);
}

TEST(TorchDeviceImage, OutlivesItsStateAndTensorsAndIsDrainedOnAnotherThread) {
  Image image;
  {
    const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 5);
    TorchState state;
    state.AddTensor("t", tensor);
    MustBegin(state);
    image = MustCopy(state);
  }
  ASSERT_NE(image, nullptr);
  std::vector<std::byte> copy;
  std::thread([&] {
    copy = MustDrain(*image, 0);
    image.reset();
  }).join();
  EXPECT_THAT(copy, Each(std::byte{5}));
}

TEST(TorchDeviceImage, TheNextImageDoesNotWaitForTheDrainOfTheLast) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  const Image first = MustCopy(state);
  ASSERT_NE(first, nullptr);
  Accelerator().WaitUntilQuiescent();
  // The stream that the drain will get: as many more have been handed out since as the pool has.
  const c10::Stream drain = Accelerator().PoolStream(tensor.device());
  for (int i = 1; i < PretendAccelerator::kPoolStreams; ++i) Accelerator().PoolStream(tensor.device());
  const PretendAccelerator::Gate gate = Accelerator().NewGate();
  {
    const c10::StreamGuard on_drain(drain);
    Accelerator().EnqueueWait(tensor.device(), gate);
  }
  const int64_t copies = Accelerator().CopiesEnqueued();
  std::vector<std::byte> first_copy;
  std::thread draining([&] { first_copy = MustDrain(*first, 0); });
  Accelerator().WaitUntilQuiescent(copies + 1);
  Accelerator().EnqueueFill(tensor, 2);
  MustBegin(state);
  const Image second = MustCopy(state);
  ASSERT_NE(second, nullptr);
  Accelerator().EnqueueFill(tensor, 3);
  Accelerator().WaitUntilQuiescent(copies + 2);
  EXPECT_EQ(FirstByte(tensor), 3);
  Accelerator().Open(gate);
  draining.join();
  EXPECT_THAT(first_copy, Each(std::byte{1}));
  EXPECT_THAT(MustDrain(*second, 0), Each(std::byte{2}));
}

TEST(TorchDeviceImage, HoldsTensorsOfEveryDeviceAndUnorderedOnesOfTheHost) {
  const at::Tensor first = Accelerator().Bytes(kTensorBytes, 1, 0);
  const at::Tensor second = Accelerator().Bytes(kTensorBytes, 2, 1);
  const at::Tensor columns = torch::arange(6, at::kLong).view({2, 3}).t();
  TorchState state;
  state.AddTensor("first", first);
  state.AddTensor("second", second);
  state.AddTensor("columns", columns);
  MustBegin(state);
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  columns.fill_(7);
  Accelerator().EnqueueFill(second, 9);
  EXPECT_THAT(MustDrain(*image, 1), Each(std::byte{2}));
  EXPECT_THAT(MustDrain(*image, 0), Each(std::byte{1}));
  const std::vector<std::byte> bytes = MustDrain(*image, 2, 6 * sizeof(int64_t));
  std::array<int64_t, 6> in_order = {};
  std::memcpy(in_order.data(), bytes.data(), bytes.size());
  EXPECT_THAT(in_order, ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(TorchDeviceImage, PutsTensorsInOrderWhateverTheirWidth) {
  const at::Tensor source = torch::randn({3, 5}, at::kDouble);
  for (const at::ScalarType dtype : {at::kByte, at::kHalf, at::kFloat, at::kDouble, at::kComplexDouble}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor expected = source.to(dtype).contiguous();
    const at::Tensor rows = at::empty_strided({3, 5}, {1, 3}, expected.options().device(PretendAccelerator::Device()));
    rows.copy_(expected);
    const at::Tensor odd = Accelerator().Bytes(3, 1);
    TorchState state;
    state.AddTensor("odd", odd);
    state.AddTensor("rows", rows);
    MustBegin(state);
    const Image image = MustCopy(state);
    ASSERT_NE(image, nullptr);
    const std::vector<std::byte> copy = MustDrain(*image, 1, expected.nbytes());
    EXPECT_EQ(std::memcmp(copy.data(), expected.data_ptr(), copy.size()), 0);
    EXPECT_THAT(MustDrain(*image, 0, 3), Each(std::byte{1}));
  }
}

TEST(TorchDeviceImage, NeighboursAreDrainedInOneCopy) {
  const std::vector<at::Tensor> tensors = {Accelerator().Bytes(128, 1), Accelerator().Bytes(64, 2),
                                           Accelerator().Bytes(70, 3), Accelerator().Bytes(64, 4)};
  TorchState state;
  for (size_t i = 0; i < tensors.size(); ++i) state.AddTensor(std::to_string(i), tensors[i]);
  MustBegin(state);
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  std::vector<std::byte> snapshot(4 * 128, kUntouched);
  const std::vector<State::CopyRequest> requests = {{.entry = 0, .destination = snapshot.data()},
                                                    {.entry = 1, .destination = snapshot.data() + 128},
                                                    {.entry = 2, .destination = snapshot.data() + 192},
                                                    {.entry = 3, .destination = snapshot.data() + 320}};
  const int64_t copies = Accelerator().CopiesEnqueued();
  ASSERT_TRUE(image->CopyToHost(requests).ok());
  // The third is followed by bytes that are nobody's.
  EXPECT_EQ(Accelerator().CopiesEnqueued() - copies, 2);
  const auto part = [&](size_t begin, size_t bytes) { return std::span(snapshot).subspan(begin, bytes); };
  EXPECT_THAT(part(0, 128), Each(std::byte{1}));
  EXPECT_THAT(part(128, 64), Each(std::byte{2}));
  EXPECT_THAT(part(192, 70), Each(std::byte{3}));
  EXPECT_THAT(part(262, 58), Each(kUntouched));
  EXPECT_THAT(part(320, 64), Each(std::byte{4}));
  EXPECT_THAT(part(384, 128), Each(kUntouched));
}

TEST(TorchDeviceImage, TakesOneAllocationOfEachDeviceAndGivesItBack) {
  const std::vector<at::Tensor> tensors = {Accelerator().Bytes(100, 1), Accelerator().Bytes(100, 2)};
  TorchState state;
  for (size_t i = 0; i < tensors.size(); ++i) state.AddTensor(std::to_string(i), tensors[i]);
  MustBegin(state);
  const int64_t before = MemoryAtRest(0);
  Image image = MustCopy(state);
  EXPECT_EQ(Accelerator().MemoryTaken(0) - before, 256);
  Accelerator().WaitUntilQuiescent();
  image.reset();
  EXPECT_EQ(MemoryAtRest(0), before);
}

TEST(TorchDeviceImage, KeepsTheMemoryOfTensorsForTheStreamThatReadsThem) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  EXPECT_THAT(Accelerator().UsesOf(tensor), IsEmpty());
  const Image image = MustCopy(state);
  EXPECT_THAT(Accelerator().UsesOf(tensor), SizeIs(1));
}

TEST(TorchDeviceImage, BeyondTheBudgetThereIsNone) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  const int64_t before = MemoryAtRest(0);
  const int64_t copies = Accelerator().CopiesEnqueued();
  const auto refused = TryCopy(state, kTensorBytes - 1);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(*refused, nullptr);
  EXPECT_EQ(Accelerator().MemoryTaken(0), before);
  EXPECT_EQ(Accelerator().CopiesEnqueued(), copies);
  const auto made = TryCopy(state, kTensorBytes);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(*made, nullptr);
}

TEST(TorchDeviceImage, WithoutRoomOnOneDeviceThereIsNoneOnAny) {
  const at::Tensor first = Accelerator().Bytes(kTensorBytes, 1, 0);
  const at::Tensor second = Accelerator().Bytes(kTensorBytes, 2, 1);
  TorchState state;
  state.AddTensor("first", first);
  state.AddTensor("second", second);
  MustBegin(state);
  const int64_t before = MemoryAtRest(0);
  const int64_t copies = Accelerator().CopiesEnqueued();
  Accelerator().LimitMemory(1, Accelerator().MemoryTaken(1) + kTensorBytes - 1);
  const auto image = TryCopy(state);
  Accelerator().LimitMemory(1, -1);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(*image, nullptr);
  EXPECT_EQ(Accelerator().MemoryTaken(0), before);
  EXPECT_EQ(Accelerator().CopiesEnqueued(), copies);
  // The save goes on without.
  std::vector<std::byte> copy(kTensorBytes, kUntouched);
  const State::CopyRequest request{.entry = 1, .destination = copy.data()};
  ASSERT_TRUE(state.CopyToHost({&request, 1}).ok());
  EXPECT_THAT(copy, Each(std::byte{2}));
}

TEST(TorchDeviceImage, ACopyThatFailsIsAnErrorAndNothingIsKept) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1, 1);
  TorchState state;
  state.AddTensor("t", tensor);
  MustBegin(state);
  const int64_t before = MemoryAtRest(1);
  Accelerator().FailCopyAfter(0);
  const absl::Status status = TryCopy(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("copying on the device: LibTorch: the pretend accelerator was told to fail"));
  EXPECT_EQ(Accelerator().MemoryTaken(1), before);
}

TEST(TorchDeviceImage, ADrainThatFailsIsAnErrorAndLeavesNoCopyInFlight) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  const at::Tensor other = Accelerator().Bytes(kTensorBytes, 2);
  TorchState state;
  state.AddTensor("t", tensor);
  state.AddTensor("other", other);
  MustBegin(state);
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  std::vector<std::byte> copy(kTensorBytes, kUntouched);
  std::vector<std::byte> other_copy(kTensorBytes, kUntouched);
  const std::vector<State::CopyRequest> requests = {{.entry = 0, .destination = copy.data()},
                                                    {.entry = 1, .destination = other_copy.data()}};
  Accelerator().FailCopyAfter(1);
  absl::Status status = image->CopyToHost(requests);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("draining the copies on the device: LibTorch: the pretend"));
  EXPECT_THAT(copy, Each(std::byte{1}));
  EXPECT_THAT(other_copy, Each(kUntouched));
  Accelerator().FailNextSynchronize();
  status = image->CopyToHost(requests);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("draining the copies on privateuseone:0: LibTorch: "));
  EXPECT_THAT(MustDrain(*image, 1), Each(std::byte{2}));
}

TEST(TorchDeviceImage, WhatItDoesNotHoldIsRefused) {
  const at::Tensor tensor = Accelerator().Bytes(kTensorBytes, 1);
  const at::Tensor host = torch::ones({2});
  TorchState state;
  state.AddTensor("t", tensor);
  state.AddTensor("host", host);
  ASSERT_TRUE(state.Refresh().ok());
  absl::Status status = TryCopy(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()), "entry 't': copied before BeginStaging");
  ASSERT_TRUE(state.BeginStaging().ok());
  const std::vector<size_t> both = {0, 1};
  status = state.CopyOnDevice(both, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()), "entry 'host' is in host memory and needs no copy");
  const Image image = MustCopy(state);
  ASSERT_NE(image, nullptr);
  std::vector<std::byte> copy(kTensorBytes);
  const State::CopyRequest request{.entry = 1, .destination = copy.data()};
  status = image->CopyToHost({&request, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()), "entry 1 is not in the copies on the device");
}

TEST(TorchDeviceImage, OneSaveMayMakeSeveral) {
  const at::Tensor early = Accelerator().Bytes(kTensorBytes, 1);
  const at::Tensor late = Accelerator().Bytes(kTensorBytes, 2);
  TorchState state;
  state.AddTensor("early", early);
  state.AddTensor("late", late);
  MustBegin(state);
  const size_t first_entry = 0;
  const auto first = state.CopyOnDevice({&first_entry, 1}, 0);
  ASSERT_TRUE(first.ok()) << first.status();
  Accelerator().EnqueueFill(early, 9);
  std::vector<std::byte> late_copy(kTensorBytes, kUntouched);
  const State::CopyRequest request{.entry = 1, .destination = late_copy.data()};
  ASSERT_TRUE(state.CopyToHost({&request, 1}).ok());
  EXPECT_THAT(late_copy, Each(std::byte{2}));
  EXPECT_THAT(MustDrain(**first, 0), Each(std::byte{1}));
}

}  // namespace
}  // namespace tidemark
