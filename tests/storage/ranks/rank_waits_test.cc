// Rank 0 tells which other ranks it waited for.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/ranks/ranked_attempts.h"
#include "tests/storage/ranks/ranked_job.h"

namespace tidemark::storage {
namespace {

using testing::Each;

// Of ten other ranks one has voted before rank 0 looks for votes. Each of the others begins to write when rank 0 has
// missed its vote once.
TEST(RankWaitsTest, TheLongestAreTold) {
  constexpr uint32_t kWorld = 11;
  RankedJob job(kWorld);
  job.OpenRanks({.vote_timeout = absl::Minutes(5)});
  absl::Notification has_voted;
  job.files(1).SetGate([&](const std::string&, const std::string& path) {
    if (absl::EndsWith(path, "/outcomes") && !has_voted.HasBeenNotified()) has_voted.Notify();
  });
  std::vector<absl::Notification> has_missed(kWorld);
  std::vector<int> looks(kWorld);
  job.files(0).SetGate([&](const std::string&, const std::string& path) {
    if (absl::EndsWith(path, "/vote-00000")) has_voted.WaitForNotification();
    for (uint32_t rank = 2; rank < kWorld; ++rank) {
      if (absl::EndsWith(path, fmt::format("/vote-{:05}", rank)) && ++looks[rank] == 2) has_missed[rank].Notify();
    }
  });
  for (uint32_t rank = 2; rank < kWorld; ++rank) {
    job.files(rank).SetGate([&, rank](const std::string&, const std::string& path) {
      if (absl::StrContains(path, "/shard-")) has_missed[rank].WaitForNotification();
    });
  }
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  const std::vector<RankWait> waits = job.rank(0).RankWaits();
  ASSERT_EQ(waits.size(), AttemptSink::kRankWaitsMax);
  for (const RankWait& wait : waits) {
    EXPECT_GE(wait.rank, 2u);
    EXPECT_EQ(wait.begin, waits.front().begin);
    EXPECT_GT(wait.end, wait.begin);
  }
  EXPECT_TRUE(std::ranges::is_sorted(waits, {}, &RankWait::end));
  EXPECT_THAT(job.rank(1).RankWaits(), testing::IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
