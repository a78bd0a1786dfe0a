#include "storage/codec/codec_backend.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "storage/codec/byte_planes.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

TEST(CodecBackend, PortableOneRunsEverywhereAndIsTheLastChoice) {
  const auto backends = RunnableCodecBackends();
  ASSERT_FALSE(backends.empty());
  EXPECT_EQ(backends.back(), &PortableCodecBackend());
  EXPECT_EQ(backends.back()->name, "portable");
  EXPECT_EQ(&BestCodecBackend(), backends.front());
  EXPECT_EQ(BytePlanesBackend(), backends.front()->name);
}

#if defined(__x86_64__)
TEST(CodecBackend, IsTheFastestThatTheCpuHas) {
  EXPECT_EQ(Avx2CodecBackend() != nullptr, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"));
  if (Avx512CodecBackend() != nullptr) {
    EXPECT_EQ(BytePlanesBackend(), "avx512");
  } else if (Avx2CodecBackend() != nullptr) {
    EXPECT_EQ(BytePlanesBackend(), "avx2");
  }
}
#endif

TEST(CodecBackend, AllMarkTheBytesThatArePresent) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    auto bytes = RandomBytes(random() % 700, random);
    const auto mask = static_cast<std::byte>(random());
    for (std::byte& byte : bytes) byte &= mask;
    BytesPresent expected{};
    expected[7] = 1;  // stays
    for (const std::byte byte : bytes) expected[static_cast<uint8_t>(byte)] = 1;
    for (const CodecBackend* backend : RunnableCodecBackends()) {
      BytesPresent present{};
      present[7] = 1;
      backend->mark_present(bytes, &present);
      EXPECT_EQ(present, expected) << backend->name;
    }
  }
}

// The stream as RFC 8878 reads it: from the mark in the last byte down, the bits of each code from its highest.
std::vector<std::byte> DecodeStream(std::span<const std::byte> stream, size_t symbols, const HuffmanCode& code) {
  size_t bit = 8 * stream.size();
  const auto next_bit = [&] {
    --bit;
    return (static_cast<int>(stream[bit / 8]) >> (bit % 8)) & 1;
  };
  while (bit > 0 && next_bit() == 0) {
  }
  std::vector<std::byte> decoded;
  while (decoded.size() < symbols) {
    int word = 0;
    int bits = 0;
    int found = -1;
    while (found < 0 && bits < kHuffmanBitsMax && bit > 0) {
      word = word << 1 | next_bit();
      ++bits;
      for (int value = 0; value < 256; ++value) {
        if (code.entries[value] == (word << 4 | bits)) found = value;
      }
    }
    if (found < 0) return {};
    decoded.push_back(static_cast<std::byte>(found));
  }
  EXPECT_EQ(bit, 0u) << "bits before the first symbol";
  return decoded;
}

TEST(CodecBackend, AllEncodeTheSameStreamAndItDecodes) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    // Codes of every depth, above and below 128, often of the longest ones in a row.
    const size_t values = 2 + random() % 255;
    const int steepness = static_cast<int>(random() % 20);
    ByteCounts counts{};
    std::vector<std::byte> alphabet;
    for (size_t i = 0; i < values; ++i) {
      const auto value = static_cast<uint8_t>(random());
      counts[value] = 1 + static_cast<uint32_t>(random() % (1ull << (random() % (1 + steepness))));
    }
    counts[3] += 1;
    counts[200] += 1;
    for (size_t value = 0; value < 256; ++value) {
      if (counts[value] > 0) alphabet.push_back(static_cast<std::byte>(value));
    }
    const HuffmanCode code = BuildHuffmanCode(counts);
    std::vector<std::byte> symbols(random() % 1000);
    for (std::byte& symbol : symbols) symbol = alphabet[random() % alphabet.size()];
    std::vector<std::byte> expected;
    for (const CodecBackend* backend : RunnableCodecBackends()) {
      SCOPED_TRACE(backend->name);
      const size_t room = HuffmanStreamBytesMax(symbols.size());
      std::vector<std::byte> out(room + 64, std::byte{0xcd});
      const std::byte* end = backend->encode_stream(symbols, code, out.data());
      EXPECT_EQ(std::count(out.end() - 64, out.end(), std::byte{0xcd}), 64) << "wrote past its room";
      const std::vector<std::byte> stream(out.data(), const_cast<std::byte*>(end));
      if (expected.empty()) expected = stream;
      EXPECT_EQ(stream, expected);
    }
    EXPECT_EQ(DecodeStream(expected, symbols.size(), code), symbols);
  }
}

}  // namespace
}  // namespace tidemark::storage
