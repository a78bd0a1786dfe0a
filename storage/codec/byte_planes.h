// Regroups floating-point numbers so that bytes that resemble each other lie together.
//
// Each little-endian number is rotated left by one bit, which moves the sign out of the exponent's byte to bit 0 of
// the number. Plane k then holds byte k of every number; planes are in the order k = 0 .. float_bytes - 1.

#ifndef TIDEMARK_STORAGE_CODEC_BYTE_PLANES_H_
#define TIDEMARK_STORAGE_CODEC_BYTE_PLANES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "storage/codec/codec_backend.h"

namespace tidemark::storage {

constexpr bool CanSplitPlanes(size_t bytes, uint8_t float_bytes) {
  return (float_bytes == 2 || float_bytes == 4 || float_bytes == 8) && bytes % float_bytes == 0;
}

// Preconditions: CanSplitPlanes(raw.size(), float_bytes), planes.size() == raw.size(), and they do not overlap.
void SplitPlanes(std::span<const std::byte> raw, uint8_t float_bytes, std::span<std::byte> planes,
                 const CodecBackend& backend = BestCodecBackend());

// The exact inverse, for every bit pattern, NaNs included.
void JoinPlanes(std::span<const std::byte> planes, uint8_t float_bytes, std::span<std::byte> raw,
                const CodecBackend& backend = BestCodecBackend());

// The name of the back end that this process uses: "avx512", "avx2" or "portable".
std::string_view BytePlanesBackend();

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_BYTE_PLANES_H_
