#include "storage/codec/literals_block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tidemark::storage {
namespace {

constexpr size_t kSampleRun = 64;
constexpr size_t kSampleStride = 16;  // in runs

// Fewer are not worth a tree. Four streams want more than this anyhow.
constexpr size_t kLiteralsMin = 256;

constexpr size_t kStreams = 4;
constexpr size_t kHeaderBytes = 5;
constexpr size_t kJumpTableBytes = 2 * (kStreams - 1);

void PutLittleEndian(uint64_t number, size_t bytes, std::byte* out) {
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(number >> (8 * i));
}

}  // namespace

ByteCounts SampleCounts(std::span<const std::byte> literals, const CodecBackend& backend) {
  // Four tables, so that equal bytes in a row do not wait for each other's count.
  std::array<ByteCounts, 4> tables{};
  for (size_t start = 0; start < literals.size(); start += kSampleRun * kSampleStride) {
    const auto run = literals.subspan(start, std::min(kSampleRun, literals.size() - start));
    size_t i = 0;
    for (; i + 4 <= run.size(); i += 4) {
      for (size_t k = 0; k < 4; ++k) ++tables[k][static_cast<uint8_t>(run[i + k])];
    }
    for (; i < run.size(); ++i) ++tables[0][static_cast<uint8_t>(run[i])];
  }
  ByteCounts counts;
  BytesPresent present;
  for (size_t value = 0; value < counts.size(); ++value) {
    counts[value] = tables[0][value] + tables[1][value] + tables[2][value] + tables[3][value];
    present[value] = counts[value] > 0;
  }
  backend.mark_present(literals, &present);
  for (size_t value = 0; value < counts.size(); ++value) {
    counts[value] = std::max<uint32_t>(counts[value] * kSampleStride, present[value]);
  }
  return counts;
}

size_t WriteLiteralsBlock(std::span<const std::byte> literals, const ByteCounts& counts, const CodecBackend& backend,
                          std::span<std::byte> out) {
  if (literals.size() > kZstdBlockBytesMax || out.size() < LiteralsBlockBytesMax(literals.size())) std::abort();
  if (literals.size() < kLiteralsMin) return 0;
  const HuffmanCode code = BuildHuffmanCode(counts);
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  if (HuffmanBits(code, counts) >= 8 * total) return 0;

  std::byte* const tree = out.data() + kHeaderBytes;
  const size_t tree_bytes =
      DescribeHuffmanTree(code, std::span<std::byte, kHuffmanTreeBytesMax>(tree, kHuffmanTreeBytesMax));
  if (tree_bytes == 0) return 0;
  std::byte* const jump_table = tree + tree_bytes;
  std::byte* end = jump_table + kJumpTableBytes;
  const size_t stream_symbols = (literals.size() + kStreams - 1) / kStreams;
  for (size_t stream = 0; stream < kStreams; ++stream) {
    const size_t first = stream * stream_symbols;
    const auto symbols = literals.subspan(first, std::min(stream_symbols, literals.size() - first));
    std::byte* const begin = end;
    end = backend.encode_stream(symbols, code, begin);
    if (stream + 1 < kStreams) PutLittleEndian(end - begin, 2, jump_table + 2 * stream);
  }
  const size_t coded_bytes = end - tree;
  *end++ = std::byte{0};  // no sequences
  const size_t size = end - out.data();
  if (size >= literals.size()) return 0;
  // Literals section header: compressed, four streams, both sizes with 18 bits.
  PutLittleEndian(2 | 3 << 2 | uint64_t{literals.size()} << 4 | uint64_t{coded_bytes} << 22, kHeaderBytes, out.data());
  return size;
}

}  // namespace tidemark::storage
