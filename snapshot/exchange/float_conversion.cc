#include "snapshot/exchange/float_conversion.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "snapshot/numbers/float_arrays.h"
#include "snapshot/numbers/half_precision.h"

namespace tidemark {
namespace {

// Numbers that are converted as one; all that is between stays in the first cache.
constexpr size_t kTile = 1024;

template <typename T>
using Tile = std::array<T, kTile>;

// What the bytes of a tile are, aligned: doubles where they are that, else float32, which is exact.
struct Numbers {
  bool is_double = false;
  Tile<double> doubles;
  Tile<float> floats;
};

void Load(Dtype from, const std::byte* source, size_t count, Numbers* numbers) {
  numbers->is_double = from == Dtype::kFloat64;
  if (numbers->is_double) {
    std::memcpy(numbers->doubles.data(), source, count * sizeof(double));
  } else if (from == Dtype::kFloat32) {
    std::memcpy(numbers->floats.data(), source, count * sizeof(float));
  } else {
    DecodeFloats(from, source, count, numbers->floats.data());
  }
}

void StoreHalves(const Numbers& numbers, size_t count, Dtype to, std::byte* destination) {
  const HalfPrecision half = to == Dtype::kBfloat16 ? HalfPrecision::kBfloat16 : HalfPrecision::kFloat16;
  Tile<uint16_t> halves;
  const EntrySpec spec{.dtype = numbers.is_double ? Dtype::kFloat64 : Dtype::kFloat32};
  const std::span<const std::byte> source = numbers.is_double ? std::as_bytes(std::span(numbers.doubles.data(), count))
                                                              : std::as_bytes(std::span(numbers.floats.data(), count));
  ConvertToHalf(spec, half, source, std::as_writable_bytes(std::span(halves.data(), count)));
  std::memcpy(destination, halves.data(), count * sizeof(uint16_t));
}

template <typename T>
void StoreAs(const Numbers& numbers, size_t count, std::byte* destination) {
  Tile<T> stored;
  for (size_t i = 0; i < count; ++i) {
    stored[i] = numbers.is_double ? static_cast<T>(numbers.doubles[i]) : static_cast<T>(numbers.floats[i]);
  }
  std::memcpy(destination, stored.data(), count * sizeof(T));
}

}  // namespace

bool CanConvertFloats(Dtype from, Dtype to) {
  const FloatLayout layout = FloatLayoutOf(from);
  const bool is_real = layout.width != FloatLayout::Width::kNone && layout.numbers == 1;
  return is_real && (to == Dtype::kFloat16 || to == Dtype::kBfloat16 || to == Dtype::kFloat32 || to == Dtype::kFloat64);
}

void ConvertFloats(Dtype from, std::span<const std::byte> source, Dtype to, std::span<std::byte> destination) {
  if (from == to) {
    std::copy(source.begin(), source.end(), destination.begin());
    return;
  }
  const size_t from_bytes = GetDtypeInfo(from).element_bytes;
  const size_t to_bytes = GetDtypeInfo(to).element_bytes;
  const size_t count = source.size() / from_bytes;
  Numbers numbers;
  for (size_t begin = 0; begin < count; begin += kTile) {
    const size_t some = std::min(kTile, count - begin);
    Load(from, source.data() + begin * from_bytes, some, &numbers);
    std::byte* const out = destination.data() + begin * to_bytes;
    if (to == Dtype::kFloat64) {
      StoreAs<double>(numbers, some, out);
    } else if (to == Dtype::kFloat32) {
      StoreAs<float>(numbers, some, out);
    } else {
      StoreHalves(numbers, some, to, out);
    }
  }
}

}  // namespace tidemark
