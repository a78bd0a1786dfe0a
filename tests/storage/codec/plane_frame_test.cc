#include "storage/codec/plane_frame.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "storage/codec/byte_planes.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"
#include "zstd.h"

namespace tidemark::storage {
namespace {

constexpr size_t kBlockBytes = 128 << 10;

// Writes with every back end, expects the same frame, expects zstd to read the planes from it, and returns it.
std::vector<std::byte> Write(std::span<const std::byte> raw, uint8_t float_bytes, uint8_t coded) {
  std::vector<std::byte> planes(raw.size());
  SplitPlanes(raw, float_bytes, planes, PortableCodecBackend());
  std::vector<std::byte> first;
  for (const CodecBackend* backend : RunnableCodecBackends()) {
    SCOPED_TRACE(backend->name);
    std::vector<std::byte> scratch;
    std::vector<std::byte> frame(PlaneFrameBytesMax(raw.size(), float_bytes) + 64, std::byte{0xcd});
    const size_t size = WritePlaneFrame(raw, float_bytes, coded, *backend, &scratch, std::span(frame));
    EXPECT_EQ(std::count(frame.end() - 64, frame.end(), std::byte{0xcd}), 64) << "wrote past its room";
    frame.resize(size);
    if (first.empty()) first = frame;
    EXPECT_EQ(frame, first);
  }
  EXPECT_EQ(ZSTD_getFrameContentSize(first.data(), first.size()), raw.size());
  EXPECT_EQ(ZSTD_findFrameCompressedSize(first.data(), first.size()), first.size());
  std::vector<std::byte> decoded(raw.size());
  const size_t size = ZSTD_decompress(decoded.data(), decoded.size(), first.data(), first.size());
  EXPECT_FALSE(ZSTD_isError(size)) << ZSTD_getErrorName(size);
  EXPECT_EQ(size, raw.size());
  EXPECT_EQ(decoded, planes);
  return first;
}

// What a frame may grow by: its header, and one for each block.
size_t OverheadOf(size_t raw_bytes, size_t float_bytes) {
  return 9 + float_bytes * 3 * ((raw_bytes / float_bytes + kBlockBytes - 1) / kBlockBytes);
}

TEST(PlaneFrame, IsReadByZstdForEveryWidthSizeAndChoiceOfPlanes) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const uint8_t width : {2, 4, 8}) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{255}, size_t{1024}, kBlockBytes - 1, kBlockBytes,
                               kBlockBytes + 1, 2 * kBlockBytes + 300}) {
      const auto weights = Weights(width == 2   ? Dtype::kBfloat16
                                   : width == 4 ? Dtype::kFloat32
                                                : Dtype::kFloat64,
                                   count, random);
      for (const int coded : {0, 1, 1 << (width - 1), (1 << width) - 1, static_cast<int>(random() % (1 << width))}) {
        SCOPED_TRACE(testing::Message() << int{width} << " bytes, " << count << " numbers, planes " << coded);
        const auto frame = Write(weights, width, static_cast<uint8_t>(coded));
        EXPECT_LE(frame.size(), weights.size() + OverheadOf(weights.size(), width));
      }
    }
  }
}

TEST(PlaneFrame, TakesAByteForEachBlockOfEqualBytes) {
  const std::vector<std::byte> zeros(4 * 3 * kBlockBytes);
  EXPECT_EQ(Write(zeros, 4, 0xf).size(), 9 + 12 * 4);
}

TEST(PlaneFrame, StoresNoiseAsItIsEvenIfItWasToBeCoded) {
  std::mt19937_64 random(6);
  const auto noise = RandomBytes(1 << 20, random);
  EXPECT_EQ(Write(noise, 4, 0xf).size(), noise.size() + OverheadOf(noise.size(), 4));
}

TEST(PlaneFrame, SamplesTheExponentsOfWeightsAsWorthCoding) {
  std::mt19937_64 random(7);
  const auto outlook = [&](Dtype dtype, uint8_t width) {
    return SamplePlanes(Weights(dtype, 1 << 17, random), width, BestCodecBackend());
  };
  EXPECT_EQ(outlook(Dtype::kBfloat16, 2).coded, 0b10);
  EXPECT_EQ(outlook(Dtype::kFloat32, 4).coded, 0b1000);
  // Three bits of the exponent are in the seventh. These weights have no more bits than a float, so the lower half says
  // nothing of others.
  EXPECT_EQ(outlook(Dtype::kFloat64, 8).coded & 0xf0, 0b11000000);
  EXPECT_FALSE(outlook(Dtype::kFloat32, 4).mostly_repeats);
}

TEST(PlaneFrame, SamplesNoiseAsNotWorthCoding) {
  std::mt19937_64 random(8);
  for (const uint8_t width : {2, 4, 8}) {
    const PlaneOutlook outlook = SamplePlanes(RandomBytes(1 << 20, random), width, BestCodecBackend());
    EXPECT_EQ(outlook.coded, 0) << int{width};
    EXPECT_FALSE(outlook.mostly_repeats);
  }
}

TEST(PlaneFrame, SamplesEqualNumbersAsCodedAndSparseOnesAsRepeats) {
  std::vector<std::byte> numbers(1 << 18);
  const PlaneOutlook equal = SamplePlanes(numbers, 4, BestCodecBackend());
  EXPECT_EQ(equal.coded, 0xf);
  EXPECT_FALSE(equal.mostly_repeats);
  std::mt19937_64 random(9);
  for (size_t i = 0; i < numbers.size(); i += 4 * 50) {
    for (size_t k = 0; k < 4; ++k) numbers[i + k] = static_cast<std::byte>(random());
  }
  EXPECT_TRUE(SamplePlanes(numbers, 4, BestCodecBackend()).mostly_repeats);
}

TEST(PlaneFrame, SamplesTheSameWithEveryBackEnd) {
  std::mt19937_64 random(10);
  for (const size_t count : {1, 5, 100, 4096, 99999}) {
    const auto weights = Weights(Dtype::kFloat32, count, random);
    const PlaneOutlook expected = SamplePlanes(weights, 4, PortableCodecBackend());
    for (const CodecBackend* backend : RunnableCodecBackends()) {
      const PlaneOutlook outlook = SamplePlanes(weights, 4, *backend);
      EXPECT_EQ(outlook.coded, expected.coded);
      EXPECT_EQ(outlook.mostly_repeats, expected.mostly_repeats);
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
