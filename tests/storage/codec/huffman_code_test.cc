#include "storage/codec/huffman_code.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::storage {
namespace {

// Share of the code space that is taken, in 2^-11ths.
int SpaceTaken(const HuffmanCode& code) {
  int space = 0;
  for (const int bits : code.bits) space += bits == 0 ? 0 : 1 << (kHuffmanBitsMax - bits);
  return space;
}

TEST(HuffmanCode, GivesOneBitToEachOfTwoSymbols) {
  ByteCounts counts{};
  counts[5] = 1;
  counts[250] = 1000000;
  const HuffmanCode code = BuildHuffmanCode(counts);
  EXPECT_EQ(code.bits[5], 1);
  EXPECT_EQ(code.bits[250], 1);
  EXPECT_EQ(code.symbol_max, 250);
  EXPECT_EQ(code.bits_max, 1);
  EXPECT_EQ(HuffmanBits(code, counts), 1000001u);
}

TEST(HuffmanCode, HasTheLengthsOfAnOptimalCodeWhereTheLimitDoesNotBite) {
  ByteCounts counts{};
  for (int i = 0; i < 8; ++i) counts[10 + i] = 1u << (7 - std::min(i, 6));  // 128, 64, ... 2, 2
  const HuffmanCode code = BuildHuffmanCode(counts);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(code.bits[10 + i], std::min(i + 1, 7)) << i;
}

TEST(HuffmanCode, IsCompleteAndWithinItsLimitForAnyCounts) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1000; ++round) {
    ByteCounts counts{};
    const int shift = static_cast<int>(random() % 32);
    for (size_t i = 2 + random() % 255; i > 0; --i) {
      counts[random() % 256] = 1 + static_cast<uint32_t>(random() >> (32 + shift)) / 256;
    }
    counts[0] += 1;
    counts[255] += 1;
    const HuffmanCode code = BuildHuffmanCode(counts);
    EXPECT_EQ(SpaceTaken(code), 1 << kHuffmanBitsMax);
    uint64_t total = 0;
    for (size_t value = 0; value < 256; ++value) {
      EXPECT_EQ(code.bits[value] > 0, counts[value] > 0);
      EXPECT_LE(code.bits[value], code.bits_max);
      total += counts[value];
    }
    EXPECT_LE(code.bits_max, kHuffmanBitsMax);
    double entropy = 0;
    for (const uint32_t count : counts) {
      if (count > 0) entropy += count * std::log2(static_cast<double>(total) / count);
    }
    EXPECT_GE(HuffmanBits(code, counts) + 1e-6 * entropy, entropy);
  }
}

TEST(HuffmanCode, LosesLittleToItsLimit) {
  // A Fibonacci sequence makes an unlimited code as deep as it has symbols.
  ByteCounts counts{};
  counts[0] = counts[1] = 1;
  for (int i = 2; i < 30; ++i) counts[i] = counts[i - 1] + counts[i - 2];
  const HuffmanCode code = BuildHuffmanCode(counts);
  EXPECT_EQ(code.bits_max, kHuffmanBitsMax);
  uint64_t total = 0;
  double entropy = 0;
  for (const uint32_t count : counts) total += count;
  for (int i = 0; i < 30; ++i) entropy += counts[i] * std::log2(static_cast<double>(total) / counts[i]);
  EXPECT_LT(HuffmanBits(code, counts), 1.05 * entropy);
}

}  // namespace
}  // namespace tidemark::storage
