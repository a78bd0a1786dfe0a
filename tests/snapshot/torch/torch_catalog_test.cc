#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"

namespace tidemark {
namespace {

using ::testing::ElementsAre;

TEST(TorchCatalog, KeepsTheStructureWhileOnlyContentsAndPlacesChange) {
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

TEST(TorchCatalog, SeesDtypesShapesTiesAndNewParameters) {
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

TEST(TorchCatalog, SeesTensorsLeaveHostMemoryOrTheirOrder) {
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

TEST(TorchCatalog, SeesNewNamesForTheSameTensors) {
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

TEST(TorchCatalog, SeesAModuleMovedToAnotherParent) {
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

TEST(TorchCatalog, SeesEverythingThatMayHappenToATensor) {
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
TEST(TorchCatalog, SeesStorageThatBecameCopyOnWrite) {
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

TEST(TorchCatalog, SeesOptimizerStatesComeMoveAndGo) {
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

TEST(TorchCatalog, SeesAnOptimizerStateGoAndAnotherCome) {
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

}  // namespace
}  // namespace tidemark
