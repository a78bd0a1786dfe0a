#include <cstring>
#include <functional>

#include "fmt/format.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

struct Net : torch::nn::Module {
  explicit Net(int64_t hidden = 5)
      : a(register_module("a", torch::nn::Linear(4, hidden))), b(register_module("b", torch::nn::Linear(hidden, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return b(torch::tanh(a(x))); }
  torch::nn::Linear a, b;
};

using Make = std::function<std::unique_ptr<Optimizer>(Net&)>;

template <typename Optim, typename Options>
Make With(Options options) {
  return [options](Net& net) { return std::make_unique<Optim>(net.parameters(), options); };
}

struct Named {
  const char* name;
  Make make;
};

std::vector<Named> Optimizers() {
  using namespace torch::optim;  // NOLINT: the table is only these names
  return {
      {"SgdPlain", With<SGD>(SGDOptions(0.1))},
      {"SgdMomentum", With<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01))},
      {"Adam", With<Adam>(AdamOptions(0.01))},
      {"AdamAmsgrad", With<Adam>(AdamOptions(0.01).amsgrad(true).betas({0.8, 0.95}))},
      {"AdamW", With<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"RMSprop", With<RMSprop>(RMSpropOptions(0.01))},
      {"RMSpropCentered", With<RMSprop>(RMSpropOptions(0.01).centered(true).momentum(0.5))},
      {"Adagrad", With<Adagrad>(AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.5))},
      {"LBFGS", With<LBFGS>(LBFGSOptions(0.5).max_iter(4).history_size(3))},
      {"LBFGSWolfe", With<LBFGS>(LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe"))},
  };
}

void Train(Net& net, Optimizer& optimizer, int first_step, int steps) {
  for (int step = first_step; step < first_step + steps; ++step) {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    const at::Tensor x = torch::randn({8, 4}, generator);
    const at::Tensor y = torch::randn({8, 1}, generator);
    optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor loss = torch::mse_loss(net.forward(x), y);
      loss.backward();
      return loss;
    });
  }
}

void ExpectEqual(Net& a, Net& b) {
  const auto parameters = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), parameters[item.key()])) << item.key();
  }
}

// A model with its optimizer and the state that saves both.
struct Trainer {
  explicit Trainer(const Make& make, int64_t hidden = 5) : net(hidden), optimizer(make(net)) {
    state.AddModule("model", net);
    state.AddOptimizer("optimizer", *optimizer, net);
  }
  Net net;
  std::unique_ptr<Optimizer> optimizer;
  TorchState state;
};

MemoryCheckpoint MustSave(State& state) {
  auto saved = SaveToMemory(state);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return saved.ok() ? *std::move(saved) : MemoryCheckpoint();
}

class EveryOptimizer : public ::testing::TestWithParam<Named> {};

TEST_P(EveryOptimizer, ContinuesBitIdenticallyInAFreshOne) {
  Trainer original(GetParam().make);
  Train(original.net, *original.optimizer, 0, 5);
  const MemoryCheckpoint saved = MustSave(original.state);
  Trainer fresh(GetParam().make);
  ASSERT_FALSE(at::equal(fresh.net.a->weight, original.net.a->weight));
  const absl::Status restored = RestoreFromMemory(fresh.state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  ExpectEqual(original.net, fresh.net);
  Train(original.net, *original.optimizer, 5, 5);
  Train(fresh.net, *fresh.optimizer, 5, 5);
  ExpectEqual(original.net, fresh.net);
  // The whole state too, and its layout.
  const MemoryCheckpoint again = MustSave(original.state);
  const MemoryCheckpoint copy = MustSave(fresh.state);
  ASSERT_EQ(again.Names(), copy.Names());
  for (const auto& [name, item] : again.items) EXPECT_EQ(item.bytes, copy.items.at(name).bytes) << name;
}

TEST_P(EveryOptimizer, GoesBackInOneThatHasSteppedOn) {
  Trainer trainer(GetParam().make);
  Train(trainer.net, *trainer.optimizer, 0, 3);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  Train(trainer.net, *trainer.optimizer, 3, 3);
  const MemoryCheckpoint expected = MustSave(trainer.state);
  const absl::Status restored = RestoreFromMemory(trainer.state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  const MemoryCheckpoint now = MustSave(trainer.state);
  ASSERT_EQ(now.Names(), saved.Names());
  for (const auto& [name, item] : now.items) EXPECT_EQ(item.bytes, saved.items.at(name).bytes) << name;
  Train(trainer.net, *trainer.optimizer, 3, 3);
  const MemoryCheckpoint again = MustSave(trainer.state);
  ASSERT_EQ(again.Names(), expected.Names());
  for (const auto& [name, item] : again.items) EXPECT_EQ(item.bytes, expected.items.at(name).bytes) << name;
}

TEST_P(EveryOptimizer, GoesBackToBeforeItsFirstStep) {
  Trainer trainer(GetParam().make);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  Train(trainer.net, *trainer.optimizer, 0, 3);
  const MemoryCheckpoint expected = MustSave(trainer.state);
  const absl::Status restored = RestoreFromMemory(trainer.state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  Train(trainer.net, *trainer.optimizer, 0, 3);
  const MemoryCheckpoint again = MustSave(trainer.state);
  ASSERT_EQ(again.Names(), expected.Names());
  for (const auto& [name, item] : again.items) EXPECT_EQ(item.bytes, expected.items.at(name).bytes) << name;
}

INSTANTIATE_TEST_SUITE_P(TorchOptimizer, EveryOptimizer, ::testing::ValuesIn(Optimizers()),
                         [](const auto& info) { return std::string(info.param.name); });

const Make kAdam = With<torch::optim::Adam>(torch::optim::AdamOptions(0.01));
const Make kSgd = With<torch::optim::SGD>(torch::optim::SGDOptions(0.1));

TEST(TorchOptimizer, IsStoredUnderParameterNames) {
  Trainer trainer(kAdam);
  Train(trainer.net, *trainer.optimizer, 0, 2);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  EXPECT_THAT((std::vector<std::string>{"optimizer.a.weight.exp_avg", "optimizer.b.bias.exp_avg_sq",
                                        "optimizer.a.bias.step", "optimizer.param_groups.0.betas.1"}),
              IsSubsetOf(saved.Names()));
  EXPECT_EQ(saved.Text("optimizer.type"), "Adam");
  EXPECT_EQ(saved.Text("optimizer.param_groups.0.params"), "a.weight\na.bias\nb.weight\nb.bias");
  EXPECT_EQ(saved.Value<int64_t>("optimizer.a.weight.step"), 2);
  EXPECT_EQ(saved.Value<double>("optimizer.param_groups.0.lr"), 0.01);
  EXPECT_EQ(saved.Value<double>("optimizer.param_groups.0.betas.1"), 0.999);
  EXPECT_EQ(saved.items.at("optimizer.param_groups.0.amsgrad").spec.kind, EntryKind::kBool);
  EXPECT_EQ(saved.items.at("optimizer.a.weight.exp_avg").spec.shape, (std::vector<int64_t>{5, 4}));
}

TEST(TorchOptimizer, LbfgsKeepsAsManyDirectionsAsItHas) {
  const Make make = With<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.5).max_iter(4).history_size(3));
  Trainer trainer(make);
  EXPECT_FALSE(MustSave(trainer.state).items.contains("optimizer.lbfgs.d"));
  Train(trainer.net, *trainer.optimizer, 0, 3);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  EXPECT_TRUE(saved.items.contains("optimizer.lbfgs.old_dirs.2"));
  EXPECT_FALSE(saved.items.contains("optimizer.lbfgs.old_dirs.3"));
  EXPECT_EQ(saved.items.at("optimizer.lbfgs.ro.0").spec.shape, std::vector<int64_t>());
  EXPECT_EQ(saved.items.at("optimizer.lbfgs.d").spec.shape, (std::vector<int64_t>{31}));
}

TEST(TorchOptimizer, LbfgsWithAShorterHistoryTakesALongerOne) {
  using torch::optim::LBFGS;
  using torch::optim::LBFGSOptions;
  Trainer saver(With<LBFGS>(LBFGSOptions(0.5).max_iter(4).history_size(10)));
  Train(saver.net, *saver.optimizer, 0, 4);
  const MemoryCheckpoint saved = MustSave(saver.state);
  ASSERT_TRUE(saved.items.contains("optimizer.lbfgs.old_dirs.5"));
  Trainer loader(With<LBFGS>(LBFGSOptions(0.5).max_iter(4).history_size(5)));
  Train(loader.net, *loader.optimizer, 0, 4);
  const absl::Status restored = RestoreFromMemory(loader.state, saved);
  ASSERT_TRUE(restored.ok()) << restored;
  // Steps index `al` by the history.
  const auto& state = static_cast<const torch::optim::LBFGSParamState&>(*loader.optimizer->state().begin()->second);
  EXPECT_FALSE(state.al());
  Train(saver.net, *saver.optimizer, 4, 3);
  Train(loader.net, *loader.optimizer, 4, 3);
  ExpectEqual(saver.net, loader.net);
}

TEST(TorchOptimizer, LbfgsOptionsAreNotTouchedBySaving) {
  Trainer trainer(With<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.5)));
  auto& options = static_cast<torch::optim::LBFGSOptions&>(trainer.optimizer->param_groups()[0].options());
  options.max_eval() = -3;
  options.line_search_fn() = "";
  const MemoryCheckpoint saved = MustSave(trainer.state);
  EXPECT_EQ(options.max_eval(), -3);
  EXPECT_TRUE(options.line_search_fn().has_value());
  options.max_eval() = 7;
  options.line_search_fn() = "strong_wolfe";
  ASSERT_TRUE(RestoreFromMemory(trainer.state, saved).ok());
  EXPECT_EQ(options.max_eval(), -3);
  EXPECT_FALSE(options.line_search_fn().has_value());
}

TEST(TorchOptimizer, KeepsTheMemoryOfTheMomentsThatFit) {
  Trainer trainer(With<torch::optim::Adam>(torch::optim::AdamOptions(0.01)));
  Train(trainer.net, *trainer.optimizer, 0, 2);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  const auto moment = [&]() -> at::Tensor {
    return static_cast<torch::optim::AdamParamState&>(*trainer.optimizer->state().begin()->second).exp_avg();
  };
  const at::Tensor before = moment();
  ASSERT_TRUE(RestoreFromMemory(trainer.state, saved).ok());
  EXPECT_TRUE(moment().is_same(before));
}

TEST(TorchOptimizer, BringsBackTheLearningRateThatAScheduleHadSet) {
  Trainer trainer(kAdam);
  trainer.optimizer->param_groups()[0].options().set_lr(0.00125);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  Trainer fresh(kAdam);
  ASSERT_TRUE(RestoreFromMemory(fresh.state, saved).ok());
  EXPECT_EQ(fresh.optimizer->param_groups()[0].options().get_lr(), 0.00125);
}

TEST(TorchOptimizer, KeepsTheOptionsOfEachGroup) {
  const Make make = [](Net& net) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(net.a->parameters(), std::make_unique<torch::optim::SGDOptions>(0.3));
    groups.emplace_back(net.b->parameters(), std::make_unique<torch::optim::SGDOptions>(0.7));
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  };
  Trainer trainer(make);
  const MemoryCheckpoint saved = MustSave(trainer.state);
  EXPECT_EQ(saved.Value<double>("optimizer.param_groups.1.lr"), 0.7);
  EXPECT_EQ(saved.Text("optimizer.param_groups.1.params"), "b.weight\nb.bias");
  Trainer fresh(make);
  fresh.optimizer->param_groups()[1].options().set_lr(0.5);
  ASSERT_TRUE(RestoreFromMemory(fresh.state, saved).ok());
  EXPECT_EQ(fresh.optimizer->param_groups()[0].options().get_lr(), 0.3);
  EXPECT_EQ(fresh.optimizer->param_groups()[1].options().get_lr(), 0.7);
}

TEST(TorchOptimizer, RefusesTheStateOfAnotherTypeNamingBoth) {
  for (const Named& from : Optimizers()) {
    for (const Named& into : Optimizers()) {
      Trainer saver(from.make);
      Train(saver.net, *saver.optimizer, 0, 1);
      const MemoryCheckpoint saved = MustSave(saver.state);
      Trainer loader(into.make);
      const std::string type = MustSave(loader.state).Text("optimizer.type");
      if (type == saved.Text("optimizer.type")) continue;
      const absl::Status status = RestoreFromMemory(loader.state, saved);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(status.message()),
                fmt::format("entry 'optimizer.type': the checkpoint has '{}', the state '{}'",
                            saved.Text("optimizer.type"), type));
    }
  }
}

TEST(TorchOptimizer, RefusesATypeThatOnlyItsValueTells) {
  Trainer trainer(kSgd);
  MemoryCheckpoint saved = MustSave(trainer.state);
  saved.items.at("optimizer.type").bytes[0] = std::byte{'X'};
  const absl::Status status = RestoreFromMemory(trainer.state, saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "entry 'optimizer.type': the checkpoint has 'XGD', the state 'SGD'");
}

TEST(TorchOptimizer, RefusesGroupsOfOtherParameters) {
  Trainer saver(kSgd);
  const MemoryCheckpoint saved = MustSave(saver.state);
  Trainer loader([](Net& net) {
    return std::make_unique<torch::optim::SGD>(
        std::vector<at::Tensor>{net.b->weight, net.a->weight, net.a->bias, net.b->bias}, torch::optim::SGDOptions(0.1));
  });
  const at::Tensor before = loader.net.a->weight.detach().clone();
  const absl::Status status = RestoreFromMemory(loader.state, saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("entry 'optimizer.param_groups.0.params': the checkpoint has"));
  EXPECT_TRUE(at::equal(loader.net.a->weight, before));
}

TEST(TorchOptimizer, RefusesParametersThatAreNotInTheModule) {
  Net net;
  torch::optim::Adam optimizer({net.a->weight, torch::ones({2, 3})}, torch::optim::AdamOptions(0.1));
  TorchState state;
  state.AddOptimizer("optimizer", optimizer, net);
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "optimizer 'optimizer': parameter 1 of group 0, Float [2, 3], has no name: it is not in the module of this "
            "optimizer, and no tensor that AddTensor added");
  EXPECT_EQ(state.Refresh(), status);
}

TEST(TorchOptimizer, RefusesKindsThatItDoesNotKnow) {
  struct Other : Optimizer {
    explicit Other(std::vector<at::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  Net net;
  Other optimizer(net.parameters());
  TorchState state;
  state.AddOptimizer("mine", optimizer, net);
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("optimizer 'mine' is not one of SGD, Adam"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("AddArchive"));
}

TEST(TorchOptimizer, ReportsMomentsOfAnotherShapeAsDifferences) {
  Trainer saver(kAdam, 6);
  Train(saver.net, *saver.optimizer, 0, 1);
  const MemoryCheckpoint saved = MustSave(saver.state);
  Trainer loader(kAdam, 5);
  const absl::Status status = RestoreFromMemory(loader.state, saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("optimizer.a.weight.exp_avg is float32 [6, 4], not float32 [5, 4]"));
  EXPECT_TRUE(loader.optimizer->state().empty());
}

TEST(TorchOptimizer, RefusesAStateThatLacksAMoment) {
  Trainer trainer(kAdam);
  Train(trainer.net, *trainer.optimizer, 0, 1);
  MemoryCheckpoint saved = MustSave(trainer.state);
  saved.items.erase("optimizer.b.weight.exp_avg_sq");
  Trainer fresh(kAdam);
  const absl::Status status = RestoreFromMemory(fresh.state, saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("entry 'optimizer.b.weight.exp_avg_sq': the checkpoint lacks"));
  EXPECT_TRUE(fresh.optimizer->state().empty());
}

TEST(TorchOptimizer, ShowsNothingOfARestoreThatIsAbandoned) {
  Trainer saver(kAdam);
  Train(saver.net, *saver.optimizer, 0, 2);
  const MemoryCheckpoint saved = MustSave(saver.state);
  std::vector<EntrySpec> specs;
  for (const auto& [name, item] : saved.items) specs.push_back(item.spec);
  Trainer fresh(kAdam);
  ASSERT_TRUE(fresh.state.PrepareRestore(specs).ok());
  EXPECT_EQ(fresh.state.entries().size(), saved.items.size());
  EXPECT_TRUE(fresh.optimizer->state().empty());
  fresh.state.AbandonRestore();
  EXPECT_TRUE(fresh.optimizer->state().empty());
  EXPECT_FALSE(MustSave(fresh.state).items.contains("optimizer.a.weight.exp_avg"));
}

TEST(TorchOptimizer, LeavesParametersWithoutAGradientWithoutState) {
  Trainer saver(kAdam);
  saver.net.a->weight.set_requires_grad(false);
  Train(saver.net, *saver.optimizer, 0, 2);
  const MemoryCheckpoint saved = MustSave(saver.state);
  EXPECT_FALSE(saved.items.contains("optimizer.a.weight.step"));
  Trainer fresh(kAdam);
  ASSERT_TRUE(RestoreFromMemory(fresh.state, saved).ok());
  EXPECT_EQ(fresh.optimizer->state().size(), 3U);
}

TEST(TorchOptimizer, MomentsMadeInInferenceModeCanBeTrainedOn) {
  Trainer saver(kAdam);
  Train(saver.net, *saver.optimizer, 0, 2);
  const MemoryCheckpoint saved = MustSave(saver.state);
  Trainer fresh(kAdam);
  {
    const c10::InferenceMode mode;
    const absl::Status restored = RestoreFromMemory(fresh.state, saved);
    ASSERT_TRUE(restored.ok()) << restored;
  }
  Train(fresh.net, *fresh.optimizer, 2, 1);
  Train(saver.net, *saver.optimizer, 2, 1);
  ExpectEqual(saver.net, fresh.net);
}

TEST(TorchOptimizer, TakesAPartOfItsStateAndKeepsTheRest) {
  Trainer saver(kAdam);
  Train(saver.net, *saver.optimizer, 0, 2);
  MemoryCheckpoint saved = MustSave(saver.state);
  std::erase_if(saved.items, [](const auto& item) { return !item.first.starts_with("optimizer.a."); });
  Trainer trainer(kAdam);
  Train(trainer.net, *trainer.optimizer, 0, 3);
  const MemoryCheckpoint before = MustSave(trainer.state);
  std::vector<EntrySpec> specs;
  for (const auto& [name, item] : saved.items) specs.push_back(item.spec);
  ASSERT_TRUE(trainer.state.PrepareRestore(specs).ok());
  for (size_t i = 0; i < trainer.state.entries().size(); ++i) {
    const auto found = saved.items.find(trainer.state.entries()[i].spec.name);
    if (found == saved.items.end()) continue;
    const State::Entry& entry = trainer.state.entries()[i];
    if (entry.spec.kind == EntryKind::kTensor) {
      std::memcpy(entry.host, found->second.bytes.data(), entry.bytes);
    } else {
      ASSERT_TRUE(trainer.state.Receive(i, found->second.bytes).ok());
    }
  }
  ASSERT_TRUE(trainer.state.FinishRestore().ok());
  const MemoryCheckpoint after = MustSave(trainer.state);
  ASSERT_EQ(after.Names(), before.Names());
  for (const auto& [name, item] : after.items) {
    EXPECT_EQ(item.bytes, saved.items.contains(name) ? saved.items.at(name).bytes : before.items.at(name).bytes)
        << name;
  }
}

}  // namespace
}  // namespace tidemark
