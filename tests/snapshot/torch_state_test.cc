#include "torch_checkpoint.h"
#include "torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Block : torch::nn::Module {
  Block()
      : linear(register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))) {
    scale = register_parameter("scale", torch::ones({4}));
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  at::Tensor scale;
};

struct Model : torch::nn::Module {
  Model() : first(register_module("first", std::make_shared<Block>())) {}
  std::shared_ptr<Block> first;
};

std::vector<std::string> EntryNames(const State& state) {
  std::vector<std::string> names;
  for (const State::Entry& entry : state.entries()) names.push_back(entry.spec.name);
  return names;
}

const State::Entry& FindEntry(const State& state, const std::string& name) {
  for (const State::Entry& entry : state.entries()) {
    if (entry.spec.name == name) return entry;
  }
  throw std::out_of_range(name);
}

TEST(TorchState, NamesParametersAndBuffersAsTheModuleDoes) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  ASSERT_TRUE(state.Refresh().ok());
  std::vector<std::string> expected;
  for (const auto& item : model.named_parameters()) expected.push_back("model." + item.key());
  for (const auto& item : model.named_buffers()) expected.push_back("model." + item.key());
  ASSERT_EQ(expected.size(), 7U);
  EXPECT_THAT(EntryNames(state), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(FindEntry(state, "model.first.norm.num_batches_tracked").spec.dtype, Dtype::kInt64);
}

TEST(TorchState, BuffersChangeEarlyAndParametersDoNot) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  state.AddTensor("t", torch::ones({2}));
  ASSERT_TRUE(state.Refresh().ok());
  std::vector<std::string> early;
  for (const State::Entry& entry : state.entries()) {
    if (entry.changes_early) early.push_back(entry.spec.name);
  }
  EXPECT_THAT(early, ElementsAre("model.first.norm.running_mean", "model.first.norm.running_var",
                                 "model.first.norm.num_batches_tracked"));
}

TEST(TorchState, ATensorThatIsAlsoABufferChangesEarly) {
  const at::Tensor shared = torch::ones({4});
  torch::nn::Module module;
  module.register_buffer("shared", shared);
  TorchState state;
  state.AddTensor("t", shared);
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_FALSE(FindEntry(state, "t").changes_early);
  const uint64_t version = state.structure_version();
  state.AddModule("module", module);
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(FindEntry(state, "module.shared").alias_of, 0);
  EXPECT_TRUE(FindEntry(state, "t").changes_early);
  EXPECT_NE(state.structure_version(), version);
}

TEST(TorchState, AParameterThatBecomesABufferChangesTheStructure) {
  const at::Tensor scale = torch::ones({4});
  TorchState state;
  torch::nn::Module parent;
  auto with_parameter = std::make_shared<torch::nn::Module>();
  with_parameter->register_parameter("scale", scale, /*requires_grad=*/false);
  auto with_buffer = std::make_shared<torch::nn::Module>();
  with_buffer->register_buffer("scale", scale);
  parent.register_module("child", with_parameter);
  state.AddModule("model", parent);
  ASSERT_TRUE(state.Refresh().ok());
  const uint64_t version = state.structure_version();
  parent.replace_module("child", with_buffer);
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_TRUE(FindEntry(state, "model.child.scale").changes_early);
  EXPECT_NE(state.structure_version(), version);
}

TEST(TorchState, RestoresAModuleInPlaceBesideValues) {
  Model model;
  int64_t epoch = 3;
  TorchState state;
  state.AddModule("model", model);
  state.AddValue("epoch", &epoch);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const at::Tensor weight = model.first->linear->weight;
  const at::Tensor before = weight.detach().clone();
  const void* memory = weight.data_ptr();
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.parameters()) parameter.fill_(7);
  }
  epoch = 9;
  ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
  EXPECT_TRUE(at::equal(model.first->linear->weight, before));
  EXPECT_EQ(model.first->linear->weight.data_ptr(), memory);
  EXPECT_TRUE(model.first->linear->weight.requires_grad());
  EXPECT_EQ(epoch, 3);
}

TEST(TorchState, SharedModulesAreStoredOnceUnderBothNames) {
  struct Tied : torch::nn::Module {
    Tied() {
      auto shared = register_module("a", torch::nn::Linear(2, 2));
      register_module("b", shared);
    }
  } model;
  TorchState state;
  state.AddModule("", model);
  ASSERT_TRUE(state.Refresh().ok());
  ASSERT_THAT(EntryNames(state), ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_EQ(state.entries()[2].alias_of, 0);
  EXPECT_EQ(state.entries()[3].alias_of, 1);
}

TEST(TorchState, RefreshKeepsTheStructureWhileOnlyContentsAndPlacesChange) {
  Model model;
  const at::Tensor column = torch::zeros({3, 2}).t();
  TorchState state;
  state.AddModule("model", model);
  state.AddTensor("column", column);
  state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
  ASSERT_TRUE(state.Refresh().ok());
  const uint64_t version = state.structure_version();
  const std::byte* place = FindEntry(state, "model.first.scale").host;
  EXPECT_EQ(static_cast<const void*>(place), model.first->scale.data_ptr());
  EXPECT_EQ(FindEntry(state, "column").host, nullptr);

  torch::randn({4});  // the generator's state moves on
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.structure_version(), version);
  EXPECT_EQ(FindEntry(state, "model.first.scale").host, place);

  model.first->scale.set_data(torch::full({4}, 2.0F));
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.structure_version(), version);
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, "model.first.scale").host), model.first->scale.data_ptr());
}

TEST(TorchState, RefreshSeesDtypesShapesTiesAndNewParameters) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  ASSERT_TRUE(state.Refresh().ok());
  uint64_t version = state.structure_version();
  const auto expect_change = [&] {
    ASSERT_TRUE(state.Refresh().ok());
    EXPECT_NE(state.structure_version(), version);
    version = state.structure_version();
  };
  model.to(at::kDouble);
  expect_change();
  EXPECT_EQ(FindEntry(state, "model.first.scale").spec.dtype, Dtype::kFloat64);
  model.first->scale.set_data(torch::ones({6}, at::kDouble));
  expect_change();
  EXPECT_EQ(FindEntry(state, "model.first.scale").spec.shape, (std::vector<int64_t>{6}));
  model.first->register_parameter("late", torch::zeros({2}));
  expect_change();
  EXPECT_EQ(FindEntry(state, "model.first.late").bytes, 8U);
  model.first->norm->bias.set_data(model.first->norm->weight);
  expect_change();
  EXPECT_GE(FindEntry(state, "model.first.norm.bias").alias_of, 0);
}

TEST(TorchState, RefreshSeesTensorsLeaveHostMemoryOrTheirOrder) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  ASSERT_TRUE(state.Refresh().ok());
  const uint64_t version = state.structure_version();
  model.first->linear->weight.set_data(torch::randn({4, 4}).t());
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_NE(state.structure_version(), version);
  EXPECT_EQ(FindEntry(state, "model.first.linear.weight").host, nullptr);
}

TEST(TorchState, RefreshSeesNewNamesForTheSameTensors) {
  struct Parent : torch::nn::Module {
    Parent() { child = register_module("child", std::make_shared<Block>()); }
    void Rename() {
      unregister_module("child");
      register_module("other", child);
    }
    std::shared_ptr<Block> child;
  } parent;
  const at::Tensor t = torch::ones({2});
  TorchState state;
  state.AddModule("model", parent);
  state.AddTensor("t", t);
  ASSERT_TRUE(state.Refresh().ok());
  const uint64_t version = state.structure_version();
  const size_t count = state.entries().size();
  parent.Rename();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_NE(state.structure_version(), version);
  ASSERT_EQ(state.entries().size(), count);
  for (const std::string& name : EntryNames(state)) {
    EXPECT_TRUE(name == "t" || name.rfind("model.other.", 0) == 0) << name;
  }
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, "t").host), t.data_ptr());
}

TEST(TorchState, RefreshSeesAModuleMovedToAnotherParent) {
  struct Tree : torch::nn::Module {
    Tree() {
      a = register_module("a", std::make_shared<torch::nn::Module>());
      b = register_module("b", std::make_shared<torch::nn::Module>());
      leaf = a->register_module("leaf", torch::nn::Linear(2, 2));
    }
    std::shared_ptr<torch::nn::Module> a, b;
    torch::nn::Linear leaf{nullptr};
  } tree;
  TorchState state;
  state.AddModule("", tree);
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_THAT(EntryNames(state), ElementsAre("a.leaf.weight", "a.leaf.bias"));
  tree.a->unregister_module("leaf");
  tree.b->register_module("leaf", tree.leaf.ptr());
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_THAT(EntryNames(state), ElementsAre("b.leaf.weight", "b.leaf.bias"));
}

TEST(TorchState, RefreshSeesEverythingThatMayHappenToATensor) {
  const at::Tensor tensor = torch::ones({4, 4});
  const at::Tensor last = torch::ones({2});
  TorchState state;
  state.AddTensor("tensor", tensor);
  state.AddTensor("last", last);
  ASSERT_TRUE(state.Refresh().ok());
  const auto refreshed = [&]() -> const State::Entry& {
    EXPECT_TRUE(state.Refresh().ok());
    EXPECT_EQ(static_cast<const void*>(FindEntry(state, "last").host), last.data_ptr());
    return FindEntry(state, "tensor");
  };
  // In place: the same TensorImpl and the same storage with other memory.
  tensor.resize_({1024, 1024});
  EXPECT_EQ(refreshed().spec.shape, (std::vector<int64_t>{1024, 1024}));
  EXPECT_EQ(static_cast<const void*>(refreshed().host), tensor.data_ptr());
  // A part of its own storage, of the same shape.
  const at::Tensor whole = torch::ones({8, 4});
  tensor.set_data(whole.narrow(0, 0, 4));
  EXPECT_EQ(static_cast<const void*>(refreshed().host), whole.data_ptr());
  tensor.set_data(whole.narrow(0, 4, 4));
  EXPECT_EQ(static_cast<const void*>(refreshed().host), whole[4].data_ptr());
  // Strides alone.
  tensor.set_data(whole.narrow(0, 0, 4).t());
  EXPECT_EQ(refreshed().host, nullptr);
  // Tied to another.
  TorchState tied;
  at::Tensor a = torch::ones({3});
  const at::Tensor b = torch::ones({3});
  tied.AddTensor("b", b);
  tied.AddTensor("a", a);
  ASSERT_TRUE(tied.Refresh().ok());
  EXPECT_EQ(FindEntry(tied, "a").alias_of, -1);
  a.set_data(b);
  ASSERT_TRUE(tied.Refresh().ok());
  EXPECT_EQ(FindEntry(tied, "a").alias_of, 0);
}

#if TORCH_VERSION_MAJOR >= 2
TEST(TorchState, RefreshSeesStorageThatBecameCopyOnWrite) {
  const at::Tensor tensor = torch::ones({4});
  TorchState state;
  state.AddTensor("tensor", tensor);
  ASSERT_TRUE(state.Refresh().ok());
  const at::Tensor clone = at::_lazy_clone(tensor);
  ASSERT_TRUE(state.Refresh().ok());
  // A restore writes there, which the clone must not see.
  *reinterpret_cast<float*>(state.entries()[0].host) = 7;
  EXPECT_EQ(tensor[0].item<float>(), 7);
  EXPECT_EQ(clone[0].item<float>(), 1);
}
#endif

TEST(TorchState, AnOptimizersTensorsAreStagedWithTheirParameter) {
  Model model;
  torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(0.1));
  int64_t epoch = 0;
  TorchState state;
  state.AddValue("epoch", &epoch);
  state.AddModule("model", model);
  state.AddOptimizer("optimizer", adam, model);
  ASSERT_TRUE(state.Refresh().ok());
  const uint64_t version = state.structure_version();
  for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  adam.step();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_NE(state.structure_version(), version);
  const auto staged_with = [&](const std::string& name) {
    const int64_t index = FindEntry(state, name).staged_with;
    return index < 0 ? "" : state.entries()[static_cast<size_t>(index)].spec.name;
  };
  EXPECT_EQ(staged_with("optimizer.first.scale.exp_avg"), "model.first.scale");
  EXPECT_EQ(staged_with("optimizer.first.linear.weight.exp_avg_sq"), "model.first.linear.weight");
  EXPECT_EQ(staged_with("optimizer.first.scale.step"), "");
  EXPECT_EQ(staged_with("model.first.scale"), "");
  // What is added later stands before them.
  bool flag = false;
  state.AddValue("flag", &flag);
  EXPECT_EQ(staged_with("optimizer.first.scale.exp_avg"), "model.first.scale");
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(staged_with("optimizer.first.scale.exp_avg"), "model.first.scale");
}

TEST(TorchState, AnOptimizerThatStandsBeforeItsModuleIsStagedWhereItStands) {
  Model model;
  torch::optim::Adagrad adagrad(model.parameters(), torch::optim::AdagradOptions(0.1));
  TorchState state;
  state.AddOptimizer("optimizer", adagrad, model);
  state.AddModule("model", model);
  ASSERT_TRUE(state.Refresh().ok());
  for (const State::Entry& entry : state.entries()) EXPECT_EQ(entry.staged_with, -1) << entry.spec.name;
}

TEST(TorchState, RefreshSeesOptimizerStatesComeMoveAndGo) {
  Model model;
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TorchState state;
  state.AddOptimizer("optimizer", sgd, model);
  ASSERT_TRUE(state.Refresh().ok());
  const size_t without = state.entries().size();
  model.first->scale.mutable_grad() = torch::ones({4});
  sgd.step();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.entries().size(), without + 1);
  const std::string name = "optimizer.first.scale.momentum_buffer";
  auto& momentum = static_cast<torch::optim::SGDParamState&>(*sgd.state().begin()->second);
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, name).host), momentum.momentum_buffer().data_ptr());
  // Another state object for the same parameter, as loading an optimizer makes it.
  auto replacement = std::make_unique<torch::optim::SGDParamState>();
  const at::Tensor buffer = torch::ones({4});
  replacement->momentum_buffer(buffer);
  sgd.state().begin()->second = std::move(replacement);
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, name).host), buffer.data_ptr());
  for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  sgd.step();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.entries().size(), without + model.parameters().size());
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, name).host), buffer.data_ptr());
  sgd.state().clear();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.entries().size(), without);
}

TEST(TorchState, RefreshSeesAnOptimizerStateGoAndAnotherCome) {
  Model model;
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TorchState state;
  state.AddOptimizer("optimizer", sgd, model);
  model.first->scale.mutable_grad() = torch::ones({4});
  sgd.step();
  ASSERT_TRUE(state.Refresh().ok());
  EXPECT_NE(FindEntry(state, "optimizer.first.scale.momentum_buffer").host, nullptr);
  sgd.state().clear();
  model.first->scale.mutable_grad() = at::Tensor();
  model.first->norm->bias.mutable_grad() = torch::ones({4});
  sgd.step();
  ASSERT_TRUE(state.Refresh().ok());
  const auto& momentum = static_cast<const torch::optim::SGDParamState&>(*sgd.state().begin()->second);
  EXPECT_EQ(static_cast<const void*>(FindEntry(state, "optimizer.first.norm.bias.momentum_buffer").host),
            momentum.momentum_buffer().data_ptr());
}

TEST(TorchState, NamesGivenTwiceAreRefused) {
  TorchState state;
  state.AddTensor("t", torch::ones({1}));
  state.AddTensor("t", torch::ones({2}));
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "entry 't' was added twice");
}

TEST(TorchState, ErrorsGoWhenTheirCauseDoes) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  ASSERT_TRUE(state.Refresh().ok());
  auto child = std::make_shared<torch::nn::Module>();
  child->register_buffer("sparse", torch::eye(3).to_sparse());
  model.register_module("child", child);
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(status.message()), "entry 'model.child.sparse': sparse tensors cannot be stored");
  EXPECT_TRUE(state.entries().empty());
  model.unregister_module("child");
  EXPECT_TRUE(state.Refresh().ok());
  EXPECT_EQ(state.entries().size(), 7U);
}

TEST(TorchState, AGeneratorContinuesWhereItWasSaved) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  TorchState state;
  state.AddGenerator("rng", generator);
  torch::randn({5}, generator);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->items.at("rng").spec.kind, EntryKind::kBytes);
  const at::Tensor expected = torch::randn({100}, generator);
  generator.set_current_seed(4);
  ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
  EXPECT_TRUE(at::equal(torch::randn({100}, generator), expected));
}

TEST(TorchState, GeneratorBytesOfNoGeneratorAreRefusedBeforeAnythingIsRestored) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  int64_t number = 1;
  TorchState state;
  state.AddValue("number", &number);
  state.AddGenerator("rng", generator);
  auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok());
  saved->items.at("rng").bytes.resize(100);
  saved->items.at("rng").spec.shape = {100};
  number = 2;
  const absl::Status status = RestoreFromMemory(state, *saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("entry 'rng': the checkpoint holds 100 bytes"));
  EXPECT_EQ(number, 2);
}

TEST(TorchState, GeneratorBytesThatTheGeneratorRefusesAreRefusedBeforeAnythingIsRestored) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  int64_t number = 1;
  TorchState state;
  state.AddValue("number", &number);
  state.AddGenerator("rng", generator);
  auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok());
  std::vector<std::byte>& bytes = saved->items.at("rng").bytes;
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  number = 2;
  const absl::Status status = RestoreFromMemory(state, *saved);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("entry 'rng': the generator refused its state"));
  EXPECT_EQ(number, 2);
}

TEST(TorchState, AnUndefinedGeneratorIsRefused) {
  TorchState state;
  state.AddGenerator("rng", at::Generator());
  const absl::Status status = state.Refresh();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "entry 'rng': the generator is undefined");
}

TEST(TorchState, ValuesAreReadByRefreshAndNotLater) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  TorchState state;
  state.AddGenerator("rng", generator);
  ASSERT_TRUE(state.Refresh().ok());
  const State::Entry& entry = state.entries()[0];
  const std::vector<std::byte> before(entry.host, entry.host + entry.bytes);
  torch::randn({1000}, generator);
  EXPECT_EQ(std::vector<std::byte>(entry.host, entry.host + entry.bytes), before);
}

TEST(TorchState, ReceivingAfterAnAbandonedRestoreIsRefused) {
  TorchState state;
  state.AddTensor("t", torch::ones({2}));
  ASSERT_TRUE(state.PrepareRestore({}).ok());
  state.AbandonRestore();
  EXPECT_EQ(state.Receive(0, std::vector<std::byte>(8)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(SaveToMemory(state).ok());
}

TEST(TorchState, AModuleChangedDuringARestoreIsAnError) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok());
  ASSERT_TRUE(state.PrepareRestore({}).ok());
  model.first->register_parameter("late", torch::zeros({2}));
  const absl::Status status = state.FinishRestore();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("changed during a restore"));
}

}  // namespace
}  // namespace tidemark
