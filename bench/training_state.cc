#include "bench/training_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "fmt/format.h"
#include "snapshot/staging/copy_pool.h"

namespace tidemark::bench {
namespace {

constexpr std::array<const char*, 3> kNames = {"model.layers.{}.weight", "optimizer.layers.{}.weight.exp_avg",
                                               "optimizer.layers.{}.weight.exp_avg_sq"};

// xorshift64*: 64 bits in three shifts and a product, which is all that making gigabytes leaves time for.
class Random {
 public:
  // Seeds that lie side by side give unrelated numbers (the finaliser of splitmix64).
  explicit Random(uint64_t seed) {
    uint64_t z = seed + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    state_ = (z ^ (z >> 31)) | 1;
  }
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }

 private:
  uint64_t state_;
};

uint16_t Bfloat16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}

// [0.75, 1.25), in steps of 2^-25.
float Factor(uint32_t random) { return 0.75f + static_cast<float>(random >> 8) * 0x1p-25f; }

void Fill(const at::Tensor& source, uint64_t seed, const at::Tensor& target) {
  Random random(seed);
  const float* from = source.data_ptr<float>();
  const auto from_count = static_cast<uint64_t>(source.numel());
  uint64_t place = random.Next() % from_count;
  const auto next = [&](uint32_t bits) {
    if (place == from_count) place = 0;
    return from[place++] * Factor(bits);
  };
  const auto count = static_cast<size_t>(target.numel());
  auto* fp32 = static_cast<float*>(target.data_ptr());
  auto* bf16 = static_cast<uint16_t*>(target.data_ptr());
  const bool narrow = target.scalar_type() == at::kBFloat16;
  for (size_t i = 0; i < count; i += 2) {
    const uint64_t bits = random.Next();
    for (size_t j = i; j < std::min(i + 2, count); ++j) {
      const float value = next(static_cast<uint32_t>(j == i ? bits : bits >> 32));
      if (narrow) {
        bf16[j] = Bfloat16Bits(value);
      } else {
        fp32[j] = value;
      }
    }
  }
}

// Calls work(i) for each i < count, on all cores.
void InParallel(size_t count, const std::function<void(size_t)>& work) {
  CopyPool(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))).Run(count, work);
}

double ExponentBits(const std::array<uint64_t, 256>& histogram, double count) {
  double bits = 0;
  for (const uint64_t frequency : histogram) {
    if (frequency > 0) bits -= static_cast<double>(frequency) * std::log2(static_cast<double>(frequency) / count);
  }
  return bits;
}

}  // namespace

TrainingState::TrainingState(const TrainedValues& values, at::ScalarType dtype, uint64_t bytes, size_t tensor_count,
                             uint64_t seed)
    : dtype_(dtype), tensors_(tensor_count) {
  const auto elements = static_cast<int64_t>(bytes / tensor_count / at::elementSize(dtype));
  const auto kinds = values.kinds();
  InParallel(tensor_count, [&](size_t i) {
    const std::vector<at::Tensor>& sources = *kinds[i % kinds.size()];
    tensors_[i] = at::empty({elements}, dtype);
    Fill(sources[i / kinds.size() % sources.size()], seed + i, tensors_[i]);
  });
  for (const at::Tensor& tensor : tensors_) bytes_ += tensor.nbytes();
}

std::span<const std::byte> TrainingState::bytes_of(size_t tensor) const {
  return {static_cast<const std::byte*>(tensors_[tensor].data_ptr()), tensors_[tensor].nbytes()};
}

void TrainingState::AddTo(TorchState& state) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    state.AddTensor(fmt::format(fmt::runtime(kNames[i % kNames.size()]), i / kNames.size()), tensors_[i]);
  }
}

void TrainingState::Change(size_t stride) {
  // The lowest bit of every number: other bytes everywhere, and the same statistics.
  InParallel((tensors_.size() + stride - 1) / stride, [&](size_t i) {
    const at::Tensor& tensor = tensors_[i * stride];
    const auto count = static_cast<size_t>(tensor.numel());
    if (dtype_ == at::kBFloat16) {
      auto* numbers = static_cast<uint16_t*>(tensor.data_ptr());
      for (size_t j = 0; j < count; ++j) numbers[j] ^= 1;
    } else {
      auto* numbers = static_cast<uint32_t*>(tensor.data_ptr());
      for (size_t j = 0; j < count; ++j) numbers[j] ^= 1;
    }
  });
}

double TrainingState::OrderZeroBoundBytes() const {
  const double raw_bits = dtype_ == at::kBFloat16 ? 1 + 7 : 1 + 23;  // sign and mantissa
  std::vector<double> bits(tensors_.size());
  InParallel(tensors_.size(), [&](size_t i) {
    std::array<uint64_t, 256> histogram{};
    const auto count = static_cast<size_t>(tensors_[i].numel());
    for (size_t j = 0; j < count; ++j) {
      const uint32_t high = dtype_ == at::kBFloat16 ? static_cast<const uint16_t*>(tensors_[i].data_ptr())[j]
                                                    : static_cast<const uint32_t*>(tensors_[i].data_ptr())[j] >> 16;
      ++histogram[high >> 7 & 0xff];
    }
    bits[i] = static_cast<double>(count) * raw_bits + ExponentBits(histogram, static_cast<double>(count));
  });
  double sum = 0;
  for (const double tensor_bits : bits) sum += tensor_bits;
  return sum / 8;
}

void AddRandomTensors(TorchState& state, uint64_t bytes, size_t count) {
  const auto elements = static_cast<int64_t>(bytes / count / sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    at::Tensor tensor = at::empty({elements}, at::kFloat);
    tensor.uniform_(-1, 1);
    state.AddTensor(fmt::format("layers.{}.weight", i), std::move(tensor));
  }
}

}  // namespace tidemark::bench
