// Tensors of LibTorch that are several boxes of a larger one (SetBoxes).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/ranks/thread_gather.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/layouts.h"
#include "tidemark/torch.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kFeatures = 4;

// A projection of 4 features to 7 query heads, 3 key heads and 3 value heads of 2 rows each.
constexpr QkvHeads kHeads{.query = 7, .key_value = 3, .head_size = 2};
constexpr int64_t kRows = 26;

// What a rank has of the projection.
struct Share {
  std::optional<TensorLayout> weight;  // none: all of it
  std::optional<TensorLayout> bias;
  std::function<at::Tensor(const at::Tensor& whole)> cut;  // of the weight, or of the bias
};
using ShareOf = std::function<Share(int32_t rank, int32_t world_size)>;

Share All(int32_t, int32_t) {
  return {.cut = [](const at::Tensor& whole) { return whole; }};
}

// Split by heads. If there are more ranks than key-value heads, the last ranks have the same one.
Share Heads(int32_t rank, int32_t world_size) {
  const ShardRange query = SplitEvenly(kHeads.query, rank, world_size);
  const ShardRange key_value = world_size > kHeads.key_value
                                   ? ShardRange{.first = std::min<int64_t>(rank, kHeads.key_value - 1), .count = 1}
                                   : SplitEvenly(kHeads.key_value, rank, world_size);
  return {.weight = FusedQkv(kHeads, query, key_value, {kFeatures}),
          .bias = FusedQkv(kHeads, query, key_value, {}),
          .cut = [=](const at::Tensor& whole) {
            return at::cat({whole.slice(0, 2 * query.first, 2 * (query.first + query.count)),
                            whole.slice(0, 14 + 2 * key_value.first, 14 + 2 * (key_value.first + key_value.count)),
                            whole.slice(0, 20 + 2 * key_value.first, 20 + 2 * (key_value.first + key_value.count))});
          }};
}

// Two ranks split it by heads, and FSDP splits what each of them has over half of the ranks.
Share HeadsAndFsdp(int32_t rank, int32_t world_size) {
  const Share outer = Heads(rank % 2, 2);
  const int64_t rows = outer.cut(torch::empty({kRows})).size(0);
  const ShardRange range = SplitInChunks(rows, rank / 2, world_size / 2);
  return {.weight = Shard(*outer.weight, 0, range),
          .bias = Shard(*outer.bias, 0, range),
          .cut = [=](const at::Tensor& whole) {
            return outer.cut(whole).slice(0, range.first, range.first + range.count);
          }};
}

// Halves of the columns, the second half first. The boxes are not contiguous in the rank's tensor.
Share SwappedColumns(int32_t rank, int32_t world_size) {
  const ShardRange rows = SplitEvenly(kRows, rank, world_size);
  return {.weight = TensorLayout{.shape = {kRows, kFeatures},
                                 .boxes = {{.begin = {0, 0}, .extent = {rows.count, 2}, .offset = {rows.first, 2}},
                                           {.begin = {0, 2}, .extent = {rows.count, 2}, .offset = {rows.first, 0}}}},
          .bias = ColumnParallel({kRows}, rows),
          .cut = [=](const at::Tensor& whole) {
            const at::Tensor cut = whole.slice(0, rows.first, rows.first + rows.count);
            return whole.dim() == 1 ? cut : at::cat({cut.slice(1, 2, 4), cut.slice(1, 0, 2)}, 1);
          }};
}

// A rank's share of the projection, and its Adam.
class Trainer {
 public:
  explicit Trainer(Share share)
      : share_(std::move(share)), optimizer_({weight(), bias()}, torch::optim::AdamOptions(0.1)) {
    state.AddModule("qkv", module_);
    state.AddOptimizer("adam", optimizer_, module_);
    if (share_.weight) state.SetBoxes(weight(), *share_.weight);
    if (share_.bias) state.SetBoxes(bias(), *share_.bias);
  }

  // So that every weight and moment is a function of its place in the projection.
  void Train() {
    const torch::NoGradGuard no_grad;
    weight().copy_(share_.cut(Weight(0)));
    bias().copy_(share_.cut(Bias(0)));
    weight().mutable_grad() = share_.cut(Weight(1000)).contiguous();
    bias().mutable_grad() = share_.cut(Bias(2000)).contiguous();
    optimizer_.step();
  }

  // Whether it has, bit for bit, what one has that trained.
  bool IsTrained() {
    Trainer other(share_);
    other.Train();
    return torch::equal(weight(), other.weight()) && torch::equal(bias(), other.bias()) &&
           AreSame(weight(), other, other.weight()) && AreSame(bias(), other, other.bias());
  }

  at::Tensor& weight() { return module_.weight; }
  at::Tensor& bias() { return module_.bias; }

  // Adam's, or null. The map's keys are text in some versions of LibTorch, and addresses in others.
  torch::optim::AdamParamState* Kept(const at::Tensor& parameter) {
    for (auto& [key, kept] : optimizer_.state()) {
      auto& adam = static_cast<torch::optim::AdamParamState&>(*kept);
      if (adam.exp_avg().sizes() == parameter.sizes()) return &adam;
    }
    return nullptr;
  }

 private:
  struct Projection : torch::nn::Module {
    explicit Projection(const Share& share)
        : weight(register_parameter("weight", share.cut(torch::zeros({kRows, kFeatures})).clone())),
          bias(register_parameter("bias", share.cut(torch::zeros({kRows})).clone())) {}
    at::Tensor weight;
    at::Tensor bias;
  };

  static at::Tensor Weight(int64_t from) {
    return torch::arange(from, from + kRows * kFeatures, torch::kFloat32).view({kRows, kFeatures});
  }
  static at::Tensor Bias(int64_t from) { return torch::arange(from, from + kRows, torch::kFloat32); }

  bool AreSame(const at::Tensor& own, Trainer& other, const at::Tensor& others) {
    const auto* kept = Kept(own);
    const auto* expected = other.Kept(others);
    if (kept == nullptr || expected == nullptr) return false;
    return kept->step() == expected->step() && torch::equal(kept->exp_avg(), expected->exp_avg()) &&
           torch::equal(kept->exp_avg_sq(), expected->exp_avg_sq());
  }

  const Share share_;
  Projection module_{share_};
  torch::optim::Adam optimizer_;

 public:
  TorchState state;
};

using UseOfTrainer = std::function<absl::Status(AsyncCheckpointer& checkpointer, Trainer& trainer)>;

// Each rank is a thread that opens the store and calls `use`.
std::vector<absl::Status> OnRanks(const std::string& directory, const ShareOf& share_of, int32_t world_size,
                                  const UseOfTrainer& use, const std::vector<std::string>& replicated = {"*"}) {
  ThreadGather gather(world_size);
  return OnEachRank(world_size, [&](int32_t rank) -> absl::Status {
    const auto all_gather = [&](const std::string& bytes) { return gather.Gather(rank, bytes); };
    auto checkpointer = AsyncCheckpointer::Open(
        {.directory = directory,
         .ranks = {.rank = rank, .world_size = world_size, .all_gather = all_gather, .replicated = replicated}});
    if (!checkpointer.ok()) return checkpointer.status();
    Trainer trainer(share_of(rank, world_size));
    if (absl::Status status = use(**checkpointer, trainer); !status.ok()) return status;
    return (*checkpointer)->Close();
  });
}

absl::Status SaveTrained(AsyncCheckpointer& checkpointer, Trainer& trainer) {
  trainer.Train();
  auto save = checkpointer.Save(10, trainer.state);
  return save.ok() ? save->committed().Wait() : save.status();
}

class TorchLayoutsTest : public testing::Test {
 protected:
  // Into an optimizer that has not stepped, and into one that has, whose tensors stay where they are.
  void ExpectRestored(const ShareOf& share_of, int32_t world_size, const std::vector<std::string>& replicated = {"*"}) {
    for (const bool has_stepped : {false, true}) {
      const auto restored = OnRanks(
          store_, share_of, world_size,
          [&](AsyncCheckpointer& checkpointer, Trainer& trainer) {
            const void* before = nullptr;
            if (has_stepped) {
              trainer.Train();
              const torch::NoGradGuard no_grad;
              trainer.weight().zero_();
              trainer.Kept(trainer.weight())->exp_avg().zero_();
              before = trainer.Kept(trainer.weight())->exp_avg().data_ptr();
            }
            const absl::Status status = checkpointer.RestoreLatest(trainer.state).status();
            EXPECT_TRUE(trainer.IsTrained());
            if (has_stepped) {
              EXPECT_EQ(trainer.Kept(trainer.weight())->exp_avg().data_ptr(), before);
            }
            return status;
          },
          replicated);
      EXPECT_THAT(restored, Each(IsOk())) << world_size << " ranks" << (has_stepped ? " that have stepped" : "");
    }
  }

  const storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
};

TEST_F(TorchLayoutsTest, FusedQkvIsRestoredByAnyNumberOfRanks) {
  ASSERT_THAT(OnRanks(store_, Heads, 4, SaveTrained), Each(IsOk()));
  for (const int32_t world_size : {4, 3, 2, 1}) ExpectRestored(Heads, world_size);
  ExpectRestored(All, 1);
}

// Each rank has all that it needs in its own shard, several boxes of one tensor too, unless the layout is another one.
TEST_F(TorchLayoutsTest, RanksThatAreStartedAgainReadWhatTheyHaveSaved) {
  const std::vector<std::string> none;
  ASSERT_THAT(OnRanks(store_, Heads, 3, SaveTrained, none), Each(IsOk()));
  ExpectRestored(Heads, 3, none);
  ExpectRestored(SwappedColumns, 3, none);
  ExpectRestored(Heads, 2, none);
}

TEST_F(TorchLayoutsTest, AWholeProjectionIsRestoredByRanksThatSplitIt) {
  ASSERT_THAT(OnRanks(store_, All, 1, SaveTrained), Each(IsOk()));
  ExpectRestored(Heads, 4);
  ExpectRestored(HeadsAndFsdp, 6);
  ExpectRestored(SwappedColumns, 2);
}

TEST_F(TorchLayoutsTest, FusedQkvThatFsdpSplitsTooIsRestoredByAnyNumberOfRanks) {
  ASSERT_THAT(OnRanks(store_, HeadsAndFsdp, 6, SaveTrained), Each(IsOk()));
  ExpectRestored(HeadsAndFsdp, 4);
  ExpectRestored(Heads, 3);
  ExpectRestored(All, 1);
}

TEST_F(TorchLayoutsTest, BoxesThatAreNotContiguousAreRestored) {
  ASSERT_THAT(OnRanks(store_, SwappedColumns, 3, SaveTrained), Each(IsOk()));
  ExpectRestored(SwappedColumns, 2);
  ExpectRestored(All, 1);
}

// The entries of that name, in their order.
std::vector<State::Entry> EntriesOf(const State& state, const std::string& name) {
  std::vector<State::Entry> entries;
  for (const State::Entry& entry : state.entries()) {
    if (entry.spec.name == name) entries.push_back(entry);
  }
  return entries;
}

TEST(TorchLayoutStateTest, EachBoxIsAnEntry) {
  Trainer trainer(Heads(1, 3));  // 2 query heads from 3 on, and 1 key-value head from 1 on
  trainer.Train();
  ASSERT_THAT(trainer.state.Refresh(), IsOk());
  for (const char* name : {"qkv.weight", "adam.weight.exp_avg", "adam.weight.exp_avg_sq"}) {
    const std::vector<State::Entry> entries = EntriesOf(trainer.state, name);
    ASSERT_EQ(entries.size(), 3u) << name;
    for (const State::Entry& entry : entries) EXPECT_THAT(entry.spec.shape, ElementsAre(kRows, kFeatures)) << name;
    EXPECT_THAT(entries[0].spec.box_offset, ElementsAre(6, 0)) << name;
    EXPECT_THAT(entries[0].spec.box_extent, ElementsAre(4, kFeatures)) << name;
    EXPECT_THAT(entries[1].spec.box_offset, ElementsAre(16, 0)) << name;
    EXPECT_THAT(entries[1].spec.box_extent, ElementsAre(2, kFeatures)) << name;
    EXPECT_THAT(entries[2].spec.box_offset, ElementsAre(22, 0)) << name;
    EXPECT_EQ(entries[2].bytes, 2 * kFeatures * sizeof(float)) << name;
  }
  EXPECT_EQ(EntriesOf(trainer.state, "adam.weight.step").size(), 1u);
  const std::vector<State::Entry> weight = EntriesOf(trainer.state, "qkv.weight");
  auto* begin = static_cast<std::byte*>(trainer.weight().data_ptr());
  EXPECT_EQ(weight[0].host, begin);
  EXPECT_EQ(weight[2].host, begin + 6 * kFeatures * sizeof(float)) << "in the tensor's own memory";
  // What Adam keeps for a box is copied behind that box.
  const auto moment = EntriesOf(trainer.state, "adam.weight.exp_avg");
  for (size_t i = 0; i < 3; ++i) {
    const State::Entry& leader = trainer.state.entries()[static_cast<size_t>(moment[i].staged_with)];
    EXPECT_EQ(leader.spec, weight[i].spec);
  }
}

TEST(TorchLayoutStateTest, ALaterRefreshFindsTheSameStructure) {
  Trainer trainer(Heads(0, 2));
  trainer.Train();
  ASSERT_THAT(trainer.state.Refresh(), IsOk());
  const uint64_t version = trainer.state.structure_version();
  trainer.Train();
  ASSERT_THAT(trainer.state.Refresh(), IsOk());
  EXPECT_EQ(trainer.state.structure_version(), version);
  const torch::NoGradGuard no_grad;
  trainer.weight().set_data(trainer.weight().clone());
  ASSERT_THAT(trainer.state.Refresh(), IsOk());
  EXPECT_EQ(trainer.state.structure_version(), version) << "only its memory is another one";
  EXPECT_EQ(EntriesOf(trainer.state, "qkv.weight")[0].host, static_cast<std::byte*>(trainer.weight().data_ptr()));
}

TEST(TorchLayoutStateTest, TiedTensorsAreTheSameBoxes) {
  const at::Tensor one = torch::zeros({4, 2});
  TorchState state;
  state.AddTensor("one", one);
  state.AddTensor("other", one.view({4, 2}));
  state.SetBoxes(one, FusedColumns({{4, {2, 2}}, {4, {0, 2}}}, {2}));
  ASSERT_THAT(state.Refresh(), IsOk());
  ASSERT_EQ(state.entries().size(), 4u);
  for (size_t i : {0u, 1u}) {
    EXPECT_EQ(state.entries()[2 + i].spec.name, "other");
    EXPECT_EQ(state.entries()[2 + i].alias_of, static_cast<int64_t>(i));
    EXPECT_EQ(state.entries()[2 + i].spec.box_offset, state.entries()[i].spec.box_offset);
  }
}

TEST(TorchLayoutStateTest, BoxesWithoutElementsAreLeftOutWhereThereAreOthers) {
  TorchState state;
  const at::Tensor some = torch::zeros({2, 3});
  const at::Tensor none = torch::zeros({0, 3});
  state.AddTensor("some", some);
  state.AddTensor("none", none);
  state.SetBoxes(some, {.shape = {8, 3},
                        .boxes = {{.begin = {0, 0}, .extent = {0, 3}, .offset = {8, 0}},
                                  {.begin = {0, 0}, .extent = {2, 3}, .offset = {2, 0}}}});
  state.SetBoxes(none, {.shape = {8, 3},
                        .boxes = {{.begin = {0, 0}, .extent = {0, 3}, .offset = {4, 0}},
                                  {.begin = {0, 0}, .extent = {0, 3}, .offset = {4, 0}}}});
  ASSERT_THAT(state.Refresh(), IsOk());
  ASSERT_EQ(EntriesOf(state, "some").size(), 1u);
  EXPECT_THAT(EntriesOf(state, "some")[0].spec.box_offset, ElementsAre(2, 0));
  ASSERT_EQ(EntriesOf(state, "none").size(), 1u);
  EXPECT_THAT(EntriesOf(state, "none")[0].spec.box_extent, ElementsAre(0, 3));
}

// The error of a tensor [4, 2] with these boxes of a tensor [8, 2].
absl::Status WithBoxes(std::vector<TensorBox> boxes) {
  TorchState state;
  const at::Tensor tensor = torch::zeros({4, 2});
  state.AddTensor("t", tensor);
  state.SetBoxes(tensor, {.shape = {8, 2}, .boxes = std::move(boxes)});
  return state.Refresh();
}

TEST(TorchLayoutStateTest, ALayoutThatDoesNotFitTheTensorIsAnError) {
  const auto is_refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  const TensorBox first{.begin = {0, 0}, .extent = {2, 2}, .offset = {0, 0}};
  const TensorBox second{.begin = {2, 0}, .extent = {2, 2}, .offset = {6, 0}};
  const auto changed = [](TensorBox box, std::vector<int64_t> TensorBox::*member, std::vector<int64_t> value) {
    box.*member = std::move(value);
    return box;
  };
  EXPECT_THAT(WithBoxes({first, second}), IsOk());
  EXPECT_THAT(WithBoxes({}), is_refused("SetBoxes: the layout has no box"));
  EXPECT_THAT(WithBoxes({first}), is_refused("the boxes have 4 elements, and the rank's tensor of [4, 2] has 8"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::begin, {1, 0})}),
              is_refused("boxes 0 and 1 overlap in the rank's tensor"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::offset, {1, 0})}),
              is_refused("boxes 0 and 1 overlap in the tensor of [8, 2]"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::offset, {7, 0})}),
              is_refused("box 1 of [2, 2] at [7, 0] is no box of a tensor of [8, 2]"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::offset, {-1, 0})}), is_refused("is no box of a tensor"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::offset, {INT64_MAX, 0})}), is_refused("is no box"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::offset, {6})}), is_refused("is no box of a tensor"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::extent, {-2, 2})}), is_refused("is no box of a tensor"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::begin, {3, 0})}),
              is_refused("box 1 of [2, 2] from [3, 0] on is not in the rank's tensor, which has [4, 2]"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::begin, {-1, 0})}),
              is_refused("is not in the rank's tensor"));
  EXPECT_THAT(WithBoxes({first, changed(second, &TensorBox::begin, {2})}), is_refused("is not in the rank's tensor"));
}

// Rods along three axes, woven through each other.
TEST(TorchLayoutStateTest, BoxesThatCannotBeToldApartAreAnError) {
  constexpr int64_t kSide = 100;
  TensorLayout layout{.shape = {kSide, kSide, kSide}, .boxes = {}};
  for (int64_t i = 0; i < kSide; i += 2) {
    for (int64_t j = 0; j < kSide; j += 2) {
      layout.boxes.push_back({.begin = {}, .extent = {kSide, 1, 1}, .offset = {0, i, j + 1}});
      layout.boxes.push_back({.begin = {}, .extent = {1, kSide, 1}, .offset = {i + 1, 0, j}});
      layout.boxes.push_back({.begin = {}, .extent = {1, 1, kSide}, .offset = {i, j + 1, 0}});
    }
  }
  for (TensorBox& box : layout.boxes) box.begin = box.offset;
  TorchState state;
  const at::Tensor tensor = torch::zeros({kSide, kSide, kSide}, torch::kByte);
  state.AddTensor("t", tensor);
  state.SetBoxes(tensor, layout);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("7500 boxes lie so that it takes too long to tell them apart")));
}

TEST(TorchLayoutStateTest, AnUndefinedTensorIsAnError) {
  TorchState state;
  state.SetBoxes({}, WholeTensor({3}));
  EXPECT_THAT(state.Refresh(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("SetBoxes: the tensor is undefined")));
  state.ClearBoxes();
  EXPECT_THAT(state.Refresh(), IsOk());
}

TEST(TorchLayoutStateTest, ATensorThatIsResizedIsAnError) {
  at::Tensor tensor = torch::zeros({4, 2});
  TorchState state;
  state.AddTensor("t", tensor);
  state.SetBoxes(tensor, FusedColumns({{4, {2, 2}}, {4, {0, 2}}}, {2}));
  ASSERT_THAT(state.Refresh(), IsOk());
  tensor.resize_({5, 2});
  EXPECT_THAT(state.Refresh(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("entry 't' has the shape [5, 2], and had [4, 2] when SetBoxes said where it lies")));
  state.SetBoxes(tensor, FusedColumns({{4, {1, 3}}, {4, {0, 2}}}, {2}));
  EXPECT_THAT(state.Refresh(), IsOk());
}

// From a device, and converted: neither has its bytes where the checkpointer could read them.
TEST_F(TorchLayoutsTest, BoxesMayBeOnADeviceAndOfAnotherDtype) {
  // The second half of the larger tensor, and then the first.
  const TensorLayout layout{
      .shape = {8},
      .boxes = {{.begin = {0}, .extent = {4}, .offset = {4}}, {.begin = {4}, .extent = {4}, .offset = {0}}}};
  auto checkpointer = AsyncCheckpointer::Open({.directory = store_});
  ASSERT_THAT(checkpointer, IsOk());
  const at::Tensor on_device = PretendAccelerator::Get().Bytes(8, 7);
  PretendAccelerator::Get().EnqueueFill(on_device.narrow(0, 4, 4), 9);
  const at::Tensor numbers = torch::arange(8, torch::kFloat32) + 0.5f;
  TorchState state;
  state.AddTensor("on_device", on_device);
  state.AddTensor("numbers", numbers);
  state.SetBoxes(on_device, layout);
  state.SetBoxes(numbers, layout);
  state.set_saved_dtype({"numbers"}, Dtype::kBfloat16);
  auto save = (*checkpointer)->Save(1, state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());

  TorchState restored;
  const at::Tensor device_target = PretendAccelerator::Get().Bytes(8, 0);
  const at::Tensor target = torch::zeros({8});
  restored.AddTensor("on_device", device_target);  // as it was saved
  restored.AddTensor("numbers", target);           // in the order of the larger tensor
  restored.SetBoxes(device_target, layout);
  EXPECT_THAT((*checkpointer)->RestoreLatest(restored),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype")));
  restored.set_converts_dtypes(true);
  EXPECT_THAT((*checkpointer)->RestoreLatest(restored), IsOk());
  EXPECT_TRUE(torch::equal(target, torch::roll(numbers, 4)));
  EXPECT_TRUE(torch::equal(device_target.to(at::kCPU), torch::tensor({7, 7, 7, 7, 9, 9, 9, 9}, torch::kByte)));
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
