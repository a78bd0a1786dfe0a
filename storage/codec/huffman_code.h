// A Huffman code for bytes, as the literals of a zstd block use it (RFC 8878, 4.2).

#ifndef TIDEMARK_STORAGE_CODEC_HUFFMAN_CODE_H_
#define TIDEMARK_STORAGE_CODEC_HUFFMAN_CODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark::storage {

inline constexpr int kHuffmanBitsMax = 11;  // the format's limit

// For each byte value, how often it occurs; 0: never, and it gets no code.
using ByteCounts = std::array<uint32_t, 256>;

// The three tables are for lookups of vectors of symbols. Immutable once built.
struct HuffmanCode {
  alignas(64) std::array<uint8_t, 256> bits{};  // length of the code, 0 for none
  alignas(64) std::array<uint8_t, 256> low{};   // the code's lower 8 bits
  alignas(64) std::array<uint8_t, 256> high{};  // and its upper 3
  std::array<uint16_t, 256> entries{};          // code << 4 | bits
  int bits_max = 0;
  uint8_t symbol_max = 0;  // the greatest that has a code
};

// The best code of at most kHuffmanBitsMax bits; complete, as the format asks for. The same counts give the same code.
// Precondition: at least two symbols occur.
HuffmanCode BuildHuffmanCode(const ByteCounts& counts);

// Bits that it takes for the counted symbols.
uint64_t HuffmanBits(const HuffmanCode& code, const ByteCounts& counts);

// The tree description (RFC 8878, 4.2.1) of at most kHuffmanTreeBytesMax bytes. Returns its length; 0 for the rare code
// that cannot be described, whose symbols are nearly alike in number and not worth it.
inline constexpr size_t kHuffmanTreeBytesMax = 128;
size_t DescribeHuffmanTree(const HuffmanCode& code, std::span<std::byte, kHuffmanTreeBytesMax> out);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_HUFFMAN_CODE_H_
