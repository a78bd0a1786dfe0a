// Snapshots into modules.

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "c10/core/InferenceMode.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Dtype DtypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return Dtype::kBfloat16;
    case at::kHalf:
      return Dtype::kFloat16;
    case at::kDouble:
      return Dtype::kFloat64;
    case at::kLong:
      return Dtype::kInt64;
    case at::kInt:
      return Dtype::kInt32;
    case at::kComplexFloat:
      return Dtype::kComplex64;
    default:
      return Dtype::kFloat32;
  }
}

void AddTensor(TestSnapshot& snapshot, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  const auto* begin = static_cast<const std::byte*>(values.data_ptr());
  snapshot.Add({.name = name, .dtype = DtypeOf(values), .shape = values.sizes().vec()},
               std::vector<std::byte>(begin, begin + values.nbytes()));
}

// What a save of the module under `prefix` holds; its floating-point tensors in `type`.
TestSnapshot SnapshotOf(const torch::nn::Module& module, const std::string& prefix, at::ScalarType type = at::kFloat) {
  TestSnapshot snapshot(7);
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    AddTensor(snapshot, prefix + "." + name, tensor.is_floating_point() ? tensor.to(type) : tensor);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return snapshot;
}

// A model whose every tensor has numbers of its own, of which bfloat16 keeps all bits.
Model NumberedModel() {
  Model model;
  const torch::NoGradGuard guard;
  int64_t number = 1;
  for (at::Tensor& tensor : model.parameters()) tensor.fill_(static_cast<double>(number++) / 8);
  for (at::Tensor& tensor : model.buffers()) tensor.fill_(number++);
  return model;
}

void ExpectSameValues(const torch::nn::Module& module, const torch::nn::Module& expected) {
  const auto parameters = module.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    EXPECT_TRUE(at::equal(parameters[item.key()].to(at::kFloat), item.value().to(at::kFloat))) << item.key();
  }
  const auto buffers = module.named_buffers();
  for (const auto& item : expected.named_buffers()) {
    EXPECT_TRUE(at::equal(buffers[item.key()].to(at::kFloat), item.value().to(at::kFloat))) << item.key();
  }
}

struct TiedModel : torch::nn::Module {
  TiedModel() {
    encoder = register_parameter("encoder", torch::zeros({3}));
    decoder = register_parameter("decoder", encoder);
  }
  at::Tensor encoder;
  at::Tensor decoder;
};

struct OneTensor : torch::nn::Module {
  explicit OneTensor(at::Tensor value) : tensor(register_buffer("tensor", std::move(value))) {}
  at::Tensor tensor;
};

TEST(LoadModule, FillsParametersAndBuffersInPlaceAndWithoutHistory) {
  const Model saved = NumberedModel();
  Model model;
  const void* address = model.first->linear->weight.data_ptr();
  ASSERT_THAT(LoadModule(SnapshotOf(saved, "model"), "model", model), IsOk());
  ExpectSameValues(model, saved);
  EXPECT_EQ(model.first->linear->weight.data_ptr(), address);
  EXPECT_TRUE(model.first->linear->weight.requires_grad());
  EXPECT_TRUE(model.first->linear->weight.is_leaf());
  EXPECT_FALSE(model.first->linear->weight.grad().defined());
  // It can be trained on from there.
  model.first->linear->forward(torch::ones({1, 4})).sum().backward();
  EXPECT_TRUE(model.first->linear->weight.grad().defined());
}

TEST(LoadModule, NamesEntriesAsAddModuleDoes) {
  Model model;
  TorchState state;
  state.AddModule("model", model);
  ASSERT_THAT(state.Refresh(), IsOk());
  TestSnapshot snapshot;
  for (const State::Entry& entry : state.entries()) {
    snapshot.Add(entry.spec, std::vector<std::byte>(entry.bytes));
  }
  EXPECT_THAT(LoadModule(snapshot, "model", model), IsOk());
}

TEST(LoadModule, ReadsAverages) {
  const Model saved = NumberedModel();
  TestSnapshot snapshot = SnapshotOf(saved, "ema.model");
  AddTensor(snapshot, "model.first.scale", torch::zeros({9}));
  AddTensor(snapshot, "optimizer.step", torch::zeros({}));
  Model model;
  ASSERT_THAT(LoadModule(snapshot, "ema.model", model), IsOk());
  ExpectSameValues(model, saved);
}

// As an evaluator does that knows the store's directory and the module's type, and nothing else.
TEST(LoadModule, LoadsTheAverageThatAStoreReaderReads) {
  const storage::TestDirectory directory;
  Model trained;
  {
    auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
    ASSERT_THAT(checkpointer, IsOk());
    ASSERT_THAT((*checkpointer)->AddCompanion(*MakeAverage({.kind = AverageOptions::Kind::kUniform})), IsOk());
    TorchState state;
    state.AddModule("model", trained);
    for (const int64_t step : {1, 2, 3}) {
      const torch::NoGradGuard guard;
      for (at::Tensor& tensor : trained.parameters()) tensor.fill_(static_cast<double>(step * step));
      for (at::Tensor& tensor : trained.buffers()) tensor.fill_(step * step);
      ASSERT_THAT((*checkpointer)->Save(step, state), IsOk());
    }
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }
  const auto reader = StoreReader::Open(directory / "store");
  ASSERT_THAT(reader, IsOk());
  const auto snapshot = (*reader)->Load(StepSelector::Latest(), {"ema.model.*"});
  ASSERT_THAT(snapshot, IsOk());
  Model average;
  ASSERT_THAT(LoadModule(**snapshot, "ema.model", average), IsOk());
  for (const at::Tensor& tensor : average.parameters()) {
    EXPECT_TRUE(at::allclose(tensor.detach(), torch::full_like(tensor, 14.0 / 3)));
  }
  EXPECT_EQ(average.first->norm->num_batches_tracked.item<int64_t>(), 9) << "counts are those of the newest step";
  // The step's own parameters are beside them, and what the reader did not read cannot be loaded.
  EXPECT_THAT(LoadModule(**snapshot, "model", average),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("first.scale")));
  const auto whole = (*reader)->Load(3);
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(LoadModule(**whole, "model", average), IsOk());
  ExpectSameValues(average, trained);
}

TEST(LoadModule, LoadsDifferentModulesOnDifferentThreads) {
  const Model saved = NumberedModel();
  const TestSnapshot snapshot = SnapshotOf(saved, "model");
  std::vector<Model> models(4);
  std::vector<std::thread> threads;
  for (Model& model : models) {
    threads.emplace_back([&snapshot, &model] {
      for (int i = 0; i < 50; ++i) EXPECT_THAT(LoadModule(snapshot, "model", model), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Model& model : models) ExpectSameValues(model, saved);
}

TEST(LoadModule, ConvertsBetweenFloatingPointTypes) {
  const Model saved = NumberedModel();
  for (at::ScalarType from : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    for (at::ScalarType to : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
      Model model;
      model.to(to);
      ASSERT_THAT(LoadModule(SnapshotOf(saved, "model", from), "model", model), IsOk());
      ExpectSameValues(model, saved);
      EXPECT_EQ(model.first->scale.scalar_type(), to);
    }
  }
}

TEST(LoadModule, RoundsToNearestEvenWhereTheModuleHasFewerBits) {
  TestSnapshot snapshot;
  snapshot.Add("m.tensor", std::vector<float>{1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 1.0F + 0x1.8p-8F});
  OneTensor module(torch::zeros({3}, at::kBFloat16));
  ASSERT_THAT(LoadModule(snapshot, "m", module), IsOk());
  EXPECT_TRUE(at::equal(module.tensor.to(at::kFloat), torch::tensor({1.0F, 1.0F + 0x4p-8F, 1.0F + 0x2p-8F})));
}

TEST(LoadModule, ConvertsIntegersToFloatingPointButNotBack) {
  TestSnapshot snapshot;
  AddTensor(snapshot, "m.tensor", torch::tensor({1, 2}, at::kInt));
  OneTensor real(torch::zeros({2}));
  ASSERT_THAT(LoadModule(snapshot, "m", real), IsOk());
  EXPECT_TRUE(at::equal(real.tensor, torch::tensor({1.0F, 2.0F})));

  TestSnapshot floats;
  floats.Add("m.tensor", std::vector<float>{1.5F, 2.5F});
  OneTensor whole(torch::zeros({2}, at::kLong));
  EXPECT_THAT(LoadModule(floats, "m", whole),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'m.tensor': dtype: snapshot has float32, which does not convert to the module's")));

  TestSnapshot complex;
  AddTensor(complex, "m.tensor", torch::zeros({2}, at::kComplexFloat));
  EXPECT_THAT(LoadModule(complex, "m", real),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("snapshot has complex64")));
}

TEST(LoadModule, ListsEverythingThatDoesNotFitAndTouchesNothing) {
  const Model saved = NumberedModel();
  TestSnapshot snapshot(7);
  for (const auto& item : saved.named_parameters()) {
    if (item.key() == "first.scale") continue;
    AddTensor(snapshot, "model." + item.key(), item.key() == "first.norm.bias" ? torch::ones({5}) : item.value());
  }
  for (const auto& item : saved.named_buffers()) AddTensor(snapshot, "model." + item.key(), item.value());
  AddTensor(snapshot, "model.head", torch::ones({2, 3}));
  snapshot.Add({.name = "model.note", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, std::vector<int64_t>{1});
  Model model;
  const Model before;
  model.first->linear->weight.detach().copy_(before.first->linear->weight.detach());
  EXPECT_THAT(
      LoadModule(snapshot, "model", model),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("the snapshot of step 7 does not fit the module under 'model', 3 differences:"),
                     HasSubstr("missing in the snapshot: 'model.first.scale' float [4]"),
                     HasSubstr("'model.first.norm.bias': shape: snapshot has [5], module has [4]"),
                     HasSubstr("not in the module: 'model.head' float32 [2, 3]"), Not(HasSubstr("model.note")))));
  ExpectSameValues(model, before);
}

TEST(LoadModule, RefusesAPartOfATensorAndAValue) {
  TestSnapshot part;
  part.Add({.name = "m.tensor", .dtype = Dtype::kFloat32, .shape = {4}, .box_offset = {0}, .box_extent = {2}},
           std::vector<float>{1, 2});
  OneTensor module(torch::zeros({4}));
  EXPECT_THAT(LoadModule(part, "m", module),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds only a part of it")));
  TestSnapshot value;
  value.Add({.name = "m.tensor", .kind = EntryKind::kDouble, .dtype = Dtype::kFloat64}, std::vector<double>{1});
  EXPECT_THAT(LoadModule(value, "m", module),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it is a double, not a tensor")));
  EXPECT_THAT(LoadModule(value, "", module),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prefix of the module's entries is empty")));
}

TEST(LoadModule, WritesTiedTensorsOnceIfTheSnapshotAgrees) {
  TiedModel model;
  TestSnapshot tied;
  tied.Add("model.encoder", std::vector<float>{1, 2, 3});
  tied.AddTied("model.decoder", "model.encoder");
  ASSERT_THAT(LoadModule(tied, "model", model), IsOk());
  EXPECT_TRUE(at::equal(model.decoder.detach(), torch::tensor({1.0F, 2.0F, 3.0F})));
  EXPECT_EQ(model.encoder.data_ptr(), model.decoder.data_ptr());

  TestSnapshot equal;
  equal.Add("model.encoder", std::vector<float>{4, 5, 6});
  equal.Add("model.decoder", std::vector<float>{4, 5, 6});
  EXPECT_THAT(LoadModule(equal, "model", model), IsOk());

  TestSnapshot untied;
  untied.Add("model.encoder", std::vector<float>{7, 8, 9});
  untied.Add("model.decoder", std::vector<float>{7, 8, 8});
  EXPECT_THAT(LoadModule(untied, "model", model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'model.decoder': it is tied to 'model.encoder' in the module, but they differ")));
  EXPECT_TRUE(at::equal(model.encoder.detach(), torch::tensor({4.0F, 5.0F, 6.0F})));
}

TEST(LoadModule, WritesTensorsThatDoNotCoverTheirMemoryInOrder) {
  TestSnapshot snapshot;
  AddTensor(snapshot, "m.tensor", torch::arange(6, at::kFloat).reshape({2, 3}));
  OneTensor module(torch::zeros({3, 2}).t());
  ASSERT_THAT(LoadModule(snapshot, "m", module), IsOk());
  EXPECT_TRUE(at::equal(module.tensor, torch::arange(6, at::kFloat).reshape({2, 3})));
}

TEST(LoadModule, WritesTensorsThatWereMadeForInference) {
  TestSnapshot snapshot;
  snapshot.Add("m.tensor", std::vector<float>{1, 2});
  std::unique_ptr<OneTensor> module;
  {
    const c10::InferenceMode guard;
    module = std::make_unique<OneTensor>(torch::zeros({2}));
  }
  ASSERT_THAT(LoadModule(snapshot, "m", *module), IsOk());
  EXPECT_EQ(module->tensor[1].item<float>(), 2.0F);
}

TEST(LoadModule, CopiesToTheModulesDevice) {
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  TestSnapshot snapshot;
  AddTensor(snapshot, "m.tensor", torch::full({64}, 9, at::kInt));
  OneTensor module(accelerator.Bytes(256, 1).view(at::kInt));
  ASSERT_THAT(LoadModule(snapshot, "m", module), IsOk());
  EXPECT_EQ(module.tensor.device(), PretendAccelerator::Device());
  accelerator.WaitUntilQuiescent();
  EXPECT_EQ(static_cast<const int32_t*>(module.tensor.data_ptr())[63], 9);
}

TEST(LoadModule, ReturnsWhatADeviceThrows) {
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  TestSnapshot snapshot;
  AddTensor(snapshot, "m.tensor", torch::full({64}, 9, at::kInt));
  OneTensor module(accelerator.Bytes(256, 1).view(at::kInt));
  accelerator.FailCopyAfter(0);
  EXPECT_THAT(LoadModule(snapshot, "m", module), StatusIs(absl::StatusCode::kInternal, HasSubstr("entry 'm.tensor'")));
}

}  // namespace
}  // namespace tidemark
