#include "storage/codec/literals_block.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"
#include "zstd.h"

namespace tidemark::storage {
namespace {

// Encodes with every back end, expects the same bytes, and returns them.
std::vector<std::byte> Encode(std::span<const std::byte> literals) {
  std::vector<std::byte> first;
  for (const CodecBackend* backend : RunnableCodecBackends()) {
    SCOPED_TRACE(backend->name);
    const size_t room = LiteralsBlockBytesMax(literals.size());
    std::vector<std::byte> out(room + 64, std::byte{0xcd});
    const size_t size = WriteLiteralsBlock(literals, SampleCounts(literals, *backend), *backend, out);
    EXPECT_EQ(std::count(out.end() - 64, out.end(), std::byte{0xcd}), 64) << "wrote past its room";
    EXPECT_LT(size, literals.size());
    out.resize(size);
    if (backend == RunnableCodecBackends().front()) first = out;
    EXPECT_EQ(out, first);
  }
  return first;
}

// What zstd makes of a frame of that one block.
std::vector<std::byte> DecodeWithZstd(std::span<const std::byte> block, size_t literals) {
  std::vector<std::byte> frame;
  const auto put = [&](uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) frame.push_back(static_cast<std::byte>(number >> (8 * i)));
  };
  put(0xfd2fb528, 4);
  put(0xa0, 1);
  put(literals, 4);
  put(1 | 2 << 1 | block.size() << 3, 3);
  frame.insert(frame.end(), block.begin(), block.end());
  std::vector<std::byte> decoded(literals);
  const size_t size = ZSTD_decompress(decoded.data(), decoded.size(), frame.data(), frame.size());
  EXPECT_FALSE(ZSTD_isError(size)) << ZSTD_getErrorName(size);
  EXPECT_EQ(size, literals);
  return decoded;
}

TEST(LiteralsBlock, IsReadByZstdForSymbolsOfEveryDistribution) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int coded = 0;
  int beyond_direct = 0;  // trees whose weights are compressed
  for (int round = 0; round < 1500; ++round) {
    // Some values of 256, from alike to one that outdoes the rest, in any order.
    const int values = 2 + static_cast<int>(random() % 255);
    const double steepness = std::pow(2.0, static_cast<double>(random() % 16) - 10.0);
    std::vector<double> shares(256);
    for (int i = 0; i < values; ++i) shares[random() % 256] = std::exp(-steepness * i);
    std::discrete_distribution<int> draw(shares.begin(), shares.end());
    std::vector<std::byte> literals(256 + random() % 8000);
    for (std::byte& literal : literals) literal = static_cast<std::byte>(draw(random));
    literals[random() % literals.size()] = std::byte{1};
    literals[random() % literals.size()] = std::byte{0};
    const auto block = Encode(literals);
    if (block.empty()) continue;
    ++coded;
    beyond_direct += static_cast<uint8_t>(block[5]) < 128;
    EXPECT_EQ(DecodeWithZstd(block, literals.size()), literals);
  }
  EXPECT_GT(coded, 700);
  EXPECT_GT(beyond_direct, 300);
}

TEST(LiteralsBlock, IsReadByZstdAtEveryLengthOfItsLastStream) {
  std::mt19937_64 random(3);
  for (const size_t start : {size_t{256}, size_t{1000}, size_t{16380}, kZstdBlockBytesMax - 65}) {
    for (size_t size = start; size <= start + 65; ++size) {
      auto literals = RandomBytes(size, random);
      for (std::byte& literal : literals) literal &= std::byte{0x8f};
      EXPECT_EQ(DecodeWithZstd(Encode(literals), size), literals) << size;
    }
  }
}

TEST(LiteralsBlock, IsNoneForFewLiterals) {
  const std::vector<std::byte> zeros_and_one = [] {
    std::vector<std::byte> bytes(255);
    bytes[7] = std::byte{1};
    return bytes;
  }();
  EXPECT_TRUE(Encode(zeros_and_one).empty());
}

TEST(LiteralsBlock, IsNoneForNoise) {
  std::mt19937_64 random(4);
  EXPECT_TRUE(Encode(RandomBytes(kZstdBlockBytesMax, random)).empty());
}

TEST(LiteralsBlock, IsNoneWhereTheSampleDeceives) {
  // Zeros and ones wherever the sample looks, and noise elsewhere: by its counts this would shrink, by its code it
  // grows.
  std::mt19937_64 random(5);
  auto literals = RandomBytes(kZstdBlockBytesMax, random);
  for (size_t run = 0; run < literals.size(); run += 1024) {
    std::fill_n(literals.begin() + run, 40, std::byte{0});
    std::fill_n(literals.begin() + run + 40, 24, std::byte{1});
  }
  const ByteCounts counts = SampleCounts(literals, BestCodecBackend());
  EXPECT_EQ(counts[0] + counts[1], literals.size());
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 1u), 254);
  EXPECT_TRUE(Encode(literals).empty());
}

TEST(LiteralsBlock, CodesWhatTheSampleDidNotSee) {
  std::vector<std::byte> literals(kZstdBlockBytesMax);
  for (size_t i = 0; i < literals.size(); ++i) literals[i] = static_cast<std::byte>(i % 3);
  literals[300] = std::byte{0xee};  // between two runs of the sample
  EXPECT_EQ(DecodeWithZstd(Encode(literals), literals.size()), literals);
}

}  // namespace
}  // namespace tidemark::storage
