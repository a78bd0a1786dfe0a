// Restores that convert floating-point tensors because they were told to.

#include <cmath>
#include <limits>
#include <string>

#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::HasSubstr;

// A layer that has stepped once, with momentum.
struct SteppedLayer {
  explicit SteppedLayer(at::ScalarType dtype) {
    layer->to(dtype);
    state.AddModule("model", *layer);
    state.AddOptimizer("optimizer", optimizer, *layer);
    Step();
  }
  void Step() {
    optimizer.zero_grad();
    layer->forward(torch::ones({2, 3}, layer->weight.options().requires_grad(false))).sum().backward();
    optimizer.step();
  }
  at::Tensor momentum() {
    auto& kept = *optimizer.state().begin()->second;
    return static_cast<torch::optim::SGDParamState&>(kept).momentum_buffer();
  }

  torch::nn::Linear layer{3, 2};
  torch::optim::SGD optimizer{{layer->weight}, torch::optim::SGDOptions(0.1).momentum(0.9)};
  TorchState state;
};

// What restoring `saved` into a state of `held` gives, or the error.
absl::StatusOr<at::Tensor> RestoredInto(at::Tensor held, const at::Tensor& saved, bool converts = true) {
  TorchState saver;
  saver.AddTensor("t", saved);
  const auto checkpoint = SaveToMemory(saver);
  if (!checkpoint.ok()) return checkpoint.status();
  TorchState state;
  state.AddTensor("t", held);
  state.set_converts_dtypes(converts);
  if (absl::Status status = RestoreFromMemory(state, *checkpoint); !status.ok()) return status;
  return held;
}

TEST(TorchConversion, OfAModelAndItsMomentsThroughACheckpointer) {
  const storage::TestDirectory directory;
  auto opened = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(opened, IsOk());
  AsyncCheckpointer& checkpointer = **opened;
  SteppedLayer narrow(at::kBFloat16);
  auto save = checkpointer.Save(1, narrow.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());

  SteppedLayer wide(at::kFloat);
  const at::Tensor before = wide.layer->weight.detach().clone();
  EXPECT_THAT(checkpointer.RestoreLatest(wide.state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype: checkpoint has bfloat16")));
  EXPECT_TRUE(at::equal(wide.layer->weight, before));

  wide.state.set_converts_dtypes(true);
  ASSERT_THAT(checkpointer.RestoreLatest(wide.state), IsOk());
  EXPECT_EQ(wide.layer->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(wide.layer->weight, narrow.layer->weight.to(at::kFloat)));
  EXPECT_EQ(wide.momentum().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(wide.momentum(), narrow.momentum().to(at::kFloat)));

  // Saves have the state's own dtype again.
  wide.Step();
  const at::Tensor stepped = wide.layer->weight.detach().clone();
  save = checkpointer.Save(2, wide.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  wide.state.set_converts_dtypes(false);
  wide.Step();
  ASSERT_THAT(checkpointer.RestoreLatest(wide.state), IsOk());
  EXPECT_TRUE(at::equal(wide.layer->weight, stepped));
}

TEST(TorchConversion, RoundsAndOverflowsAsLibTorchDoes) {
  const at::Tensor saved = torch::tensor({1.0 / 3, 1e300, -0.0}, at::kDouble);
  const auto restored = RestoredInto(torch::zeros({3}, at::kHalf), saved);
  ASSERT_THAT(restored, IsOk());
  EXPECT_TRUE(at::equal(*restored, saved.to(at::kHalf)));
  EXPECT_EQ((*restored)[1].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit((*restored)[2].item<float>()));
}

TEST(TorchConversion, IsNotOfIntegersOrShapesAndNotWithoutBeingAskedFor) {
  EXPECT_EQ(RestoredInto(torch::zeros({2}), torch::ones({2}, at::kLong)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RestoredInto(torch::zeros({2}, at::kLong), torch::ones({2})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RestoredInto(torch::zeros({2}), torch::ones({3}, at::kDouble)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RestoredInto(torch::zeros({2}), torch::ones({2}, at::kDouble), /*converts=*/false).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TorchConversion, OfTensorsOutOfOrderAndOnADevice) {
  const at::Tensor saved = torch::randn({3, 4});
  auto restored = RestoredInto(torch::zeros({4, 3}, at::kDouble).t(), saved);
  ASSERT_THAT(restored, IsOk());
  EXPECT_TRUE(at::equal(*restored, saved.to(at::kDouble)));
  restored = RestoredInto(torch::zeros({3, 4}, at::kBFloat16).to(PretendAccelerator::Device()), saved);
  ASSERT_THAT(restored, IsOk());
  EXPECT_TRUE(at::equal(restored->to(at::kCPU), saved.to(at::kBFloat16)));
}

TEST(TorchConversion, RefusesBytesOfAnotherLength) {
  TorchState state;
  state.AddTensor("t", torch::zeros({3}));
  state.set_converts_dtypes(true);
  const EntrySpec saved{.name = "t", .dtype = Dtype::kFloat64, .shape = {3}};
  ASSERT_THAT(state.PrepareRestore({&saved, 1}), IsOk());
  EXPECT_THAT(state.Receive(0, std::vector<std::byte>(12)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("12 bytes arrived for a tensor of 24")));
  state.AbandonRestore();
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].spec.dtype, Dtype::kFloat32);
  EXPECT_EQ(state.entries()[0].bytes, 12u);
}

}  // namespace
}  // namespace tidemark
