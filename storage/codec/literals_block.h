// The content of a block of a zstd frame that holds literals and nothing else (RFC 8878, 3.1.1.3).

#ifndef TIDEMARK_STORAGE_CODEC_LITERALS_BLOCK_H_
#define TIDEMARK_STORAGE_CODEC_LITERALS_BLOCK_H_

#include <cstddef>
#include <span>

#include "storage/codec/codec_backend.h"

namespace tidemark::storage {

// The most that a block of a zstd frame yields.
inline constexpr size_t kZstdBlockBytesMax = 128 << 10;

// Room that WriteLiteralsBlock asks for.
constexpr size_t LiteralsBlockBytesMax(size_t literals) {
  return literals < 4 ? literals : HuffmanStreamBytesMax(literals) + 64 + kHuffmanTreeBytesMax;
}

// Counts of a sample of `literals`, a sixteenth of them, scaled to all; every byte value that occurs counts at least
// one.
ByteCounts SampleCounts(std::span<const std::byte> literals, const CodecBackend& backend);

// Huffman-codes `literals`, at most kZstdBlockBytesMax, to the front of `out`, of at least LiteralsBlockBytesMax bytes.
// Returns the length; 0 if that would not be less than the literals are. Up to LiteralsBlockBytesMax bytes are written
// over. `counts` are those of SampleCounts, with at least two values.
size_t WriteLiteralsBlock(std::span<const std::byte> literals, const ByteCounts& counts, const CodecBackend& backend,
                          std::span<std::byte> out);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_LITERALS_BLOCK_H_
