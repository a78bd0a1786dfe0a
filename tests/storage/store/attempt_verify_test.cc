#include "storage/store/attempt_verify.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/attempt_reader.h"
#include "tests/storage/store/one_attempt.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AttemptVerifyTest : public OneAttemptTest {
 protected:
  void SetUp() override {
    OneAttemptTest::SetUp();
    auto record = ReadAttemptRecord(files_, layout_, store_id_, folder());
    ASSERT_THAT(record, IsOk());
    record_ = *std::move(record);
  }

  absl::StatusOr<AttemptVerification> Verify(const AttemptVerifyOptions& options = {}) {
    return VerifyAttempt(files_, layout_, store_id_, record_, options);
  }

  StepRecord record_;
};

TEST_F(AttemptVerifyTest, ReadsAllOfASoundStep) {
  uint64_t told = 0;
  const auto attempt = Verify({.progress = [&](uint64_t bytes) { told += bytes; }});
  ASSERT_THAT(attempt, IsOk());
  EXPECT_THAT(attempt->damage, IsEmpty());
  EXPECT_TRUE(attempt->restorable());
  EXPECT_EQ(attempt->bytes_read, std::filesystem::file_size(shard()));
  EXPECT_EQ(told, attempt->bytes_read);
  EXPECT_EQ(attempt->chunks, attempt->chunks_total);
}

TEST_F(AttemptVerifyTest, NamesWhatIsDamaged) {
  std::fstream file(shard(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kShardBlockBytes);
  file.put('\x7f');
  file.close();
  const auto attempt = Verify();
  ASSERT_THAT(attempt, IsOk());
  EXPECT_THAT(attempt->damage, ElementsAre(Field(&ShardDamage::path, shard())));
  EXPECT_FALSE(attempt->restorable());
}

TEST_F(AttemptVerifyTest, RefusesAnAttemptOnlyWhereARestoreWouldComeUponTheDamage) {
  const auto damage_at = [&](std::streamoff place) {
    std::fstream file(shard(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place);
    file.put('\xff');
  };
  EXPECT_THAT(CheckAttempt(files_, layout_, store_id_, record_, {}), IsOk());
  damage_at(2 * kShardBlockBytes - 1);  // behind the chunk; it belongs to nothing
  EXPECT_THAT(CheckAttempt(files_, layout_, store_id_, record_, {}), IsOk());
  damage_at(kShardBlockBytes);  // the first chunk begins after the header
  EXPECT_THAT(CheckAttempt(files_, layout_, store_id_, record_, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(shard())));
}

TEST_F(AttemptVerifyTest, SoundShardsThatWereNotCommittedAreDamage) {
  record_.shards.Add(1, 0, {});
  const auto attempt = Verify();
  ASSERT_THAT(attempt, IsOk());
  ASSERT_THAT(attempt->damage, SizeIs(1));
  EXPECT_EQ(attempt->damage[0].path, layout_.attempt(10, identity_.attempt));
  EXPECT_THAT(attempt->damage[0].what, HasSubstr("differ in number, size or digest from those that were committed"));
  EXPECT_FALSE(attempt->restorable());
}

TEST_F(AttemptVerifyTest, AnotherWorldSizeIsDamage) {
  // Nothing is left to read then, and the digest is that of the shard that is there.
  record_.info.world_size = 0;
  const auto none = Verify();
  ASSERT_THAT(none, IsOk());
  ASSERT_THAT(none->damage, SizeIs(1));
  EXPECT_THAT(none->damage[0].what, HasSubstr("differ in number"));
  record_.info.world_size = 2;
  const auto two = Verify();
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(two->damage, SizeIs(2)) << "neither of the two names is there";
}

// A record may say so; looking for each of them would take an hour.
TEST_F(AttemptVerifyTest, CountsBillionsOfMissingShards) {
  record_.info.world_size = 4'000'000'000;
  const auto attempt = Verify();
  ASSERT_THAT(attempt, IsOk());
  EXPECT_THAT(attempt->damage, SizeIs(kMissingShardsListedMax + 1));
  EXPECT_EQ(attempt->damage.back().what, "4000000000 of its 4000000000 shards are missing");
}

TEST_F(AttemptVerifyTest, LooksAtEveryShardThatIsThere) {
  constexpr uint32_t kWorldSize = 150;
  ShardIdentity identity = identity_;
  identity.world_size = kWorldSize;
  std::filesystem::remove(shard());
  for (const uint32_t rank : {2U, 120U, kWorldSize - 1}) {
    identity.rank = rank;
    ASSERT_THAT(WriteShard(layout_, identity, 42 + rank), IsOk());
  }
  std::filesystem::resize_file(layout_.shard(10, identity_.attempt, 120, kWorldSize), 100);
  record_.info.world_size = kWorldSize;
  const auto attempt = Verify();
  ASSERT_THAT(attempt, IsOk());
  ASSERT_THAT(attempt->damage, SizeIs(kMissingShardsListedMax + 2));
  EXPECT_EQ(attempt->damage[kMissingShardsListedMax].path, layout_.shard(10, identity_.attempt, 120, kWorldSize));
  EXPECT_EQ(attempt->damage.back().what, "147 of its 150 shards are missing");
}

TEST_F(AttemptVerifyTest, EndsWhenItIsCancelled) {
  EXPECT_EQ(Verify({.cancelled = [] { return true; }}).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tidemark::storage
