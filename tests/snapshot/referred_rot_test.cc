// The shard of a step that later ones refer to, cut short: a restore of any of them is an error, or right where the cut
// left all that they refer to, never wrong bytes; and a verification of each says the same. Lengths are drawn; make
// faults-long takes all.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/shard_format.h"
#include "tests/snapshot/rotting_store.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::OneOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;

class ReferredRotTest : public RottingStoreTest {
 protected:
  std::vector<storage::ShardDamage> DamageOf(int64_t number) {
    auto verified =
        storage::VerifyShard(files_, PathOf(number), StorePath() + "/steps", &step(number).identity, kRotRead);
    EXPECT_THAT(verified, IsOk());
    return verified.ok() ? std::move(verified->damage) : std::vector<storage::ShardDamage>();
  }
};

TEST_F(ReferredRotTest, IsFoundInAllStepsThatReferToAShardWhateverLengthItIsCutTo) {
  int lengths = 0;
  const std::string& bytes = BytesOf(10);
  const auto file = OpenShard(10);
  const size_t stride = OneOf(7, 427);
  for (size_t length = random_() % stride; length < bytes.size(); length += stride) {
    SCOPED_TRACE(testing::Message() << "step 10 cut to " << length);
    ASSERT_THAT(file->Truncate(length), IsOk());
    EXPECT_NE(RestoreOf(10), "right");
    EXPECT_TRUE(VerifyFinds(10));
    for (const int64_t referring : {20, 30}) {
      const std::string restored = RestoreOf(referring);
      const std::vector<storage::ShardDamage> damage = DamageOf(referring);
      // A file of whole blocks that has all that is referred to gives it out, and each chunk has a digest.
      if (restored == "right" && length % storage::kShardBlockBytes == 0) {
        EXPECT_THAT(damage, IsEmpty());
        continue;
      }
      EXPECT_NE(restored, "right");
      EXPECT_THAT(damage, Not(IsEmpty()));
      EXPECT_THAT(damage, Each(Field(&storage::ShardDamage::path, PathOf(10))));
      EXPECT_THAT(damage, Each(Field(&storage::ShardDamage::entries, ElementsAre("model.frozen"))));
    }
    ++lengths;
    // Who refers to nothing of it loses nothing.
    EXPECT_EQ(RestoreOf(5), "right");
    Put(*file, length, std::string_view(bytes).substr(length));
    if (HasFailure()) return;
  }
  for (const int64_t number : {5, 10, 20, 30}) EXPECT_EQ(RestoreOf(number), "right");
  std::printf("%d lengths of a step that is referred to\n", lengths);
}

}  // namespace
}  // namespace tidemark
