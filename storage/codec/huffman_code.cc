#include "storage/codec/huffman_code.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "storage/codec/fse_weights.h"

namespace tidemark::storage {
namespace {

constexpr int kDirectWeightsMax = 128;  // RFC 8878, 4.2.1.1

struct Symbol {
  uint32_t count;
  uint8_t value;
};

// Lengths by package-merge. A level holds the symbols and, in pairs, the items of the level below, from light to heavy;
// a symbol's length is the number of levels on which it is among the lightest ones taken.
class CodeLengths {
 public:
  explicit CodeLengths(const ByteCounts& counts) {
    for (size_t value = 0; value < counts.size(); ++value) {
      if (counts[value] > 0) symbols_[size_++] = {counts[value], static_cast<uint8_t>(value)};
    }
    if (size_ < 2) std::abort();
    std::sort(symbols_.begin(), symbols_.begin() + size_,
              [](Symbol a, Symbol b) { return a.count != b.count ? a.count < b.count : a.value < b.value; });
  }

  void Assign(std::array<uint8_t, 256>* bits) {
    MergeLevels();
    size_t taken = 2 * size_ - 2;
    for (int level = kHuffmanBitsMax - 1; level >= 0 && taken > 0; --level) {
      const size_t leaves = std::count(is_symbol_[level].begin(), is_symbol_[level].begin() + taken, true);
      for (size_t i = 0; i < leaves; ++i) ++(*bits)[symbols_[i].value];
      taken = 2 * (taken - leaves);
    }
  }

 private:
  void MergeLevels() {
    std::array<uint64_t, 512> below;
    std::array<uint64_t, 512> items;
    size_t below_size = 0;
    for (auto& is_symbol : is_symbol_) {
      size_t symbol = 0;
      size_t pair = 0;
      size_t count = 0;
      while (symbol < size_ || pair + 1 < below_size) {
        const bool take_symbol =
            pair + 1 >= below_size || (symbol < size_ && symbols_[symbol].count <= below[pair] + below[pair + 1]);
        is_symbol[count] = take_symbol;
        items[count++] = take_symbol ? symbols_[symbol].count : below[pair] + below[pair + 1];
        (take_symbol ? symbol : pair) += take_symbol ? 1 : 2;
      }
      std::copy_n(items.begin(), count, below.begin());
      below_size = count;
    }
  }

  std::array<Symbol, 256> symbols_;
  size_t size_ = 0;
  std::array<std::array<bool, 512>, kHuffmanBitsMax> is_symbol_;
};

}  // namespace

HuffmanCode BuildHuffmanCode(const ByteCounts& counts) {
  HuffmanCode code;
  CodeLengths(counts).Assign(&code.bits);
  std::array<uint16_t, kHuffmanBitsMax + 1> symbols_of_length{};
  for (size_t value = 0; value < code.bits.size(); ++value) {
    if (code.bits[value] == 0) continue;
    ++symbols_of_length[code.bits[value]];
    code.bits_max = std::max<int>(code.bits_max, code.bits[value]);
    code.symbol_max = static_cast<uint8_t>(value);
  }
  // The longest codes come first, from 0; among equals the smaller symbol (RFC 8878, 4.2.1.3).
  std::array<uint16_t, kHuffmanBitsMax + 1> next{};
  for (int bits = code.bits_max; bits > 1; --bits) next[bits - 1] = (next[bits] + symbols_of_length[bits]) >> 1;
  for (size_t value = 0; value < code.bits.size(); ++value) {
    const uint8_t bits = code.bits[value];
    if (bits == 0) continue;
    const uint16_t word = next[bits]++;
    code.low[value] = static_cast<uint8_t>(word);
    code.high[value] = static_cast<uint8_t>(word >> 8);
    code.entries[value] = static_cast<uint16_t>(word << 4 | bits);
  }
  return code;
}

uint64_t HuffmanBits(const HuffmanCode& code, const ByteCounts& counts) {
  uint64_t bits = 0;
  for (size_t value = 0; value < counts.size(); ++value) bits += uint64_t{counts[value]} * code.bits[value];
  return bits;
}

size_t DescribeHuffmanTree(const HuffmanCode& code, std::span<std::byte, kHuffmanTreeBytesMax> out) {
  // The last symbol's weight follows from the others.
  std::array<uint8_t, 256> weights{};
  const size_t count = code.symbol_max;
  for (size_t value = 0; value < count; ++value) {
    if (code.bits[value] > 0) weights[value] = static_cast<uint8_t>(code.bits_max + 1 - code.bits[value]);
  }
  if (count > kDirectWeightsMax) {
    const size_t bytes = EncodeFseWeights(std::span(weights).first(count), out.subspan<1>());
    out[0] = static_cast<std::byte>(bytes);
    return bytes == 0 ? 0 : 1 + bytes;
  }
  out[0] = static_cast<std::byte>(127 + count);
  for (size_t i = 0; i < count; i += 2) {
    out[1 + i / 2] = static_cast<std::byte>(weights[i] << 4 | weights[i + 1]);
  }
  return 1 + (count + 1) / 2;
}

}  // namespace tidemark::storage
