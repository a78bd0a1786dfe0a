// Ten thousand jobs of 2 to 64 ranks keep every promise, and no rank waits longer than its deadline.

#include "tests/storage/ranks/rank_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "tests/storage/io/drawn_cases.h"

namespace tidemark::storage {
namespace {

TEST(RankSimulation, EveryRankIsToldTheSameInTime) {
  const uint32_t first = SeedOfCases();
  const uint32_t jobs = static_cast<uint32_t>(10'000 / OneOf(1, 20) * (AllCasesAsked() ? 10 : 1));
  uint64_t committed = 0, aborted = 0, unknown = 0;
  uint32_t sound = 0, without_coordinator = 0, taken_over = 0, lost_power = 0, most_ranks = 0;
  for (uint32_t i = 0; i < jobs; ++i) {
    const uint32_t seed = first + i;
    const SimulatedJob job = SimulateJob(seed);
    ASSERT_EQ(job.violation, "") << "SimulateJob(" << seed << ")";
    if (job.is_sound()) {
      ++sound;
      EXPECT_EQ(job.committed, kSteps * static_cast<int>(job.ranks)) << "SimulateJob(" << seed << ")";
      EXPECT_LE(job.last_told, kSoundJobSeconds) << "SimulateJob(" << seed << ")";
    }
    // A rank that lives is told something of both steps.
    if (!job.lost_power) {
      EXPECT_GE(job.committed + job.aborted + job.unknown, kSteps * (static_cast<int>(job.ranks) - job.deaths))
          << "SimulateJob(" << seed << ")";
    }
    committed += job.committed;
    aborted += job.aborted;
    unknown += job.unknown;
    without_coordinator += job.coordinator_died ? 1 : 0;
    taken_over += job.was_taken_over ? 1 : 0;
    lost_power += job.lost_power ? 1 : 0;
    most_ranks = std::max(most_ranks, job.ranks);
  }
  std::printf(
      "%u jobs, %u sound; told committed %lu, aborted %lu, unknown %lu; without coordinator %u, taken over %u, "
      "power lost %u\n",
      jobs, sound, committed, aborted, unknown, without_coordinator, taken_over, lost_power);
  // Each of these was drawn often enough to say something.
  for (const uint64_t often : {committed, aborted, unknown}) EXPECT_GT(often, jobs / 10);
  for (const uint32_t often : {sound, without_coordinator, taken_over, lost_power}) EXPECT_GT(often, jobs / 50);
  EXPECT_GT(most_ranks, jobs < 10'000 ? 40u : 60u);
}

TEST(RankSimulation, IsReproducible) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    const SimulatedJob one = SimulateJob(seed);
    const SimulatedJob other = SimulateJob(seed);
    EXPECT_EQ(one.last_told, other.last_told);
    EXPECT_EQ(one.committed, other.committed);
    EXPECT_EQ(one.unknown, other.unknown);
    EXPECT_EQ(one.failed_syncs, other.failed_syncs);
  }
}

}  // namespace
}  // namespace tidemark::storage
