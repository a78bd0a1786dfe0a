// What VerifyShard lists where there is more damage than anybody reads.

#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/read/shard_verify.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Verifies a shard with one entry of `chunks` damaged chunks, and `ties` entries tied to it.
std::vector<ShardDamage> VerifyDamagedTies(uint64_t chunks, uint64_t ties) {
  TestDirectory directory;
  const std::string path = directory / "ties.tmk";
  const auto bytes = static_cast<int64_t>(chunks * kChunkBytesMin);
  ShardIndex index;
  for (uint64_t i = 0; i < chunks; ++i) {
    index.chunks.push_back(
        {.codec = Codec::kZstd, .raw_bytes = kChunkBytesMin, .stored_bytes = 1, .offset = kShardBlockBytes + i});
  }
  for (uint64_t i = 0; i <= ties; ++i) {
    index.entries.push_back({Tensor(fmt::format("e{}", i), Dtype::kUint8, {bytes}), 0, chunks});
  }
  WriteWhole(path, BuildShard({TestIdentity(), kChunkBytesMin}, std::string(chunks, 'x'), index));
  auto result = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {.codec_threads = 2});
  EXPECT_THAT(result, IsOk());
  return result.ok() ? std::move(result->damage) : std::vector<ShardDamage>();
}

TEST(ShardVerifyMany, ListsTheFirstPlacesAndCountsTheOthers) {
  const std::vector<ShardDamage> damage = VerifyDamagedTies(kDamageListedMax + 7, 1);
  ASSERT_EQ(damage.size(), kDamageListedMax + 1);
  for (size_t i = 0; i < kDamageListedMax; ++i) {
    EXPECT_THAT(damage[i].what, HasSubstr(fmt::format("chunk {}, 1 bytes at {}:", i, kShardBlockBytes + i)));
    EXPECT_THAT(damage[i].entries, ElementsAre("e0", "e1")) << i;
  }
  EXPECT_THAT(damage.back().what, HasSubstr("ties.tmk: 7 more places are damaged; the first 1000 are listed"));
  EXPECT_THAT(damage.back().entries, IsEmpty()) << "they are named above";
  EXPECT_FALSE(damage.back().unused);
}

TEST(ShardVerifyMany, NamesNoEntryTwiceOnceThereAreManyNames) {
  constexpr size_t kEntries = kNamesRepeatedMax / 2;
  const std::vector<ShardDamage> damage = VerifyDamagedTies(5, kEntries - 1);
  ASSERT_EQ(damage.size(), 5u);
  for (size_t i = 0; i < damage.size(); ++i) EXPECT_EQ(damage[i].entries.size(), i < 2 ? kEntries : 0) << i;
}

// More places than are listed, each with an entry of its own.
TEST(ShardVerifyMany, NamesEveryEntryThatLosesData) {
  constexpr size_t kEntries = kDamageListedMax + 100;
  TestDirectory directory;
  const std::string path = directory / "many.tmk";
  ShardIndex index;
  for (uint64_t i = 0; i < kEntries; ++i) {
    index.chunks.push_back({.raw_bytes = 1, .stored_bytes = 1, .offset = kShardBlockBytes + i});
    index.entries.push_back({Tensor(fmt::format("e{:04}", i), Dtype::kUint8, {1}), i, 1});
  }
  WriteWhole(path, BuildShard({TestIdentity(), kChunkBytesMin}, std::string(kEntries, 'x'), index));
  const auto result = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {.codec_threads = 2});
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->damage.size(), kDamageListedMax + 1);
  EXPECT_EQ(result->damage.back().entries.size(), 100u);
  std::set<std::string> names;
  for (const ShardDamage& damage : result->damage) names.insert(damage.entries.begin(), damage.entries.end());
  EXPECT_EQ(names.size(), kEntries);
}

}  // namespace
}  // namespace tidemark::storage
