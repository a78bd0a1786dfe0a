// The inner loops of the chunk codec, once for each kind of CPU. All back ends give the same bytes.

#ifndef TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_H_
#define TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "storage/codec/huffman_code.h"

namespace tidemark::storage {

// For each byte value: 1 if it occurs, else 0.
using BytesPresent = std::array<uint8_t, 256>;

// Immutable; there is one of each for the life of the process. None of the functions asks for any alignment.
struct CodecBackend {
  // Numbers of 2, 4 or 8 bytes to as many planes, and back; see byte_planes.h. Byte k of number i is planes[k][i].
  using SplitFunction = void (*)(const std::byte* raw, size_t count, std::byte* const* planes);
  using JoinFunction = void (*)(const std::byte* const* planes, size_t count, std::byte* raw);

  std::string_view name;
  std::array<SplitFunction, 3> split;  // 2, 4 and 8 bytes
  std::array<JoinFunction, 3> join;

  // Sets those that occur in `bytes`, and leaves the others as they are.
  void (*mark_present)(std::span<const std::byte> bytes, BytesPresent* present);

  // Writes one Huffman-coded stream as RFC 8878 has it (4.2.2), the end of `symbols` first, and returns its end. Each
  // symbol has a code. Up to HuffmanStreamBytesMax(symbols.size()) bytes from `out` on are written over.
  std::byte* (*encode_stream)(std::span<const std::byte> symbols, const HuffmanCode& code, std::byte* out);
};

// The place of 2, 4 and 8 in the arrays above.
constexpr size_t WidthIndex(uint8_t float_bytes) { return float_bytes == 2 ? 0 : float_bytes == 4 ? 1 : 2; }

// With room for a last store of eight bytes.
constexpr size_t HuffmanStreamBytesMax(size_t symbols) { return symbols * kHuffmanBitsMax / 8 + 16; }

// Those that this CPU can run, the fastest first; the portable one is always there and last.
std::span<const CodecBackend* const> RunnableCodecBackends();

// The first of them.
const CodecBackend& BestCodecBackend();

// Null where this CPU cannot run it.
const CodecBackend* Avx512CodecBackend();
const CodecBackend* Avx2CodecBackend();
const CodecBackend& PortableCodecBackend();

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_H_
