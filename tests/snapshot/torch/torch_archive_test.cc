// Objects that save themselves into LibTorch's archives, in a TorchState.

#include <stdexcept>

#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// A replay buffer in miniature, with what LibTorch's own classes have for their archives.
struct Replay {
  at::Tensor observations = torch::zeros({2, 3});
  int64_t next = 0;
  bool throws = false;

  void save(OutputArchive& archive) const {
    if (throws) throw std::runtime_error("the buffer is busy");
    archive.write("observations", observations);
    archive.write("next", c10::IValue(next));
  }
  void load(InputArchive& archive) {
    archive.read("observations", observations);
    c10::IValue value;
    archive.read("next", value);
    next = value.toInt();
  }
};

// A class of the trainer's own: it forgets `decay` of its velocity.
class Heavy : public torch::optim::Optimizer {
 public:
  explicit Heavy(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {
    for (const at::Tensor& parameter : param_groups()[0].params()) velocities.push_back(torch::zeros_like(parameter));
  }
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < velocities.size(); ++i) {
      at::Tensor parameter = param_groups()[0].params()[i];
      velocities[i].mul_(0.9).add_(parameter.grad());
      parameter.sub_(velocities[i], 0.1);
    }
    return {};
  }
  std::vector<at::Tensor> velocities;
};

class SavedHeavy final : public Heavy {
 public:
  using Heavy::Heavy;
  void save(OutputArchive& archive) const override {
    for (size_t i = 0; i < velocities.size(); ++i) archive.write(std::to_string(i), velocities[i]);
  }
  void load(InputArchive& archive) override {
    for (size_t i = 0; i < velocities.size(); ++i) archive.read(std::to_string(i), velocities[i]);
  }
};

MemoryCheckpoint MustSaveArchive(State& state) {
  auto saved = SaveToMemory(state);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return saved.ok() ? *std::move(saved) : MemoryCheckpoint();
}

TEST(TorchArchive, BringsAnObjectBack) {
  Replay replay{.observations = torch::randn({2, 3}), .next = 7};
  const at::Tensor observations = replay.observations.clone();
  TorchState state;
  state.AddArchive("replay", replay);
  const MemoryCheckpoint saved = MustSaveArchive(state);
  EXPECT_EQ(saved.items.at("replay").spec.kind, EntryKind::kBytes);
  replay = Replay();
  const absl::Status restored = RestoreFromMemory(state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE(at::equal(replay.observations, observations));
  EXPECT_EQ(replay.next, 7);
}

TEST(TorchArchive, NamesTheEntryWhereTheObjectThrows) {
  Replay replay{.throws = true};
  TorchState state;
  state.AddArchive("replay", replay);
  const absl::Status status = SaveToMemory(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("entry 'replay'"), HasSubstr("the buffer is busy")));
}

TEST(TorchArchive, RefusesBytesThatAreNoArchiveAndArchivesOfAnotherObject) {
  Replay replay{.next = 3};
  TorchState state;
  state.AddArchive("replay", replay);
  MemoryCheckpoint saved = MustSaveArchive(state);
  saved.items.at("replay").bytes.resize(10);
  absl::Status restored = RestoreFromMemory(state, saved);
  EXPECT_EQ(restored.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(restored.message()), HasSubstr("entry 'replay': loading from an archive"));
  EXPECT_EQ(replay.next, 3);

  TorchState other;
  other.AddArchive(
      "replay", [](OutputArchive& archive) { archive.write("something", torch::ones({1})); }, [](InputArchive&) {});
  restored = RestoreFromMemory(state, MustSaveArchive(other));
  EXPECT_EQ(restored.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(restored.message()), AllOf(HasSubstr("entry 'replay'"), HasSubstr("observations")));
}

TEST(TorchArchive, RefusesNullFunctions) {
  TorchState state;
  state.AddArchive(
      "replay", [](OutputArchive&) {}, nullptr);
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("entry 'replay': its load function is null"));
}

TEST(TorchArchive, ResumesAnOptimizerOfTheTrainersOwnClassBitIdentically) {
  const auto train = [](torch::nn::LinearImpl& model, torch::optim::Optimizer& optimizer, uint64_t first,
                        uint64_t end) {
    for (uint64_t step = first; step < end; ++step) {
      at::Generator generator = at::detail::createCPUGenerator(step);
      optimizer.zero_grad();
      model.forward(torch::randn({8, 4}, generator)).pow(2).sum().backward();
      optimizer.step();
    }
  };
  torch::nn::Linear model(4, 2);
  SavedHeavy optimizer(model->parameters());
  TorchState state;
  state.AddModule("model", *model);
  state.AddArchive("optimizer", optimizer);
  train(*model, optimizer, 0, 3);
  const MemoryCheckpoint saved = MustSaveArchive(state);
  train(*model, optimizer, 3, 6);

  torch::nn::Linear resumed(4, 2);
  SavedHeavy resumed_optimizer(resumed->parameters());
  TorchState resumed_state;
  resumed_state.AddModule("model", *resumed);
  resumed_state.AddArchive("optimizer", resumed_optimizer);
  const absl::Status restored = RestoreFromMemory(resumed_state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  train(*resumed, resumed_optimizer, 3, 6);
  EXPECT_TRUE(at::equal(resumed->weight, model->weight));
  EXPECT_TRUE(at::equal(resumed_optimizer.velocities[0], optimizer.velocities[0]));
}

TEST(TorchArchive, RefusesAnOptimizerThatWritesNothing) {
  torch::nn::Linear model(4, 2);
  Heavy optimizer(model->parameters());
  TorchState state;
  state.AddArchive("optimizer", optimizer);
  const absl::Status status = SaveToMemory(state).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("entry 'optimizer'"), HasSubstr("does not override save"), Not(HasSubstr("LibTorch"))));
}

TEST(TorchArchive, ThatFailsToLoadLeavesOptionsAndNewOptimizerStates) {
  const auto add = [](TorchState& state, torch::nn::Linear& model, torch::optim::Adam& optimizer, Replay& replay) {
    state.AddModule("model", *model);
    state.AddOptimizer("optimizer", optimizer, *model);
    state.AddArchive("replay", replay);
  };
  torch::nn::Linear model(4, 2);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.5));
  Replay replay;
  TorchState state;
  add(state, model, optimizer, replay);
  model->forward(torch::ones({1, 4})).sum().backward();
  optimizer.step();
  MemoryCheckpoint saved = MustSaveArchive(state);
  saved.items.at("replay").bytes.resize(10);

  torch::nn::Linear other_model(4, 2);
  torch::optim::Adam other_optimizer(other_model->parameters(), torch::optim::AdamOptions(0.1));
  Replay other_replay;
  TorchState other;
  add(other, other_model, other_optimizer, other_replay);
  EXPECT_EQ(RestoreFromMemory(other, saved).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(other_optimizer.state().empty());
  EXPECT_EQ(other_optimizer.param_groups()[0].options().get_lr(), 0.1);
}

}  // namespace
}  // namespace tidemark
