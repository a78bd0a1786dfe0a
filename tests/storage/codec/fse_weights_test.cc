#include "storage/codec/fse_weights.h"

#include <array>
#include <vector>

#include "gtest/gtest.h"

// What is in the bytes, zstd says: see literals_block_test.cc.
namespace tidemark::storage {
namespace {

TEST(FseWeights, AreNoneWhereAllAreTheSame) {
  std::array<std::byte, kFseWeightsBytesMax> out;
  EXPECT_EQ(EncodeFseWeights(std::vector<uint8_t>(200, 1), out), 0u);
}

TEST(FseWeights, TakeFewBytesForFewSymbolsAmongMany) {
  std::array<std::byte, kFseWeightsBytesMax> out;
  std::vector<uint8_t> weights(255);
  for (int i = 0; i < 10; ++i) weights[100 + i] = static_cast<uint8_t>(i + 1);
  const size_t size = EncodeFseWeights(weights, out);
  EXPECT_GT(size, 0u);
  EXPECT_LT(size, 40u);
}

TEST(FseWeights, FitIntoTheirRoomEvenIfEachIsAsCommonAsTheOthers) {
  std::array<std::byte, kFseWeightsBytesMax> out;
  std::vector<uint8_t> weights(255);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<uint8_t>(i % 12);
  // 3.6 bits for each of 255, and the shares.
  EXPECT_GT(EncodeFseWeights(weights, out), 114u);
}

}  // namespace
}  // namespace tidemark::storage
