#include <algorithm>
#include <bit>
#include <cstring>

#include "storage/codec/bit_writer.h"
#include "storage/codec/codec_backend.h"

namespace tidemark::storage {
namespace {

// Numbers that are taken together: they stay in the first-level cache while they are passed over once for each plane,
// and each pass is a loop that the compiler turns into vector instructions.
constexpr size_t kBlock = 1024;

template <typename T>
void Split(const std::byte* raw, size_t count, std::byte* const* planes) {
  T block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    std::memcpy(block, raw + start * sizeof(T), n * sizeof(T));
    for (size_t i = 0; i < n; ++i) block[i] = std::rotl(block[i], 1);
    for (size_t k = 0; k < sizeof(T); ++k) {
      auto* __restrict plane = reinterpret_cast<uint8_t*>(planes[k]) + start;
      for (size_t i = 0; i < n; ++i) plane[i] = static_cast<uint8_t>(block[i] >> (8 * k));
    }
  }
}

template <typename T>
void Join(const std::byte* const* planes, size_t count, std::byte* raw) {
  T block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    std::fill_n(block, n, T{0});
    for (size_t k = 0; k < sizeof(T); ++k) {
      const auto* __restrict plane = reinterpret_cast<const uint8_t*>(planes[k]) + start;
      for (size_t i = 0; i < n; ++i) block[i] = static_cast<T>(block[i] | static_cast<T>(T{plane[i]} << (8 * k)));
    }
    for (size_t i = 0; i < n; ++i) block[i] = std::rotr(block[i], 1);
    std::memcpy(raw + start * sizeof(T), block, n * sizeof(T));
  }
}

void MarkPresent(std::span<const std::byte> bytes, BytesPresent* present) {
  for (const std::byte byte : bytes) (*present)[static_cast<uint8_t>(byte)] = 1;
}

std::byte* EncodeStream(std::span<const std::byte> symbols, const HuffmanCode& code, std::byte* out) {
  return WriteSymbols(symbols, code, out);
}

constexpr CodecBackend kPortable = {"portable",
                                    {Split<uint16_t>, Split<uint32_t>, Split<uint64_t>},
                                    {Join<uint16_t>, Join<uint32_t>, Join<uint64_t>},
                                    MarkPresent,
                                    EncodeStream};

}  // namespace

const CodecBackend& PortableCodecBackend() { return kPortable; }

}  // namespace tidemark::storage
