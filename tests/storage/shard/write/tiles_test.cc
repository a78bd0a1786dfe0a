#include "storage/shard/write/tiles.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/entry_names.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

EntrySpec Box(Dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> offset, std::vector<int64_t> extent) {
  EntrySpec spec = Tensor("box", dtype, std::move(shape));
  spec.box_offset = std::move(offset);
  spec.box_extent = std::move(extent);
  return spec;
}

uint64_t ElementsOf(const EntrySpec& spec) {
  uint64_t elements = 1;
  for (const int64_t extent : spec.held_shape()) elements *= static_cast<uint64_t>(extent);
  return elements;
}

// The number of each element of the tile within its box, in the order of the tile.
std::vector<uint32_t> NumbersInBox(const EntrySpec& box, const EntrySpec& tile) {
  std::vector<uint32_t> numbers;
  std::vector<int64_t> index = tile.box_offset;
  while (true) {
    uint64_t number = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      number = number * static_cast<uint64_t>(box.box_extent[d]) + static_cast<uint64_t>(index[d] - box.box_offset[d]);
    }
    numbers.push_back(static_cast<uint32_t>(number));
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == tile.box_offset[d - 1] + tile.box_extent[d - 1]) {
      index[d - 1] = tile.box_offset[d - 1];
      --d;
    }
    if (d == 0) return numbers;
  }
}

std::vector<std::byte> Gather(const TileBytes& tile, const std::vector<uint32_t>& box, uint64_t begin, uint64_t end) {
  const auto bytes = std::as_bytes(std::span(box));
  std::vector<std::byte> gathered;
  tile.ForEachRun(begin, end, [&](uint64_t offset, uint64_t count) {
    const auto run = bytes.subspan(offset, count);
    gathered.insert(gathered.end(), run.begin(), run.end());
  });
  return gathered;
}

// A box of about 1 to 4 MiB. In some dimensions it is a part of its tensor, in the others it has all of it.
EntrySpec RandomBox(std::mt19937_64& random) {
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  const auto dimensions = static_cast<size_t>(draw(1, 4));
  std::vector<int64_t> extent(dimensions, 1);
  int64_t elements = draw(1 << 18, 1 << 20);
  for (size_t left = dimensions; left > 0 && elements > 1; --left) {
    const auto d = static_cast<size_t>(draw(0, static_cast<int64_t>(dimensions) - 1));
    const int64_t factor = left == 1 ? elements : draw(1, std::min<int64_t>(elements, 2000));
    extent[d] *= factor;
    elements /= factor;
  }
  std::vector<int64_t> shape = extent;
  std::vector<int64_t> offset(dimensions, 0);
  for (size_t d = 0; d < dimensions; ++d) {
    if (draw(0, 1) == 0) continue;
    offset[d] = draw(0, 5);
    shape[d] += offset[d] + draw(0, 5);
  }
  return Box(Dtype::kFloat32, shape, offset, extent);
}

TEST(TilesTest, MakeUpTheBoxAndDoNotOverlap) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int tiled = 0;
  // Some boxes are too short to be split, so it draws until several were.
  for (int i = 0; i < 60 || (tiled <= 5 && i < 1000); ++i) {
    const EntrySpec box = RandomBox(random);
    SCOPED_TRACE(DescribeEntry(box) + DescribeBox(box.box_offset, box.box_extent));
    const std::vector<EntrySpec> tiles = TilesOf(box, 1);
    ASSERT_NE(tiles.size(), 1u);
    ASSERT_LE(tiles.size(), kTilesOfNameMax);
    if (tiles.empty()) continue;
    ++tiled;
    std::vector<uint32_t> elements(ElementsOf(box));
    std::iota(elements.begin(), elements.end(), 0u);
    std::vector<bool> seen(elements.size(), false);
    EntryNames names;
    for (const EntrySpec& tile : tiles) {
      uint64_t bytes = 0;
      ASSERT_TRUE(ValidateEntry(tile, &bytes).ok());
      names.Add(tile.name);
      EXPECT_GE(bytes, kTileBytesMin / 3) << "about as many as that, rounded down in two dimensions";
      const std::vector<uint32_t> expected = NumbersInBox(box, tile);
      const auto expected_bytes = std::as_bytes(std::span(expected));
      for (const uint32_t number : expected) {
        ASSERT_FALSE(seen[number]) << number;
        seen[number] = true;
      }
      const TileBytes places(box, tile);
      ASSERT_TRUE(std::ranges::equal(Gather(places, elements, 0, bytes), expected_bytes));
      // And any part of it.
      const uint64_t begin = std::uniform_int_distribution<uint64_t>(0, bytes - 1)(random);
      const uint64_t end = std::uniform_int_distribution<uint64_t>(begin + 1, bytes)(random);
      ASSERT_TRUE(std::ranges::equal(Gather(places, elements, begin, end), expected_bytes.subspan(begin, end - begin)));
      uint64_t last = 0;
      places.ForEachRun(0, end, [&](uint64_t offset, uint64_t count) {
        EXPECT_GE(offset, last) << "in the order of the box";
        last = offset + count;
      });
      EXPECT_EQ(places.EndInBox(end), last);
      places.ForEachRun(0, bytes, [&](uint64_t, uint64_t count) { EXPECT_GE(count, kTileRowBytesMin); });
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](bool is_seen) { return is_seen; }));
    EXPECT_FALSE(names.FindConflict([&](size_t number) -> const EntrySpec& { return tiles[number]; }).has_value());
  }
  EXPECT_GT(tiled, 5);
}

TEST(TilesTest, AreFourOfTheDimensionAlongWhichTheBoxIsSplit) {
  const std::vector<EntrySpec> tiles = TilesOf(Box(Dtype::kFloat32, {1024, 2052}, {0, 1024}, {1024, 1026}), 1);
  ASSERT_THAT(tiles, SizeIs(4));
  EXPECT_THAT(tiles[0].box_offset, ElementsAre(0, 1024));
  EXPECT_THAT(tiles[0].box_extent, ElementsAre(1024, 257));
  EXPECT_THAT(tiles[1].box_offset, ElementsAre(0, 1281));
  EXPECT_THAT(tiles[1].box_extent, ElementsAre(1024, 257));
  EXPECT_THAT(tiles[3].box_offset, ElementsAre(0, 1794));
  EXPECT_THAT(tiles[3].box_extent, ElementsAre(1024, 256));
}

TEST(TilesTest, ABoxOfRowsIsStoredAsItIs) {
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {4096, 1024}, {1024, 0}, {1024, 1024}), 1), IsEmpty());
  // A plane of a stack is split along the first dimension that it has.
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {8, 4096, 1024}, {3, 1024, 0}, {1, 1024, 1024}), 1), IsEmpty());
}

TEST(TilesTest, AWholeTensorIsStoredAsItIs) {
  EXPECT_THAT(TilesOf(Tensor("whole", Dtype::kFloat32, {1024, 1024}), 1), IsEmpty());
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1024, 1024}, {0, 0}, {1024, 1024}), 1), IsEmpty());
}

TEST(TilesTest, ASmallBoxIsStoredAsItIsOrInFewerTiles) {
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {120, 2048}, {0, 0}, {120, 1024}), 1), IsEmpty()) << "480 KiB";
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {128, 2048}, {0, 0}, {128, 1024}), 1), SizeIs(2)) << "512 KiB";
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {255, 2048}, {0, 0}, {255, 1024}), 1), SizeIs(3)) << "less than 1 MiB";
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {256, 2048}, {0, 0}, {256, 1024}), 1), SizeIs(4)) << "1 MiB";
}

TEST(TilesTest, ANarrowBoxIsStoredAsItIsOrInFewerTiles) {
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1 << 16, 1000}, {0, 0}, {1 << 16, 255}), 1), IsEmpty()) << "1020 bytes";
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1 << 16, 1000}, {0, 0}, {1 << 16, 256}), 1), SizeIs(2)) << "1 KiB";
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1 << 16, 1000}, {0, 0}, {1 << 16, 384}), 1), SizeIs(3));
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1 << 16, 1000}, {0, 0}, {1 << 16, 512}), 1), SizeIs(4)) << "2 KiB";
  // The bytes of all dimensions behind the one that is split count.
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1024, 64, 512}, {0, 0, 0}, {1024, 2, 512}), 1), SizeIs(2));
  EXPECT_THAT(TilesOf(Box(Dtype::kUint8, {1 << 20, 8}, {0, 0}, {1 << 20, 4}), 1), IsEmpty());
}

TEST(TilesTest, ABoxThatIsSplitAlongTwoDimensionsHasAGrid) {
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {64, 64, 4096}, {0, 0, 0}, {64, 32, 2048}), 1), SizeIs(16));
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {64, 64, 4096}, {0, 0, 0}, {64, 32, 2048}), 4), SizeIs(8))
      << "as many as there may be of one name";
}

TEST(TilesTest, ThereAreNoMoreOfANameThanMayLieInAnyWay) {
  const EntrySpec box = Box(Dtype::kFloat32, {1024, 2048}, {0, 0}, {1024, 1024});
  for (const size_t boxes : {1, 3, 8, 10, 16, 17, 1000}) {
    const size_t tiles = std::max<size_t>(TilesOf(box, boxes).size(), 1);
    EXPECT_TRUE(tiles * boxes <= kTilesOfNameMax || tiles == 1) << boxes;
  }
  EXPECT_THAT(TilesOf(box, 8), SizeIs(4));
  EXPECT_THAT(TilesOf(box, 17), IsEmpty());
}

TEST(TilesTest, WhatIsNoBoxOrEmptyIsStoredAsItIs) {
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1024, 2048}, {0, 0}, {0, 1024}), 1), IsEmpty());
  EXPECT_THAT(TilesOf(Box(Dtype::kFloat32, {1024, 2048}, {0, 0}, {1024, 0}), 1), IsEmpty());
  EXPECT_THAT(TilesOf(Tensor("scalar", Dtype::kFloat32, {}), 1), IsEmpty());
  EXPECT_THAT(TilesOf({.name = "text", .kind = EntryKind::kString, .shape = {4 << 20}}, 1), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
