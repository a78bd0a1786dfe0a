#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
