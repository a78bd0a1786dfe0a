#include "storage/records/shards_digest.h"

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

struct Shard {
  uint32_t rank = 0;
  uint64_t bytes = 0;
  Digest128 index;
};

ShardsDigest DigestOfShards(const std::vector<Shard>& shards) {
  ShardsDigest digest;
  for (const Shard& shard : shards) digest.Add(shard.rank, shard.bytes, shard.index);
  return digest;
}

const std::vector<Shard> kShards = {{0, 100, {{1}}}, {1, 200, {{2}}}, {2, 300, {{3}}}};

TEST(ShardsDigestTest, IsWhatADigestOfEachShardMakes) {
  // XXH3-128 of 00000000 6400000000000000 01000000000000000000000000000000, by another program.
  const ShardsDigest one = DigestOfShards({kShards[0]});
  EXPECT_EQ(ToHex(one.digest().bytes), "69036647cebace406caeddbcf1430c91");
  EXPECT_EQ(ShardsDigest(one.digest()), one);
  EXPECT_EQ(ShardsDigest().digest(), Digest128());
}

TEST(ShardsDigestTest, RanksComeInAnyOrderAndInParts) {
  const ShardsDigest all = DigestOfShards(kShards);
  EXPECT_EQ(DigestOfShards({kShards[2], kShards[0], kShards[1]}), all);
  ShardsDigest merged = DigestOfShards({kShards[1]});
  merged.Add(DigestOfShards({kShards[2], kShards[0]}));
  EXPECT_EQ(merged, all);
}

TEST(ShardsDigestTest, EveryChangeOfAShardIsAnotherDigest) {
  const std::vector<std::function<void(std::vector<Shard>&)>> changes = {
      [](std::vector<Shard>&) {},
      [](std::vector<Shard>& shards) { shards[1].rank = 3; },
      [](std::vector<Shard>& shards) { shards[1].bytes = 201; },
      [](std::vector<Shard>& shards) { shards[1].index.bytes[15] = 1; },
      [](std::vector<Shard>& shards) { std::swap(shards[0].index, shards[1].index); },
      [](std::vector<Shard>& shards) { std::swap(shards[0].bytes, shards[1].bytes); },
      [](std::vector<Shard>& shards) { shards[1].index = shards[0].index; },
      [](std::vector<Shard>& shards) { shards.pop_back(); },
      [](std::vector<Shard>& shards) { shards.clear(); },
      [](std::vector<Shard>& shards) {
        shards.push_back({3, 0, {}});
      },
  };
  std::set<Digest128> digests;
  for (const auto& change : changes) {
    std::vector<Shard> shards = kShards;
    change(shards);
    digests.insert(DigestOfShards(shards).digest());
  }
  EXPECT_EQ(digests.size(), changes.size());
}

}  // namespace
}  // namespace tidemark::storage
