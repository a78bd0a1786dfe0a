// Tensors of LibTorch that have a range of the elements of several parameters (SetFlatShard).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
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

// The parameters of a model in the order of its named_parameters(), and padding.
const std::vector<FlatParameter>& ParametersOfModel() {
  static const auto* parameters = new std::vector<FlatParameter>{
      {"embedding", {5, 3}}, {"block.weight", {4, 3, 2}}, {"block.bias", {4}}, {"", {3}}, {"head.weight", {2, 3}}};
  return *parameters;
}
constexpr int64_t kElements = 15 + 24 + 4 + 3 + 6;

// The tensor of a parameter in `flat`, which has all elements.
at::Tensor CutParameter(const std::string& name, const at::Tensor& flat) {
  int64_t begin = 0;
  for (const FlatParameter& parameter : ParametersOfModel()) {
    int64_t count = 1;
    for (const int64_t size : parameter.shape) count *= size;
    if (parameter.name == name) return flat.slice(0, begin, begin + count).view(parameter.shape);
    begin += count;
  }
  throw std::out_of_range(name);
}

// 1 for each element, 0 for padding.
at::Tensor MaskOfParameters() {
  at::Tensor mask = torch::zeros({kElements});
  for (const FlatParameter& parameter : ParametersOfModel()) {
    if (!parameter.name.empty()) CutParameter(parameter.name, mask).fill_(1);
  }
  return mask;
}

using AdamState = torch::optim::AdamParamState;

// What trains: the whole model, or a rank's shard of it.
class FlatTrainer {
 public:
  virtual ~FlatTrainer() = default;

  // So that every element, and what Adam keeps for it, is a function of its place.
  void Train() {
    const torch::NoGradGuard no_grad;
    const at::Tensor values = torch::arange(kElements, torch::kFloat32);
    ForEach([&](const at::Tensor& parameter, const std::function<at::Tensor(const at::Tensor&)>& cut) {
      parameter.copy_(cut(values));
      parameter.mutable_grad() = cut(values + 1000).clone();
    });
    optimizer().step();
  }

  // Whether it has, bit for bit, what one has that trained.
  bool IsTrained() {
    const std::unique_ptr<FlatTrainer> other = Another();
    other->Train();
    std::vector<at::Tensor> own = Tensors();
    std::vector<at::Tensor> expected = other->Tensors();
    return std::equal(own.begin(), own.end(), expected.begin(), expected.end(),
                      [](const at::Tensor& a, const at::Tensor& b) { return torch::equal(a, b); });
  }

  virtual torch::optim::Adam& optimizer() = 0;

  TorchState state;

 protected:
  using See = std::function<void(const at::Tensor& parameter, const std::function<at::Tensor(const at::Tensor&)>& cut)>;
  virtual void ForEach(const See& see) = 0;
  virtual std::unique_ptr<FlatTrainer> Another() const = 0;

  // The parameters, and what Adam keeps for them, without padding.
  std::vector<at::Tensor> Tensors() {
    std::vector<at::Tensor> tensors;
    const at::Tensor mask = MaskOfParameters();
    ForEach([&](const at::Tensor& parameter, const std::function<at::Tensor(const at::Tensor&)>& cut) {
      tensors.push_back((parameter * cut(mask)).detach());
      for (auto& [key, kept] : optimizer().state()) {
        auto& adam = static_cast<AdamState&>(*kept);
        if (adam.exp_avg().sizes() != parameter.sizes()) continue;
        tensors.push_back(adam.exp_avg() * cut(mask));
        tensors.push_back(adam.exp_avg_sq() * cut(mask));
        tensors.push_back(torch::tensor({adam.step()}));
      }
    });
    return tensors;
  }
};

// A process that has all parameters.
class WholeTrainer final : public FlatTrainer {
 public:
  WholeTrainer() : optimizer_(model_.parameters(), torch::optim::AdamOptions(0.1)) {
    state.AddModule("model", model_);
    state.AddOptimizer("adam", optimizer_, model_);
  }
  torch::optim::Adam& optimizer() override { return optimizer_; }

 private:
  struct Layer : torch::nn::Module {};
  struct Model : torch::nn::Module {
    Model() {
      for (const FlatParameter& parameter : ParametersOfModel()) {
        if (parameter.name.empty()) continue;
        const size_t dot = parameter.name.find('.');
        torch::nn::Module* owner = this;
        if (dot != std::string::npos) {
          const std::string layer = parameter.name.substr(0, dot);
          if (layers.find(layer) == layers.end()) layers[layer] = register_module(layer, std::make_shared<Layer>());
          owner = layers[layer].get();
        }
        owner->register_parameter(dot == std::string::npos ? parameter.name : parameter.name.substr(dot + 1),
                                  torch::zeros(parameter.shape));
      }
    }
    std::map<std::string, std::shared_ptr<Layer>> layers;
  };

  void ForEach(const See& see) override {
    for (const auto& parameter : model_.named_parameters()) {
      see(parameter.value(), [&](const at::Tensor& flat) { return CutParameter(parameter.key(), flat); });
    }
  }
  std::unique_ptr<FlatTrainer> Another() const override { return std::make_unique<WholeTrainer>(); }

  Model model_;
  torch::optim::Adam optimizer_;
};

// A rank of FSDP1, which has an equal part of all elements, the padding behind the last ones included.
class FlatRank final : public FlatTrainer {
 public:
  FlatRank(int32_t rank, int32_t world_size)
      : rank_(rank),
        world_size_(world_size),
        count_((kElements + world_size - 1) / world_size),
        optimizer_({model_.AddFlat(count_)}, torch::optim::AdamOptions(0.1)) {
    state.AddModule("model", model_);
    state.AddOptimizer("adam", optimizer_, model_);
    state.SetFlatShard(model_.flat, {.parameters = ParametersOfModel(), .first = count_ * rank});
  }
  torch::optim::Adam& optimizer() override { return optimizer_; }
  at::Tensor& flat() { return model_.flat; }
  // The rank's elements of `flat`, which has all of them.
  at::Tensor Cut(const at::Tensor& flat) const {
    const at::Tensor padded = at::cat({flat, torch::zeros({count_ * world_size_ - kElements})});
    return padded.slice(0, count_ * rank_, count_ * (rank_ + 1));
  }

 private:
  struct Model : torch::nn::Module {
    at::Tensor AddFlat(int64_t count) { return flat = register_parameter("flat", torch::zeros({count})); }
    at::Tensor flat;
  };

  void ForEach(const See& see) override {
    see(model_.flat, [this](const at::Tensor& flat) { return Cut(flat); });
  }
  std::unique_ptr<FlatTrainer> Another() const override { return std::make_unique<FlatRank>(rank_, world_size_); }

  const int32_t rank_;
  const int32_t world_size_;
  const int64_t count_;
  Model model_;
  torch::optim::Adam optimizer_;
};

using MakeTrainer = std::function<std::unique_ptr<FlatTrainer>(int32_t rank, int32_t world_size)>;
std::unique_ptr<FlatTrainer> Flat(int32_t rank, int32_t world_size) {
  return std::make_unique<FlatRank>(rank, world_size);
}
std::unique_ptr<FlatTrainer> Whole(int32_t, int32_t) { return std::make_unique<WholeTrainer>(); }

using UseOfFlat = std::function<absl::Status(AsyncCheckpointer& checkpointer, FlatTrainer& trainer)>;

class TorchFlatShardsTest : public testing::Test {
 protected:
  // Each rank is a thread that opens the store and calls `use`.
  std::vector<absl::Status> OnRanks(const MakeTrainer& make, int32_t world_size, const UseOfFlat& use) {
    ThreadGather gather(world_size);
    return OnEachRank(world_size, [&](int32_t rank) -> absl::Status {
      const auto all_gather = [&](const std::string& bytes) { return gather.Gather(rank, bytes); };
      auto checkpointer = AsyncCheckpointer::Open(
          {.directory = directory_ / "store",
           .ranks = {.rank = rank, .world_size = world_size, .all_gather = all_gather, .replicated = {"*"}}});
      if (!checkpointer.ok()) return checkpointer.status();
      const std::unique_ptr<FlatTrainer> trainer = make(rank, world_size);
      if (absl::Status status = use(**checkpointer, *trainer); !status.ok()) return status;
      return (*checkpointer)->Close();
    });
  }

  void Save(const MakeTrainer& make, int32_t world_size) {
    ASSERT_THAT(OnRanks(make, world_size,
                        [](AsyncCheckpointer& checkpointer, FlatTrainer& trainer) {
                          trainer.Train();
                          auto save = checkpointer.Save(10, trainer.state);
                          return save.ok() ? save->committed().Wait() : save.status();
                        }),
                Each(IsOk()));
  }

  // Into optimizers that have not stepped, and into some that have.
  void ExpectRestored(const MakeTrainer& make, int32_t world_size) {
    for (const bool has_stepped : {false, true}) {
      EXPECT_THAT(OnRanks(make, world_size,
                          [&](AsyncCheckpointer& checkpointer, FlatTrainer& trainer) {
                            if (has_stepped) {
                              trainer.Train();
                              trainer.Train();
                              EXPECT_FALSE(trainer.IsTrained());
                            }
                            const absl::Status status = checkpointer.RestoreLatest(trainer.state).status();
                            EXPECT_TRUE(trainer.IsTrained());
                            return status;
                          }),
                  Each(IsOk()))
          << world_size << " ranks" << (has_stepped ? " that have stepped" : "");
    }
  }

  const storage::TestDirectory directory_;
};

TEST_F(TorchFlatShardsTest, AreRestoredByAnyNumberOfRanks) {
  Save(Flat, 3);
  for (const int32_t world_size : {3, 2, 1, 5}) ExpectRestored(Flat, world_size);
  ExpectRestored(Flat, 10);  // the last one has padding alone
  ExpectRestored(Whole, 1);
}

TEST_F(TorchFlatShardsTest, AreRestoredFromWholeParameters) {
  Save(Whole, 1);
  ExpectRestored(Flat, 3);
}

TEST_F(TorchFlatShardsTest, ARestoreLeavesPaddingAsItIs) {
  Save(Flat, 2);
  EXPECT_THAT(OnRanks(Flat, 3,
                      [](AsyncCheckpointer& checkpointer, FlatTrainer& trainer) {
                        auto& rank = static_cast<FlatRank&>(trainer);
                        {
                          const torch::NoGradGuard no_grad;
                          rank.flat().fill_(-1);
                        }
                        const absl::Status status = checkpointer.RestoreLatest(trainer.state).status();
                        const at::Tensor padding = (1 - rank.Cut(MaskOfParameters())).to(at::kBool);
                        EXPECT_TRUE(rank.flat().masked_select(padding).eq(-1).all().item<bool>());
                        const auto& adam = static_cast<AdamState&>(*rank.optimizer().state().begin()->second);
                        EXPECT_TRUE(adam.exp_avg().masked_select(padding).eq(0).all().item<bool>()) << "a new one";
                        EXPECT_TRUE(trainer.IsTrained());
                        return status;
                      }),
              Each(IsOk()));
}

std::vector<std::string> DistinctNames(const State& state) {
  std::vector<std::string> names = EntryNames(state);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

TEST(TorchFlatShardStateTest, HasTheEntriesOfTheParameters) {
  FlatRank rank(1, 3);
  WholeTrainer whole;
  rank.Train();
  whole.Train();
  ASSERT_THAT(rank.state.Refresh(), IsOk());
  ASSERT_THAT(whole.state.Refresh(), IsOk());
  EXPECT_EQ(DistinctNames(rank.state), EntryNames(whole.state));
  // Its elements are [18, 36), which are [3, 21) of block.weight {4, 3, 2}.
  std::vector<const EntrySpec*> weight;
  for (const State::Entry& entry : rank.state.entries()) {
    if (entry.spec.name == "adam.block.weight.exp_avg") weight.push_back(&entry.spec);
  }
  ASSERT_EQ(weight.size(), 5u);
  EXPECT_THAT(weight[0]->shape, ElementsAre(4, 3, 2));
  EXPECT_THAT(weight[0]->box_offset, ElementsAre(0, 1, 1));
  EXPECT_THAT(weight[0]->box_extent, ElementsAre(1, 1, 1));
  EXPECT_THAT(weight[2]->box_offset, ElementsAre(1, 0, 0));
  EXPECT_THAT(weight[2]->box_extent, ElementsAre(2, 3, 2));
  EXPECT_THAT(weight[4]->box_offset, ElementsAre(3, 1, 0));
  // Of what it has nothing of, it has an empty box.
  EXPECT_THAT(FindEntry(rank.state, "model.embedding").spec.box_extent, ElementsAre(0, 3));
  const State::Entry& moment = FindEntry(rank.state, "adam.block.weight.exp_avg");
  EXPECT_EQ(rank.state.entries()[static_cast<size_t>(moment.staged_with)].spec.name, "model.block.weight");
}

TEST(TorchFlatShardStateTest, ALaterRefreshFindsTheSameStructure) {
  FlatRank rank(0, 2);
  rank.Train();
  ASSERT_THAT(rank.state.Refresh(), IsOk());
  const uint64_t version = rank.state.structure_version();
  rank.Train();
  ASSERT_THAT(rank.state.Refresh(), IsOk());
  EXPECT_EQ(rank.state.structure_version(), version);
}

TEST(TorchFlatShardStateTest, ItsModuleGivesItsParametersTheirPrefix) {
  struct Layer : torch::nn::Module {
    Layer() { flat = register_parameter("flat", torch::zeros({6})); }
    at::Tensor flat;
  };
  struct Model : torch::nn::Module {
    Model() { layer = register_module("layer", std::make_shared<Layer>()); }
    std::shared_ptr<Layer> layer;
  };
  Model model;
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
  const at::Tensor free = torch::zeros({2});
  const at::Tensor nameless = torch::zeros({2});
  TorchState state;
  state.AddModule("model", model);
  state.AddTensor("other.model.flat", free);
  state.AddTensor("flat", nameless);
  state.AddOptimizer("sgd", optimizer, model);
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].spec.name, "model.layer.flat");
  state.SetFlatShard(model.layer->flat, {.parameters = {{"weight", {2, 2}}, {"bias", {2}}}});
  state.SetFlatShard(free, {.parameters = {{"scale", {2}}}});
  state.SetFlatShard(nameless, {.parameters = {{"shift", {2}}}});
  ASSERT_THAT(state.Refresh(), IsOk());
  std::vector<std::string> names = EntryNames(state);
  names.resize(4);
  EXPECT_THAT(names, ElementsAre("model.layer.weight", "model.layer.bias", "other.model.scale", "shift"));
  const State::Entry& parameters = FindEntry(state, "sgd.param_groups.0.params");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(parameters.host), parameters.bytes), "layer.weight\nlayer.bias");
  state.ClearBoxes();
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].spec.name, "model.layer.flat");
}

TEST(TorchFlatShardStateTest, WhatIsNoFlatShardIsAnError) {
  const auto refreshed = [](at::Tensor tensor, FlatShard shard) {
    TorchState state;
    if (tensor.defined()) state.AddTensor("t", tensor);
    state.SetFlatShard(tensor, std::move(shard));
    return state.Refresh();
  };
  const auto is_refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  const at::Tensor flat = torch::zeros({4});
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {4}}}}), IsOk());
  EXPECT_THAT(refreshed({}, {.parameters = {{"a", {4}}}}), is_refused("SetFlatShard: the tensor is undefined"));
  EXPECT_THAT(refreshed(torch::zeros({2, 2}), {.parameters = {{"a", {4}}}}),
              is_refused("SetFlatShard: a tensor of [2, 2] is no flat shard, which has one dimension"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {4}}}, .first = -1}), is_refused("begins at element -1"));
  EXPECT_THAT(refreshed(flat, {.parameters = {}}), is_refused("a flat shard has no parameter"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"", {4}}}}), is_refused("a flat shard has no parameter"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {2}}, {"a", {2}}}}),
              is_refused("two parameters of a flat shard have the name 'a'"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {}}}}), is_refused("parameter 'a' has no dimension"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {-1}}}}), is_refused("parameter 'a' has the shape [-1]"));
  constexpr int64_t kLarge = int64_t{1} << 31;
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {kLarge, kLarge}}}}), is_refused("parameter 'a' has the shape"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {kLarge, kLarge, 0}}}}), is_refused("parameter 'a' has the shape"));
  constexpr int64_t kQuarter = int64_t{1} << 61;
  EXPECT_THAT(
      refreshed(flat, {.parameters = {{"a", {kQuarter}}, {"b", {kQuarter}}, {"c", {kQuarter}}, {"d", {kQuarter}}}}),
      is_refused("have 2^63 elements"));
  EXPECT_THAT(refreshed(flat, {.parameters = {{"a", {4}}}, .first = INT64_MAX}), IsOk()) << "all of it is padding";
}

TEST(TorchFlatShardStateTest, AFlatShardThatIsResizedIsAnError) {
  at::Tensor flat = torch::zeros({4});
  TorchState state;
  state.AddTensor("t", flat);
  state.SetFlatShard(flat, {.parameters = {{"a", {4}}}});
  ASSERT_THAT(state.Refresh(), IsOk());
  flat.resize_({5});
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("entry 'a' has the shape [5], and had [4] when SetFlatShard said")));
}

TEST(TorchFlatShardStateTest, AFlatShardIsTiedOnlyToTheSameOne) {
  const at::Tensor flat = torch::zeros({4});
  const at::Tensor view = flat.view({4});
  const FlatShard shard{.parameters = {{"a", {2}}, {"b", {2}}}};
  const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("and one of them is of a flat shard"));
  for (const bool first : {false, true}) {
    TorchState state;
    state.AddTensor("one.flat", flat);
    state.AddTensor("other.flat", view);
    state.SetFlatShard(first ? flat : view, shard);
    EXPECT_THAT(state.Refresh(), is_refused);
    state.SetFlatShard(first ? view : flat, {.parameters = {{"a", {4}}}});
    EXPECT_THAT(state.Refresh(), is_refused);
    state.SetFlatShard(first ? view : flat, shard);
    ASSERT_THAT(state.Refresh(), IsOk());
    EXPECT_THAT(EntryNames(state), ElementsAre("one.a", "one.b", "other.a", "other.b"));
    EXPECT_EQ(state.entries()[3].alias_of, 1);
  }
}

// One state is for all parameters of a flat shard. A process that has them whole may have others.
TEST_F(TorchFlatShardsTest, StatesThatDifferAmongTheParametersAreAnError) {
  const auto restored = [&](const std::function<void(WholeTrainer&)>& change) {
    const storage::TestDirectory directory;
    auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
    if (!checkpointer.ok()) return checkpointer.status();
    WholeTrainer whole;
    whole.Train();
    change(whole);
    auto save = (*checkpointer)->Save(1, whole.state);
    if (!save.ok()) return save.status();
    if (absl::Status status = save->committed().Wait(); !status.ok()) return status;
    FlatRank rank(0, 1);
    absl::Status status = (*checkpointer)->RestoreLatest(rank.state).status();
    if (!status.ok()) {
      EXPECT_EQ(rank.flat().abs().sum().item<float>(), 0) << "nothing is written";
    }
    status.Update((*checkpointer)->Close());
    return status;
  };
  EXPECT_THAT(restored([](WholeTrainer&) {}), IsOk());
  const auto differ = restored([](WholeTrainer& whole) {
    auto& state = whole.optimizer().state();
    static_cast<AdamState&>(*state.begin()->second).step(7);
  });
  EXPECT_THAT(differ, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("another value for an earlier parameter of the same flat shard")));
  const auto lacks = restored([](WholeTrainer& whole) {
    auto& state = whole.optimizer().state();
    state.erase(state.begin());
  });
  EXPECT_THAT(lacks, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("and both are of one flat shard")));
  EXPECT_THAT(restored([](WholeTrainer& whole) { whole.optimizer().state().clear(); }), IsOk());
}

TEST_F(TorchFlatShardsTest, MayBeOnADevice) {
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory_ / "store"});
  ASSERT_THAT(checkpointer, IsOk());
  const FlatShard shard{.parameters = {{"a", {2, 2}}, {"b", {3}}}};
  const at::Tensor saved = PretendAccelerator::Get().Bytes(7, 7);
  PretendAccelerator::Get().EnqueueFill(saved.narrow(0, 3, 3), 9);
  TorchState state;
  state.AddTensor("flat", saved);
  state.SetFlatShard(saved, shard);
  auto save = (*checkpointer)->Save(1, state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  const at::Tensor a = torch::zeros({2, 2}, torch::kByte);
  const at::Tensor b = torch::zeros({3}, torch::kByte);
  TorchState whole;
  whole.AddTensor("a", a);
  whole.AddTensor("b", b);
  EXPECT_THAT((*checkpointer)->RestoreLatest(whole), IsOk());
  EXPECT_TRUE(torch::equal(a, torch::tensor({7, 7, 7, 9}, torch::kByte).view({2, 2})));
  EXPECT_TRUE(torch::equal(b, torch::tensor({9, 9, 7}, torch::kByte)));
  const at::Tensor target = PretendAccelerator::Get().Bytes(7, 0);
  TorchState flat;
  flat.AddTensor("flat", target);
  flat.SetFlatShard(target, shard);
  EXPECT_THAT((*checkpointer)->RestoreLatest(flat), IsOk());
  EXPECT_TRUE(torch::equal(target.to(at::kCPU), torch::tensor({7, 7, 7, 9, 9, 9, 7}, torch::kByte)));
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
