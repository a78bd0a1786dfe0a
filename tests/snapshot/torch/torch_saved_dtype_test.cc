// Saves that convert floating-point tensors because they were told to.

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "snapshot/numbers/half_precision.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/torch/torch_checkpoint.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The bytes that a save stores of `tensor` as `dtype`.
std::vector<std::byte> SavedBytes(const at::Tensor& tensor, Dtype dtype) {
  TorchState state;
  state.AddTensor("t", tensor);
  state.set_saved_dtype({"t"}, dtype);
  const auto checkpoint = SaveToMemory(state);
  EXPECT_THAT(checkpoint, IsOk());
  if (!checkpoint.ok()) return {};
  EXPECT_EQ(checkpoint->items.at("t").spec.dtype, dtype);
  return checkpoint->items.at("t").bytes;
}

std::vector<std::byte> BytesOf(const at::Tensor& tensor) {
  const at::Tensor held = tensor.contiguous();
  const auto* bytes = static_cast<const std::byte*>(held.data_ptr());
  return {bytes, bytes + held.nbytes()};
}

// Numbers of every exponent, and all that is special.
template <typename T>
std::vector<T> Numbers(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> numbers = {0, T(-0.0), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(),
                            std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::quiet_NaN(),
                            // Halves: between two bfloat16, and between two float16.
                            T(1.00390625), T(1.01171875), T(1.00048828125), T(1.00146484375), T(65519), T(65520)};
  while (numbers.size() < 50'000) {
    const uint64_t bits = random();
    T number;
    std::memcpy(&number, &bits, sizeof(number));
    numbers.push_back(number);
  }
  return numbers;
}

TEST(TorchSavedDtype, IsWhatLibTorchMakesOfEveryNumber) {
  constexpr uint32_t kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const std::vector<float> singles = Numbers<float>(kSeed);
  const std::vector<double> doubles = Numbers<double>(kSeed);
  for (const at::Tensor& tensor : {torch::tensor(singles), torch::tensor(doubles, at::kDouble)}) {
    for (const auto& [dtype, type] : {std::pair(Dtype::kFloat16, at::kHalf),
                                      {Dtype::kBfloat16, at::kBFloat16},
                                      {Dtype::kFloat32, at::kFloat},
                                      {Dtype::kFloat64, at::kDouble}}) {
      SCOPED_TRACE(GetDtypeInfo(dtype).name);
      EXPECT_EQ(SavedBytes(tensor, dtype), BytesOf(tensor.to(type)));
    }
  }
}

TEST(TorchSavedDtype, RoundsToNearestAndHalvesToEven) {
  constexpr uint32_t kSeed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const std::vector<float> numbers = Numbers<float>(kSeed);
  for (const HalfPrecision half : {HalfPrecision::kFloat16, HalfPrecision::kBfloat16}) {
    const Dtype dtype = half == HalfPrecision::kFloat16 ? Dtype::kFloat16 : Dtype::kBfloat16;
    std::vector<uint16_t> expected(numbers.size());
    ConvertToHalf({.dtype = Dtype::kFloat32}, half, std::as_bytes(std::span(numbers)),
                  std::as_writable_bytes(std::span(expected)));
    const std::vector<std::byte> saved = SavedBytes(torch::tensor(numbers), dtype);
    ASSERT_EQ(saved.size(), numbers.size() * 2);
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, &saved[i * 2], sizeof(bits));
      const uint16_t exponent = half == HalfPrecision::kFloat16 ? 0x7C00 : 0x7F80;
      if (std::isnan(numbers[i])) {
        EXPECT_TRUE((bits & exponent) == exponent && (bits & ~exponent & 0x7FFF) != 0) << bits;
      } else {
        EXPECT_EQ(bits, expected[i]) << numbers[i];
      }
    }
  }
}

TEST(TorchSavedDtype, IsOfFloatingTensorsThatMatchAndUntilItIsUndone) {
  TorchState state;
  int64_t epoch = 7;
  state.AddTensor("model.weight", torch::ones({2, 3}));
  state.AddTensor("model.steps", torch::ones({2}, at::kLong));
  state.AddTensor("model.turned", torch::randn({4, 5}).t());
  state.AddTensor("model.narrow", torch::ones({2}, at::kBFloat16));
  state.AddTensor("head.weight", torch::ones({2}));
  state.AddValue("model.epoch", &epoch);
  const auto before = SaveToMemory(state);
  ASSERT_THAT(before, IsOk());
  state.set_saved_dtype({"model.*"}, Dtype::kBfloat16);
  for (int save = 0; save < 2; ++save) {
    const auto saved = SaveToMemory(state);
    ASSERT_THAT(saved, IsOk());
    for (const auto& [name, item] : before->items) {
      const bool converts = name == "model.weight" || name == "model.turned";
      EXPECT_EQ(saved->items.at(name).spec.dtype, converts ? Dtype::kBfloat16 : item.spec.dtype) << name;
      EXPECT_EQ(saved->items.at(name).spec.shape, item.spec.shape) << name;
      EXPECT_TRUE(converts || saved->items.at(name).bytes == item.bytes) << name;
    }
  }
  state.set_saved_dtype({}, Dtype::kBfloat16);
  const auto after = SaveToMemory(state);
  ASSERT_THAT(after, IsOk());
  for (const auto& [name, item] : before->items) EXPECT_EQ(after->items.at(name).bytes, item.bytes) << name;
}

TEST(TorchSavedDtype, StoresTiedTensorsAsTheFirstOfThem) {
  const at::Tensor tied = torch::randn({3});
  for (const char* pattern : {"first", "second"}) {
    TorchState state;
    state.AddTensor("first", tied);
    state.AddTensor("second", tied);
    state.set_saved_dtype({pattern}, Dtype::kFloat16);
    const auto saved = SaveToMemory(state);
    ASSERT_THAT(saved, IsOk());
    EXPECT_EQ(saved->items.at("second").alias_of, "first");
    for (const char* name : {"first", "second"}) {
      EXPECT_EQ(saved->items.at(name).spec.dtype, pattern == std::string("first") ? Dtype::kFloat16 : Dtype::kFloat32);
    }
  }
}

TEST(TorchSavedDtype, RefusesOtherDtypes) {
  TorchState state;
  state.AddTensor("t", torch::ones({2}));
  state.set_saved_dtype({"t"}, Dtype::kInt8);
  EXPECT_THAT(Capture(state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("float64, found int8")));
}

TEST(TorchSavedDtype, NeedsARestoreThatConvertsInEveryStagingMode) {
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice}) {
    SCOPED_TRACE(static_cast<int>(staging));
    const storage::TestDirectory directory;
    auto opened = AsyncCheckpointer::Open({.directory = directory / "store", .staging = staging});
    ASSERT_THAT(opened, IsOk());
    const at::Tensor values = torch::randn({300, 40});
    const at::Tensor on_host = values.clone();
    const at::Tensor on_device = values.to(PretendAccelerator::Device());
    TorchState state;
    state.AddTensor("model.host", on_host);
    state.AddTensor("model.device", on_device);
    state.set_saved_dtype({"model.*"}, Dtype::kBfloat16);
    for (const int64_t step : {1, 2}) {
      auto save = (*opened)->Save(step, state);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT((*opened)->WaitUntilStaged(), IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
    }
    const auto reader = StoreReader::Open(directory / "store");
    ASSERT_THAT(reader, IsOk());
    const auto contents = (*reader)->Contents(2);
    ASSERT_THAT(contents, IsOk());
    for (const StoredEntry& entry : contents->entries) {
      EXPECT_EQ(entry.spec.dtype, Dtype::kBfloat16);
      EXPECT_EQ(entry.reused_bytes, entry.stored_bytes) << "nothing has changed";
    }

    on_host.zero_();
    EXPECT_THAT((*opened)->RestoreLatest(state),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("dtype: checkpoint has bfloat16, state has float32"),
                               HasSubstr("set_converts_dtypes(true)"))));
    EXPECT_EQ(on_host.abs().sum().item<double>(), 0);
    state.set_converts_dtypes(true);
    ASSERT_THAT((*opened)->RestoreLatest(state), IsOk());
    const at::Tensor expected = values.to(at::kBFloat16).to(at::kFloat);
    EXPECT_TRUE(at::equal(on_host, expected));
    EXPECT_TRUE(at::equal(on_device.to(at::kCPU), expected));
    // The next save converts again.
    auto save = (*opened)->Save(3, state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT((*opened)->RestoreLatest(state), IsOk());
    EXPECT_TRUE(at::equal(on_host, expected));
    ASSERT_THAT((*opened)->Close(), IsOk());
  }
}

TEST(TorchSavedDtype, IsSetOnceAnOverlappedSaveHasReadTheTensors) {
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  const storage::TestDirectory directory;
  auto opened = AsyncCheckpointer::Open({.directory = directory / "store", .staging = Staging::kOverlapped});
  ASSERT_THAT(opened, IsOk());
  const at::Tensor values = torch::randn({300, 40});
  TorchState state;
  state.AddTensor("t", values.to(PretendAccelerator::Device()));
  const PretendAccelerator::Gate gate = accelerator.NewGate();
  accelerator.EnqueueWait(PretendAccelerator::Device(), gate);
  const auto save = (*opened)->Save(1, state);
  ASSERT_THAT(save, IsOk());
  std::thread opener([&] { accelerator.Open(gate); });
  state.set_saved_dtype({"t"}, Dtype::kFloat16);
  EXPECT_TRUE(save->staged().ready());
  opener.join();
  ASSERT_THAT(save->committed().Wait(), IsOk());
  ASSERT_THAT((*opened)->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
