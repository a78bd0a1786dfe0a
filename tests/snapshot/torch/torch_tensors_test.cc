// Tensors of every sort through TorchState, and back.

#include <cstring>
#include <functional>

#include "fmt/format.h"
#include "snapshot/torch/torch_dtypes.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;

// The elements in order, as bytes.
std::vector<std::byte> Bytes(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().resolve_conj().resolve_neg().contiguous();
  const auto* begin = static_cast<const std::byte*>(flat.data_ptr());
  return {begin, begin + flat.nbytes()};
}

// Saves `tensor`, overwrites it, restores it, and expects the old elements in the old layout.
void ExpectRoundTrip(const at::Tensor& tensor, const std::function<void()>& overwrite) {
  TorchState state;
  state.AddTensor("t", tensor);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const MemoryCheckpoint::Item& item = saved->items.at("t");
  EXPECT_EQ(item.spec.shape, tensor.sizes().vec());
  const std::vector<std::byte> before = Bytes(tensor);
  EXPECT_EQ(item.bytes, before);
  const std::vector<int64_t> strides = tensor.strides().vec();
  overwrite();
  ASSERT_NE(Bytes(tensor), before);
  const absl::Status restored = RestoreFromMemory(state, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_EQ(Bytes(tensor), before);
  EXPECT_EQ(tensor.strides().vec(), strides);
}

void ExpectRoundTrip(const at::Tensor& tensor) {
  ExpectRoundTrip(tensor, [&] {
    const at::NoGradGuard no_grad;
    at::Tensor(tensor).zero_();
  });
}

absl::Status StatusOfSaving(const at::Tensor& tensor) {
  TorchState state;
  state.AddTensor("the.entry", tensor);
  return state.Refresh();
}

TEST(TorchTensors, OfEveryDtypeSurvive) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    if (!ToDtype(type)) continue;
    SCOPED_TRACE(c10::toString(type));
    const at::Tensor bits = at::arange(1, 97, at::kByte);
    const auto width = static_cast<int64_t>(c10::elementSize(type));
    const auto make = [&] {
      at::Tensor tensor = at::empty({6 / (width == 16 ? 2 : 1), 96 / width / (6 / (width == 16 ? 2 : 1))}, type);
      std::memcpy(tensor.data_ptr(), bits.data_ptr(), tensor.nbytes());
      return tensor;
    };
    const at::Tensor tensor = make();
    const auto overwrite = [&] { std::memset(tensor.data_ptr(), 0, tensor.nbytes()); };
    ExpectRoundTrip(tensor, overwrite);

    // Not contiguous: compared by hand, since LibTorch cannot make every dtype contiguous.
    TorchState state;
    state.AddTensor("t", tensor.t());
    const auto saved = SaveToMemory(state);
    ASSERT_TRUE(saved.ok()) << saved.status();
    const std::vector<std::byte>& bytes = saved->items.at("t").bytes;
    const auto* memory = static_cast<const std::byte*>(bits.data_ptr());
    for (int64_t r = 0; r < tensor.size(1); ++r) {
      for (int64_t c = 0; c < tensor.size(0); ++c) {
        EXPECT_EQ(std::memcmp(&bytes[static_cast<size_t>((r * tensor.size(0) + c) * width)],
                              memory + (c * tensor.size(1) + r) * width, static_cast<size_t>(width)),
                  0);
      }
    }
    overwrite();
    ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
    EXPECT_EQ(std::memcmp(tensor.data_ptr(), memory, tensor.nbytes()), 0);
  }
}

TEST(TorchTensors, KeepThePayloadOfANan) {
  const at::Tensor tensor = at::empty({2, 3}, at::kFloat);
  const uint32_t nan = 0x7fa12345;  // signalling, with a payload
  for (int i = 0; i < 6; ++i) std::memcpy(static_cast<float*>(tensor.data_ptr()) + i, &nan, 4);
  ExpectRoundTrip(tensor.t());
}

TEST(TorchTensors, WithoutElementsOrDimensionsSurvive) {
  ExpectRoundTrip(at::scalar_tensor(3.5));
  TorchState state;
  state.AddTensor("empty", at::empty({3, 0, 2}));
  state.AddTensor("also_empty", at::empty({3, 0, 2}).transpose(0, 2));
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->items.at("empty").spec.shape, (std::vector<int64_t>{3, 0, 2}));
  EXPECT_TRUE(saved->items.at("empty").bytes.empty());
  EXPECT_TRUE(RestoreFromMemory(state, *saved).ok());
}

TEST(TorchTensors, InOtherOrdersAreStoredInOrderAndRestoredInTheirs) {
  ExpectRoundTrip(at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  ExpectRoundTrip(at::randn({3, 5}).t());
  ExpectRoundTrip(at::randn({10, 10}).narrow(1, 2, 3));
  ExpectRoundTrip(at::randn({10}).slice(0, 0, 10, 3));
}

TEST(TorchTensors, WithConjugateOrNegativeBitAreStoredAsTheyRead) {
  const at::Tensor complex = at::randn({3, 4}, at::kComplexFloat);
  ExpectRoundTrip(complex.conj());
  ExpectRoundTrip(at::imag(complex.conj()));
}

TEST(TorchTensors, ExpandedAreStoredInFullAndRestoredThroughOneCopy) {
  const at::Tensor base = at::randn({3, 1, 2});
  const at::Tensor expanded = base.expand({3, 4, 2});
  ExpectRoundTrip(expanded, [&] { at::Tensor(base).zero_(); });
  const at::Tensor number = at::ones({});
  ExpectRoundTrip(number.expand({5, 2}), [&] { at::Tensor(number).zero_(); });
}

TEST(TorchTensors, ExpandedRefuseElementsThatDifferAlongTheExpansion) {
  TorchState from;
  from.AddTensor("t", at::arange(6.0).reshape({3, 2}));
  const auto saved = SaveToMemory(from);
  ASSERT_TRUE(saved.ok());
  const at::Tensor base = at::full({1, 2}, 7.0);
  TorchState into;
  into.AddTensor("t", base.expand({3, 2}));
  const absl::Status restored = RestoreFromMemory(into, *saved);
  EXPECT_EQ(restored.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(restored.message()), HasSubstr("entry 't': the tensor is expanded along dimension 0"));
  EXPECT_TRUE(at::equal(base, at::full({1, 2}, 7.0)));
}

TEST(TorchTensors, ThatAreTheSameViewOfTheSameStorageAreStoredOnce) {
  const at::Tensor weight = at::randn({4, 4});
  TorchState state;
  int64_t number = 1;
  state.AddValue("number", &number);
  state.AddTensor("first", weight);
  state.AddTensor("same", weight.view({4, 4}));
  state.AddTensor("transposed", weight.t());
  state.AddTensor("part", weight.narrow(0, 1, 2));
  state.AddTensor("bits", weight.view(at::kInt));
  state.AddTensor("same_part", weight.narrow(0, 1, 2));
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->items.at("same").alias_of, "first");
  EXPECT_EQ(saved->items.at("transposed").alias_of, "");
  EXPECT_EQ(saved->items.at("part").alias_of, "");
  EXPECT_EQ(saved->items.at("bits").alias_of, "");
  EXPECT_EQ(saved->items.at("same_part").alias_of, "part");
  EXPECT_EQ(saved->items.at("part").bytes, Bytes(weight.narrow(0, 1, 2)));
  const at::Tensor before = weight.clone();
  at::Tensor(weight).zero_();
  ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
  EXPECT_TRUE(at::equal(weight, before));
}

TEST(TorchTensors, ThatCannotBeStoredAreRefusedByName) {
  const at::Tensor dense = at::rand({4, 4});
  struct Case {
    const char* sort;
    at::Tensor tensor;
  };
  std::vector<Case> cases = {
      {"sparse", dense.to_sparse()},
      {"sparse", dense.to_sparse_csr()},
      {"quantised", at::quantize_per_tensor(dense, 0.1, 0, at::kQInt8)},
      {"meta", at::empty({4}, at::TensorOptions().device(at::kMeta))},
      {"storageless", at::_efficientzerotensor({4}, at::TensorOptions().dtype(at::kFloat))},
      {"self-overlapping", at::zeros({8}).as_strided({3, 4}, {1, 1})},
      {"nested", at::_nested_tensor_from_tensor_list({at::rand({2, 3}), at::rand({4, 3})})},
  };
  if (at::globalContext().userEnabledMkldnn() && at::hasMKLDNN()) cases.push_back({"MKL-DNN", dense.to_mkldnn()});
  for (const Case& each : cases) {
    const absl::Status status = StatusOfSaving(each.tensor);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << each.sort;
    EXPECT_EQ(std::string(status.message()), fmt::format("entry 'the.entry': {} tensors cannot be stored", each.sort));
  }
  const absl::Status undefined = StatusOfSaving(at::Tensor());
  EXPECT_EQ(undefined.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(undefined.message()), "entry 'the.entry': the tensor is undefined");
}

TEST(TorchTensors, ThatRequireAGradientAreWrittenAndTheirVersionCounted) {
  const at::Tensor leaf = torch::randn({3, 3}, at::TensorOptions().requires_grad(true));
  const at::Tensor other = torch::randn({3, 3}).t().requires_grad_();
  TorchState state;
  state.AddTensor("leaf", leaf);
  state.AddTensor("other", other);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok());
  const at::Tensor leaf_before = leaf.detach().clone();
  const at::Tensor other_before = other.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    at::Tensor(leaf).zero_();
    at::Tensor(other).zero_();
  }
  const auto leaf_version = leaf._version();
  const auto other_version = other._version();
  ASSERT_TRUE(RestoreFromMemory(state, *saved).ok());
  EXPECT_TRUE(at::equal(leaf, leaf_before));
  EXPECT_TRUE(at::equal(other, other_before));
  EXPECT_GT(leaf._version(), leaf_version);
  EXPECT_GT(other._version(), other_version);
  EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad());
  EXPECT_TRUE(other.is_leaf() && other.requires_grad());
}

TEST(TorchTensors, OfInferenceModeAreRestoredOutsideOfIt) {
  at::Tensor tensor;
  {
    const c10::InferenceMode mode;
    tensor = at::randn({3, 4}).t();
  }
  TorchState state;
  state.AddTensor("t", tensor);
  const auto saved = SaveToMemory(state);
  ASSERT_TRUE(saved.ok()) << saved.status();
  at::Tensor before;
  {
    const c10::InferenceMode mode;
    before = tensor.clone();
    tensor.zero_();
  }
  const absl::Status restored = RestoreFromMemory(state, *saved);
  ASSERT_TRUE(restored.ok()) << restored;
  EXPECT_TRUE(at::equal(tensor, before));
}

TEST(TorchTensors, ReceiveRefusesBytesOfAnotherLength) {
  TorchState state;
  state.AddTensor("t", at::zeros({3, 3}).t());
  ASSERT_TRUE(state.PrepareRestore({}).ok());
  const absl::Status status = state.Receive(0, std::vector<std::byte>(8));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()), "entry 't': 8 bytes arrived for a tensor of 36");
}

}  // namespace
}  // namespace tidemark
