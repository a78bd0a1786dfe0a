// Where an optimizer's parameters have their names from: one module, several, or tensors of the state.

#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

// Soft actor-critic in miniature: one optimizer over two networks, one over a free tensor.
struct ActorCritic {
  torch::nn::Linear actor{3, 2};
  torch::nn::Linear critic{2, 1};
  at::Tensor log_alpha = torch::zeros({1}, at::TensorOptions().requires_grad(true));
  torch::optim::Adam optimizer;
  torch::optim::Adam alpha_optimizer{{log_alpha}, torch::optim::AdamOptions(0.02)};
  TorchState state;

  ActorCritic() : optimizer(Parameters(), torch::optim::AdamOptions(0.01)) {
    state.AddModule("actor", *actor);
    state.AddModule("critic", *critic);
    state.AddOptimizer("optimizer", optimizer, {{"actor", *actor}, {"critic", *critic}});
    state.AddOptimizer("alpha_optimizer", alpha_optimizer);
    state.AddTensor("log_alpha", log_alpha);
  }
  std::vector<at::Tensor> Parameters() const {
    std::vector<at::Tensor> all = actor->parameters();
    for (const at::Tensor& parameter : critic->parameters()) all.push_back(parameter);
    return all;
  }
  void Train(uint64_t first, uint64_t end) {
    for (uint64_t step = first; step < end; ++step) {
      at::Generator generator = at::detail::createCPUGenerator(step);
      optimizer.zero_grad();
      alpha_optimizer.zero_grad();
      const at::Tensor value = critic(torch::tanh(actor(torch::randn({8, 3}, generator))));
      ((value * log_alpha.exp()).pow(2).mean() + log_alpha.pow(2).sum()).backward();
      optimizer.step();
      alpha_optimizer.step();
    }
  }
};

absl::Status StatusOfSaving(TorchState& state) { return SaveToMemory(state).status(); }

TEST(TorchOptimizerNames, OfSeveralModulesBeginWithTheirPrefixes) {
  ActorCritic trainer;
  trainer.Train(0, 2);
  const auto saved = SaveToMemory(trainer.state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_THAT((std::vector<std::string>{"optimizer.actor.weight.exp_avg", "optimizer.critic.weight.exp_avg",
                                        "alpha_optimizer.log_alpha.exp_avg"}),
              IsSubsetOf(saved->Names()));
  EXPECT_EQ(saved->Text("optimizer.param_groups.0.params"), "actor.weight\nactor.bias\ncritic.weight\ncritic.bias");
  EXPECT_EQ(saved->Text("alpha_optimizer.param_groups.0.params"), "log_alpha");
}

TEST(TorchOptimizerNames, OfSeveralModulesAndAFreeTensorResumeBitIdentically) {
  ActorCritic whole;
  whole.Train(0, 3);
  const auto saved = SaveToMemory(whole.state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  whole.Train(3, 6);
  ActorCritic resumed;
  const absl::Status restored = RestoreFromMemory(resumed.state, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  resumed.Train(3, 6);
  EXPECT_TRUE(at::equal(resumed.actor->weight, whole.actor->weight));
  EXPECT_TRUE(at::equal(resumed.critic->bias, whole.critic->bias));
  EXPECT_TRUE(at::equal(resumed.log_alpha, whole.log_alpha));
}

TEST(TorchOptimizerNames, FollowAModuleWhoseParametersAreReplaced) {
  ActorCritic trainer;
  ASSERT_TRUE(StatusOfSaving(trainer.state).ok());
  trainer.critic->weight = trainer.critic->register_parameter("other", torch::ones({1, 2}));
  trainer.optimizer.param_groups()[0].params()[2] = trainer.critic->weight;
  const auto saved = SaveToMemory(trainer.state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->Text("optimizer.param_groups.0.params"), "actor.weight\nactor.bias\ncritic.other\ncritic.bias");
}

TEST(TorchOptimizerNames, OfATensorBesideAModule) {
  torch::nn::Linear model(2, 2);
  const at::Tensor temperature = torch::ones({1}, at::TensorOptions().requires_grad(true));
  torch::optim::SGD optimizer({model->weight, temperature}, torch::optim::SGDOptions(0.1));
  TorchState state;
  state.AddOptimizer("optimizer", optimizer, *model);
  EXPECT_EQ(StatusOfSaving(state).code(), absl::StatusCode::kInvalidArgument);
  state.AddTensor("temperature", temperature);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->Text("optimizer.param_groups.0.params"), "weight\ntemperature");
}

TEST(TorchOptimizerNames, ThatAreAbsentAreSaidWithTheModulesThatWereSearched) {
  torch::nn::Linear actor(2, 2);
  torch::nn::Linear critic(2, 2);
  torch::optim::SGD optimizer({torch::ones({4})}, torch::optim::SGDOptions(0.1));
  TorchState state;
  state.AddOptimizer("optimizer", optimizer, {{"actor", *actor}, {"critic", *critic}});
  EXPECT_EQ(std::string(StatusOfSaving(state).message()),
            "optimizer 'optimizer': parameter 0 of group 0, Float [4], has no name: it is not in the modules 'actor', "
            "'critic' of this optimizer, and no tensor that AddTensor added");
  TorchState without;
  without.AddOptimizer("optimizer", optimizer);
  EXPECT_THAT(std::string(StatusOfSaving(without).message()),
              HasSubstr("Float [4], has no name: it is no tensor that AddTensor added"));
}

TEST(TorchOptimizerNames, OfOneModuleWithAPrefix) {
  torch::nn::Linear actor(2, 2);
  torch::optim::SGD optimizer(actor->parameters(), torch::optim::SGDOptions(0.1));
  TorchState state;
  state.AddOptimizer("optimizer", optimizer, {{"actor", *actor}});
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->Text("optimizer.param_groups.0.params"), "actor.weight\nactor.bias");
}

TEST(TorchOptimizerNames, ThatTwoParametersShareAreRefused) {
  torch::nn::Linear a(2, 2);
  torch::nn::Linear b(2, 2);
  torch::optim::Adam optimizer({a->weight, b->weight}, torch::optim::AdamOptions(0.1));
  (a(torch::ones({1, 2})) + b(torch::ones({1, 2}))).sum().backward();
  optimizer.step();
  TorchState state;
  state.AddOptimizer("optimizer", optimizer, {{"", *a}, {"", *b}});
  const absl::Status status = StatusOfSaving(state);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was added twice"));
}

}  // namespace
}  // namespace tidemark
