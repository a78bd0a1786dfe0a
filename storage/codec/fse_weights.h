// The weights of a Huffman tree, compressed by an FSE code (RFC 8878, 4.1 and 4.2.1.2).

#ifndef TIDEMARK_STORAGE_CODEC_FSE_WEIGHTS_H_
#define TIDEMARK_STORAGE_CODEC_FSE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark::storage {

// Returns the bytes that it took, or 0 where `out` has no room for them or all weights are the same, which FSE cannot
// describe. Preconditions: 2 to 255 weights, each at most 11.
inline constexpr size_t kFseWeightsBytesMax = 127;
size_t EncodeFseWeights(std::span<const uint8_t> weights, std::span<std::byte, kFseWeightsBytesMax> out);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_FSE_WEIGHTS_H_
