#include "storage/codec/byte_planes.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// With each back end that this CPU can run.
class BytePlanes : public ::testing::TestWithParam<const CodecBackend*> {
 protected:
  const CodecBackend& backend_ = *GetParam();
};

TEST_P(BytePlanes, PutsTheSignIntoBitZeroAndTheExponentIntoTheLastPlane) {
  // -1.0f is 0xbf800000: rotated 0x7f000001. 2.0f is 0x40000000: rotated 0x80000000.
  const auto raw = Bytes({0x00, 0x00, 0x80, 0xbf, 0x00, 0x00, 0x00, 0x40});
  std::vector<std::byte> planes(8);
  SplitPlanes(raw, 4, planes, backend_);
  EXPECT_EQ(planes, Bytes({0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7f, 0x80}));
}

TEST_P(BytePlanes, SplitsNumbersOfTwoBytes) {
  // 0x8001 rotated is 0x0003, 0x7fff rotated is 0xfffe.
  std::vector<std::byte> planes(4);
  SplitPlanes(Bytes({0x01, 0x80, 0xff, 0x7f}), 2, planes, backend_);
  EXPECT_EQ(planes, Bytes({0x03, 0xfe, 0x00, 0xff}));
}

TEST_P(BytePlanes, SplitsByDefinitionAndJoinsBackForEveryWidthLengthAndAlignment) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<size_t> counts = {1000, 1023, 1024, 1025, 2048, 5000};
  for (size_t count = 0; count <= 200; ++count) counts.push_back(count);
  for (uint8_t width : {2, 4, 8}) {
    for (const size_t count : counts) {
      SCOPED_TRACE(testing::Message() << int{width} << " bytes, " << count << " numbers");
      // Both begin anywhere, and the byte behind them belongs to somebody else.
      const size_t size = count * width;
      const size_t raw_start = random() % 64;
      const size_t planes_start = random() % 64;
      const auto source = RandomBytes(raw_start + size, random);
      std::vector<std::byte> planes_memory(planes_start + size + 64, std::byte{0xcd});
      std::vector<std::byte> back_memory(raw_start + size + 64, std::byte{0xcd});
      const auto raw = std::span(source).subspan(raw_start);
      const auto planes = std::span(planes_memory).subspan(planes_start, size);
      const auto back = std::span(back_memory).subspan(raw_start, size);
      SplitPlanes(raw, width, planes, backend_);
      JoinPlanes(planes, width, back, backend_);
      EXPECT_TRUE(std::equal(raw.begin(), raw.end(), back.begin()));
      for (size_t i = 0; i < count; ++i) {
        // The definition, one number at a time.
        uint64_t number = 0;
        for (size_t k = 0; k < width; ++k) number |= static_cast<uint64_t>(raw[i * width + k]) << (8 * k);
        const uint64_t sign = number >> (8 * width - 1);
        for (size_t k = 0; k < width; ++k) {
          ASSERT_EQ(planes[k * count + i], static_cast<std::byte>(((number << 1) | sign) >> (8 * k)));
        }
      }
      for (const auto& memory : {planes_memory, back_memory}) {
        EXPECT_EQ(std::count(memory.end() - 64, memory.end(), std::byte{0xcd}), 64) << "wrote past the end";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, BytePlanes, ::testing::ValuesIn(RunnableCodecBackends()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(BytePlanesWidths, SplitsOnlyWholeNumbersOfTheThreeWidths) {
  EXPECT_TRUE(CanSplitPlanes(16, 2));
  EXPECT_TRUE(CanSplitPlanes(16, 4));
  EXPECT_TRUE(CanSplitPlanes(16, 8));
  EXPECT_FALSE(CanSplitPlanes(12, 8));
  EXPECT_FALSE(CanSplitPlanes(16, 0));
  EXPECT_FALSE(CanSplitPlanes(16, 1));
  EXPECT_FALSE(CanSplitPlanes(15, 3));
}

}  // namespace
}  // namespace tidemark::storage
