#include "storage/shard/format/shard_files.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

// Each rank counts its own attempts, and the step's record has rank 0's count.
TEST(ShardFilesTest, OnlyTheSequenceOfRank0IsThatOfTheRecord) {
  for (const uint32_t rank : {0u, 1u}) {
    const ShardIdentity expected = {.step = 10, .sequence = 7, .rank = rank, .world_size = 2};
    ShardHeader header{.identity = expected};
    EXPECT_THAT(CheckIdentity("a file", header, expected), IsOk());
    header.identity.sequence = 8;
    const absl::Status other_sequence = CheckIdentity("a file", header, expected);
    if (rank == 0) {
      EXPECT_THAT(other_sequence, StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("sequence 8")));
    } else {
      EXPECT_THAT(other_sequence, IsOk());
    }
    header.identity.step = 11;
    EXPECT_TRUE(absl::IsDataLoss(CheckIdentity("a file", header, expected)));
  }
}

}  // namespace
}  // namespace tidemark::storage
