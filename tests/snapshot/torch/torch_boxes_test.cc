// Tensors of LibTorch that several ranks hold together.

#include "snapshot/torch/torch_boxes.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/ranks/thread_gather.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kIn = 6;
constexpr int64_t kOut = 12;

// This rank's part of a Linear, split by output or by input features, and its Adam.
class Part {
 public:
  enum class Split { kOutput, kInput };

  Part(Split split, int32_t rank, int32_t world_size)
      : dimension_(split == Split::kOutput ? 0 : 1),
        first_(Size() * rank / world_size),
        end_(Size() * (rank + 1) / world_size),
        linear_(split == Split::kOutput ? torch::nn::Linear(kIn, end_ - first_)
                                        : torch::nn::Linear(end_ - first_, kOut)),
        optimizer_(linear_->parameters(), torch::optim::AdamOptions(0.1)) {
    state.AddModule("linear", *linear_);
    state.SetBox(linear_->weight, {kOut, kIn}, {dimension_ == 0 ? first_ : 0, dimension_ == 0 ? 0 : first_});
    if (split == Split::kOutput) state.SetBox(linear_->bias, {kOut}, {first_});
    state.AddOptimizer("adam", optimizer_, *linear_);
  }

  // So that every weight and moment is a function of its place.
  void Train() {
    const torch::NoGradGuard no_grad;
    linear_->weight.copy_(Cut(Whole(0)));
    linear_->bias.copy_(CutBias(torch::arange(kOut, torch::kFloat32)));
    linear_->weight.mutable_grad() = Cut(Whole(1000)).contiguous();
    linear_->bias.mutable_grad() = torch::ones_like(linear_->bias);
    optimizer_.step();
  }
  // Whether it has what those had that trained.
  bool IsTrained() {
    Part other(dimension_ == 0 ? Split::kOutput : Split::kInput, first_, end_);
    other.Train();
    return torch::equal(linear_->weight, other.linear_->weight) && torch::equal(linear_->bias, other.linear_->bias) &&
           torch::equal(Moment(), other.Moment());
  }
  at::Tensor Moment() {
    auto& states = optimizer_.state();
    for (auto& [key, held] : states) {
      auto& adam = static_cast<torch::optim::AdamParamState&>(*held);
      if (adam.exp_avg().dim() == 2) return adam.exp_avg();
    }
    return {};
  }

  TorchState state;

 private:
  Part(Split split, int64_t first, int64_t end)
      : dimension_(split == Split::kOutput ? 0 : 1),
        first_(first),
        end_(end),
        linear_(split == Split::kOutput ? torch::nn::Linear(kIn, end - first) : torch::nn::Linear(end - first, kOut)),
        optimizer_(linear_->parameters(), torch::optim::AdamOptions(0.1)) {}

  int64_t Size() const { return dimension_ == 0 ? kOut : kIn; }
  static at::Tensor Whole(int64_t from) {
    return torch::arange(from, from + kOut * kIn, torch::kFloat32).view({kOut, kIn});
  }
  at::Tensor Cut(const at::Tensor& whole) const { return whole.slice(dimension_, first_, end_); }
  at::Tensor CutBias(const at::Tensor& whole) const { return dimension_ == 0 ? whole.slice(0, first_, end_) : whole; }

  const int64_t dimension_;
  const int64_t first_;
  const int64_t end_;
  torch::nn::Linear linear_;
  torch::optim::Adam optimizer_;
};

using Use = std::function<absl::Status(AsyncCheckpointer& checkpointer, Part& part)>;

// Each rank is a thread that opens the store and calls `use`.
std::vector<absl::Status> OnRanks(const std::string& directory, Part::Split split, int32_t world_size, const Use& use) {
  ThreadGather gather(world_size);
  return OnEachRank(world_size, [&](int32_t rank) -> absl::Status {
    const auto all_gather = [&](const std::string& bytes) { return gather.Gather(rank, bytes); };
    auto checkpointer = AsyncCheckpointer::Open(
        {.directory = directory,
         .ranks = {.rank = rank, .world_size = world_size, .all_gather = all_gather, .replicated = {"*"}}});
    if (!checkpointer.ok()) return checkpointer.status();
    Part part(split, rank, world_size);
    if (absl::Status status = use(**checkpointer, part); !status.ok()) return status;
    return (*checkpointer)->Close();
  });
}

class TorchBoxesTest : public testing::TestWithParam<Part::Split> {
 protected:
  const storage::TestDirectory directory_;
};

TEST_P(TorchBoxesTest, AreRestoredByAnyNumberOfRanks) {
  const std::string store = directory_ / "store";
  ASSERT_THAT(OnRanks(store, GetParam(), 3,
                      [](AsyncCheckpointer& checkpointer, Part& part) {
                        part.Train();
                        auto save = checkpointer.Save(10, part.state);
                        return save.ok() ? save->committed().Wait() : save.status();
                      }),
              Each(IsOk()));
  // Into an optimizer that has not stepped, and into one that has.
  for (const bool has_stepped : {false, true}) {
    for (const int32_t world_size : {1, 2, 3, 5}) {
      EXPECT_THAT(OnRanks(store, GetParam(), world_size,
                          [&](AsyncCheckpointer& checkpointer, Part& part) {
                            if (has_stepped) part.Train();
                            const at::Tensor before = part.Moment();
                            if (has_stepped) before.zero_();
                            const absl::Status restored =
                                checkpointer.RestoreLatest(part.state, {.allow_unexpected = true}).status();
                            EXPECT_TRUE(part.IsTrained());
                            if (has_stepped) {
                              EXPECT_EQ(before.data_ptr(), part.Moment().data_ptr()) << "in place";
                            }
                            return restored;
                          }),
                  Each(IsOk()))
          << world_size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, TorchBoxesTest, testing::Values(Part::Split::kOutput, Part::Split::kInput),
                         [](const auto& info) { return info.param == Part::Split::kOutput ? "Output" : "Input"; });

TEST(TorchBoxStateTest, WhatTheOptimizerKeepsIsABoxToo) {
  Part part(Part::Split::kOutput, 1, 3);
  part.Train();
  ASSERT_THAT(part.state.Refresh(), IsOk());
  for (const char* name : {"linear.weight", "adam.weight.exp_avg", "adam.weight.exp_avg_sq"}) {
    const EntrySpec& spec = FindEntry(part.state, name).spec;
    EXPECT_THAT(spec.shape, ElementsAre(kOut, kIn)) << name;
    EXPECT_THAT(spec.box_offset, ElementsAre(4, 0)) << name;
    EXPECT_THAT(spec.box_extent, ElementsAre(4, kIn)) << name;
  }
  EXPECT_THAT(FindEntry(part.state, "adam.bias.exp_avg").spec.box_offset, ElementsAre(4));
  EXPECT_TRUE(FindEntry(part.state, "adam.weight.step").spec.whole());
}

// On another rank it may be empty.
TEST(TorchBoxStateTest, ABoxMayBeTheWholeTensor) {
  TorchState state;
  state.AddBox("t", torch::zeros({3, 2}), {3, 2}, {0, 0});
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_THAT(FindEntry(state, "t").spec.box_extent, ElementsAre(3, 2));
}

TEST(TorchBoxStateTest, TheLastCallCounts) {
  const at::Tensor tensor = torch::zeros({3});
  TorchState state;
  state.AddBox("t", tensor, {10}, {0});
  ASSERT_THAT(state.Refresh(), IsOk());
  state.SetBox(tensor, {10}, {7});
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_THAT(FindEntry(state, "t").spec.box_offset, ElementsAre(7));
}

TEST(TorchBoxStateTest, WhatIsNoBoxIsAnError) {
  const auto refreshed = [](at::Tensor tensor, std::vector<int64_t> shape, std::vector<int64_t> offset) {
    TorchState state;
    state.AddBox("t", std::move(tensor), std::move(shape), std::move(offset));
    return state.Refresh();
  };
  const auto is_refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  const at::Tensor tensor = torch::zeros({3, 2});
  TorchState undefined;
  undefined.SetBox({}, {3}, {0});
  EXPECT_THAT(undefined.Refresh(), is_refused("SetBox: the tensor is undefined"));
  EXPECT_THAT(refreshed(tensor, {6}, {0}), is_refused("a tensor of [3, 2] at [0] is no box of a tensor of [6]"));
  EXPECT_THAT(refreshed(tensor, {6, 2}, {0}), is_refused("is no box"));
  EXPECT_THAT(refreshed(tensor, {6, 2}, {-1, 0}), is_refused("is no box"));
  EXPECT_THAT(refreshed(tensor, {6, 2}, {4, 0}), is_refused("is no box"));
  EXPECT_THAT(refreshed(tensor, {6, 1}, {0, 0}), is_refused("is no box"));
  EXPECT_THAT(refreshed(tensor, {6, 2}, {INT64_MAX, 0}), is_refused("is no box"));
  EXPECT_THAT(refreshed(tensor, {6, 2}, {3, 0}), IsOk());
}

TEST(TorchBoxStateTest, ATensorThatIsResizedIsAnError) {
  at::Tensor tensor = torch::zeros({3});
  TorchState state;
  state.AddBox("t", tensor, {10}, {0});
  ASSERT_THAT(state.Refresh(), IsOk());
  tensor.resize_({4});
  const auto resized =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("entry 't' has the shape [4], and had [3]"));
  EXPECT_THAT(state.Refresh(), resized);
  EXPECT_THAT(state.Refresh(), resized) << "and stays one";
  state.SetBox(tensor, {10}, {0});
  EXPECT_THAT(state.Refresh(), IsOk());
}

// Else its part would be taken for the whole tensor.
TEST(TorchBoxStateTest, ATensorThatTheStateLacksIsAnError) {
  const auto is_missing =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the state does not have the tensor of [2, 6]"));
  struct Holder : torch::nn::Module {
    Holder() { weight = register_parameter("weight", torch::zeros({2, kIn})); }
    void Replace() { parameters_["weight"] = weight = torch::ones({2, kIn}, torch::requires_grad()); }
    at::Tensor weight;
  };
  Holder holder;
  TorchState state;
  state.AddModule("m", holder);
  state.SetBox(holder.weight.detach(), {kOut, kIn}, {0, 0});
  EXPECT_THAT(state.Refresh(), is_missing);
  state.ClearBoxes();
  EXPECT_THAT(state.Refresh(), IsOk());
  state.SetBox(holder.weight, {kOut, kIn}, {0, 0});
  ASSERT_THAT(state.Refresh(), IsOk());
  for (int i = 0; i < 100; ++i) {  // one of them would lie where the first one was
    holder.Replace();
    EXPECT_THAT(state.Refresh(), is_missing);
  }
  state.ClearBoxes();
  state.SetBox(holder.weight, {kOut, kIn}, {4, 0});
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_THAT(FindEntry(state, "m.weight").spec.box_offset, ElementsAre(4, 0));
}

// Whichever of them SetBox was called for.
TEST(TorchBoxStateTest, TiedTensorsAreOneBox) {
  for (const bool first : {false, true}) {
    const at::Tensor one = torch::zeros({3});
    const at::Tensor other = one.view({3});
    TorchState state;
    state.AddTensor("one", one);
    state.AddTensor("other", other);
    state.SetBox(first ? one : other, {10}, {7});
    ASSERT_THAT(state.Refresh(), IsOk());
    EXPECT_EQ(FindEntry(state, "other").alias_of, 0);
    for (const char* name : {"one", "other"})
      EXPECT_THAT(FindEntry(state, name).spec.box_offset, ElementsAre(7)) << name;
  }
}

TEST(TorchBoxStateTest, AnOptimizerWithOneStateForAllIsRefused) {
  torch::nn::Linear linear(kIn, 2);
  torch::optim::LBFGS optimizer(linear->parameters());
  TorchState state;
  state.AddModule("linear", *linear);
  state.AddOptimizer("lbfgs", optimizer, *linear);
  EXPECT_THAT(state.Refresh(), IsOk());
  state.SetBox(linear->weight, {kOut, kIn}, {0, 0});
  EXPECT_THAT(state.Refresh(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("optimizer 'lbfgs' keeps one state")));
}

TEST(TorchBoxStateTest, BoxesMayBeOnADeviceAndOfAnotherDtype) {
  TorchState state;
  state.AddBox("on_device", PretendAccelerator::Get().Bytes(8, 7), {20}, {12});
  state.AddBox("converted", torch::full({2}, 1.5f), {4}, {2});
  state.set_saved_dtype({"converted"}, Dtype::kBfloat16);
  const auto checkpoint = SaveToMemory(state);
  ASSERT_THAT(checkpoint, IsOk());
  const auto& on_device = checkpoint->items.at("on_device");
  EXPECT_THAT(on_device.spec.box_offset, ElementsAre(12));
  EXPECT_EQ(on_device.bytes, std::vector<std::byte>(8, std::byte{7}));
  const auto& converted = checkpoint->items.at("converted");
  EXPECT_EQ(converted.spec.dtype, Dtype::kBfloat16);
  EXPECT_THAT(converted.spec.box_extent, ElementsAre(2));
  EXPECT_EQ(converted.bytes,
            (std::vector<std::byte>{std::byte{0xc0}, std::byte{0x3f}, std::byte{0xc0}, std::byte{0x3f}}));
}

}  // namespace
}  // namespace tidemark
