#include "storage/shard/byte_planes.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BytePlanes, PutsTheSignIntoBitZeroAndTheExponentIntoTheLastPlane) {
  // -1.0f is 0xbf800000: rotated 0x7f000001. 2.0f is 0x40000000: rotated 0x80000000.
  const auto raw = Bytes({0x00, 0x00, 0x80, 0xbf, 0x00, 0x00, 0x00, 0x40});
  std::vector<std::byte> planes(8);
  SplitPlanes(raw, 4, planes);
  EXPECT_EQ(planes, Bytes({0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7f, 0x80}));
}

TEST(BytePlanes, SplitsNumbersOfTwoBytes) {
  // 0x8001 rotated is 0x0003, 0x7fff rotated is 0xfffe.
  std::vector<std::byte> planes(4);
  SplitPlanes(Bytes({0x01, 0x80, 0xff, 0x7f}), 2, planes);
  EXPECT_EQ(planes, Bytes({0x03, 0xfe, 0x00, 0xff}));
}

TEST(BytePlanes, JoinIsTheInverseOfSplitForEveryWidthAndLength) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (uint8_t width : {2, 4, 8}) {
    for (size_t count : {0, 1, 2, 3, 7, 15, 16, 31, 33, 255, 1023, 1024, 1025, 2048, 5000}) {
      const auto raw = RandomBytes(count * width, random);
      std::vector<std::byte> planes(raw.size());
      std::vector<std::byte> back(raw.size());
      SplitPlanes(raw, width, planes);
      JoinPlanes(planes, width, back);
      EXPECT_EQ(back, raw) << int{width} << " bytes, " << count << " numbers";
      for (size_t i = 0; i < count; ++i) {
        // The definition, one number at a time.
        uint64_t number = 0;
        for (size_t k = 0; k < width; ++k) number |= static_cast<uint64_t>(raw[i * width + k]) << (8 * k);
        const uint64_t sign = number >> (8 * width - 1);
        for (size_t k = 0; k < width; ++k) {
          ASSERT_EQ(planes[k * count + i], static_cast<std::byte>(((number << 1) | sign) >> (8 * k)));
        }
      }
    }
  }
}

TEST(BytePlanes, SplitsOnlyWholeNumbersOfTheThreeWidths) {
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
