#include "storage/shard/byte_planes.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace tidemark::storage {
namespace {

// Numbers that are taken together: they stay in the first-level cache while they are passed over once for each plane,
// and each pass is a loop that the compiler turns into vector instructions.
constexpr size_t kBlock = 1024;

template <typename T>
void Split(const std::byte* raw, size_t count, uint8_t* planes) {
  T block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    std::memcpy(block, raw + start * sizeof(T), n * sizeof(T));
    for (size_t i = 0; i < n; ++i) block[i] = std::rotl(block[i], 1);
    for (size_t k = 0; k < sizeof(T); ++k) {
      uint8_t* __restrict plane = planes + k * count + start;
      for (size_t i = 0; i < n; ++i) plane[i] = static_cast<uint8_t>(block[i] >> (8 * k));
    }
  }
}

template <typename T>
void Join(const uint8_t* planes, size_t count, std::byte* raw) {
  T block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    const uint8_t* __restrict low = planes + start;
    for (size_t i = 0; i < n; ++i) block[i] = low[i];
    for (size_t k = 1; k < sizeof(T); ++k) {
      const uint8_t* __restrict plane = planes + k * count + start;
      for (size_t i = 0; i < n; ++i) block[i] = static_cast<T>(block[i] | static_cast<T>(T{plane[i]} << (8 * k)));
    }
    for (size_t i = 0; i < n; ++i) block[i] = std::rotr(block[i], 1);
    std::memcpy(raw + start * sizeof(T), block, n * sizeof(T));
  }
}

}  // namespace

void SplitPlanes(std::span<const std::byte> raw, uint8_t float_bytes, std::span<std::byte> planes) {
  if (!CanSplitPlanes(raw.size(), float_bytes) || planes.size() != raw.size()) std::abort();
  auto* out = reinterpret_cast<uint8_t*>(planes.data());
  const size_t count = raw.size() / float_bytes;
  if (float_bytes == 2) return Split<uint16_t>(raw.data(), count, out);
  if (float_bytes == 4) return Split<uint32_t>(raw.data(), count, out);
  return Split<uint64_t>(raw.data(), count, out);
}

void JoinPlanes(std::span<const std::byte> planes, uint8_t float_bytes, std::span<std::byte> raw) {
  if (!CanSplitPlanes(planes.size(), float_bytes) || raw.size() != planes.size()) std::abort();
  const auto* in = reinterpret_cast<const uint8_t*>(planes.data());
  const size_t count = raw.size() / float_bytes;
  if (float_bytes == 2) return Join<uint16_t>(in, count, raw.data());
  if (float_bytes == 4) return Join<uint32_t>(in, count, raw.data());
  return Join<uint64_t>(in, count, raw.data());
}

}  // namespace tidemark::storage
