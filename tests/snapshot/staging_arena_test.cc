#include "snapshot/staging_arena.h"

#include <sys/resource.h>

#include <cstring>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

constexpr uint64_t kBlock = 4 << 20;

absl::StatusOr<StagingMemory> FromSystem(size_t bytes) {
  static auto* const pool = new CopyPool(1);
  return MapStagingMemory(bytes, *pool);
}

TEST(StagingArena, UsesTheSameMemoryAgain) {
  auto arena = StagingArena::Create(4 * kBlock);
  auto first = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(first, IsOk());
  std::memset((*first)->data(), 1, kBlock);
  std::byte* const data = (*first)->data();
  first->reset();
  EXPECT_EQ(arena->bytes_in_use(), 0u);
  auto second = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ((*second)->data(), data);
  EXPECT_EQ(arena->bytes_mapped(), kBlock);
}

TEST(StagingArena, AlignsBlocksToPages) {
  auto arena = StagingArena::Create(0);
  for (uint64_t bytes : {uint64_t{1}, uint64_t{5000}, kBlock + 1}) {
    auto block = arena->Acquire(bytes, WhenFull::kFail, FromSystem);
    ASSERT_THAT(block, IsOk());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*block)->data()) % 4096, 0u);
  }
}

TEST(StagingArena, TakesTwoOfTheFirstStateByDefault) {
  auto arena = StagingArena::Create(0);
  auto one = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  auto two = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(two, IsOk());
  for (WhenFull policy : {WhenFull::kFail, WhenFull::kSkip}) {
    auto none = arena->Acquire(kBlock, policy, FromSystem);
    ASSERT_THAT(none, IsOk());
    EXPECT_EQ(*none, nullptr);
  }
  EXPECT_EQ(arena->bytes_in_use(), 2 * kBlock);
  EXPECT_EQ(arena->bytes_max(), 2 * kBlock);
}

TEST(StagingArena, TakesMoreByDefaultForThoseWhoHoldMore) {
  auto arena = StagingArena::Create(0);
  arena->AddSnapshots(3);
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_EQ(arena->bytes_max(), 5 * kBlock);
  arena->AddSnapshots(1);
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_EQ(arena->bytes_max(), 6 * kBlock);
  arena->AddSnapshots(std::numeric_limits<uint64_t>::max());
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_EQ(arena->bytes_max(), std::numeric_limits<uint64_t>::max());
  auto given = StagingArena::Create(kBlock);
  given->AddSnapshots(3);
  ASSERT_THAT(given->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_EQ(given->bytes_max(), kBlock);
}

TEST(StagingArena, CountsEveryChangeThatMayMakeRoom) {
  auto arena = StagingArena::Create(kBlock);
  uint64_t seen = arena->changes();
  auto block = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(block, IsOk());
  EXPECT_EQ(arena->changes(), seen);
  std::thread holder([&] { arena->NoteLetGo(); });
  arena->AwaitChange(seen);
  holder.join();
  seen = arena->changes();
  std::thread last_holder([&] { block->reset(); });
  arena->AwaitChange(seen);
  last_holder.join();
  EXPECT_EQ(arena->changes(), seen + 1);
}

TEST(StagingArena, GrowsItsDefaultWithTheState) {
  auto arena = StagingArena::Create(0);
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_THAT(arena->Acquire(10 * kBlock, WhenFull::kFail, FromSystem), IsOk());
}

TEST(StagingArena, DoesNotGrowItsDefaultWithAStateThatThereIsNoMemoryFor) {
  auto arena = StagingArena::Create(0);
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kFail, FromSystem), IsOk());
  EXPECT_THAT(arena->Acquire(uint64_t{1} << 50, WhenFull::kFail, FromSystem),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the system has no")));
  EXPECT_EQ(arena->bytes_max(), 2 * kBlock);
}

TEST(StagingArena, RefusesMoreThanTheBudgetUnderEveryPolicy) {
  auto arena = StagingArena::Create(kBlock);
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    EXPECT_THAT(arena->Acquire(kBlock + 1, policy, FromSystem),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging_bytes_max is 4194304")));
  }
}

TEST(StagingArena, DropsIdleMemoryOfAnotherSizeToStayInTheBudget) {
  auto arena = StagingArena::Create(2 * kBlock);
  arena->Acquire(kBlock, WhenFull::kFail, FromSystem)->reset();
  auto large = arena->Acquire(2 * kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(large, IsOk());
  EXPECT_EQ(arena->bytes_mapped(), 2 * kBlock);
}

TEST(StagingArena, BlocksUntilMemoryComesBack) {
  auto arena = StagingArena::Create(kBlock);
  auto first = arena->Acquire(kBlock, WhenFull::kBlock, FromSystem);
  ASSERT_THAT(first, IsOk());
  absl::Notification got;
  std::thread waiter([&] {
    EXPECT_THAT(arena->Acquire(kBlock, WhenFull::kBlock, FromSystem), IsOk());
    got.Notify();
  });
  EXPECT_FALSE(got.HasBeenNotified());
  first->reset();
  got.WaitForNotification();
  waiter.join();
}

TEST(StagingArena, WaitsForAChangeUntilTheDeadline) {
  auto arena = StagingArena::Create(kBlock);
  const uint64_t seen = arena->changes();
  EXPECT_FALSE(arena->AwaitChange(seen, Deadline::Passed()));
  EXPECT_FALSE(arena->AwaitChange(seen, Deadline::After(absl::Milliseconds(1))));
  std::thread holder([&] { arena->NoteLetGo(); });
  EXPECT_TRUE(arena->AwaitChange(seen, Deadline::After(absl::Hours(1))));
  holder.join();
  EXPECT_TRUE(arena->AwaitChange(seen, Deadline::Passed())) << "it has come";
}

TEST(StagingArena, GoesBeyondTheBudgetWhereItIsTold) {
  auto arena = StagingArena::Create(kBlock);
  auto first = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(first, IsOk());
  auto second = arena->AcquireBeyondBudget(kBlock, FromSystem);
  ASSERT_THAT(second, IsOk());
  ASSERT_NE(*second, nullptr);
  EXPECT_EQ(arena->bytes_in_use(), 2 * kBlock);
  EXPECT_EQ(arena->bytes_max(), kBlock);
  first->reset();
  auto third = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(*third, nullptr) << "the budget still counts for everybody else";
  second->reset();
  EXPECT_THAT(arena->AcquireBeyondBudget(uint64_t{1} << 50, FromSystem),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_EQ(arena->bytes_in_use(), 0u);
}

TEST(StagingArena, LivesAsLongAsItsBlocks) {
  auto arena = StagingArena::Create(kBlock);
  auto block = arena->Acquire(kBlock, WhenFull::kFail, FromSystem);
  ASSERT_THAT(block, IsOk());
  arena.reset();
  std::memset((*block)->data(), 1, kBlock);
}

TEST(StagingArena, SaysSoWhenTheSystemHasNoMemory) {
  // More than any address space has room for.
  auto arena = StagingArena::Create(uint64_t{1} << 62);
  EXPECT_THAT(arena->Acquire(uint64_t{1} << 50, WhenFull::kBlock, FromSystem),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the system has no")));
  EXPECT_EQ(arena->bytes_in_use(), 0u);
  EXPECT_EQ(arena->bytes_mapped(), 0u);
  EXPECT_THAT(arena->Acquire(kBlock, WhenFull::kBlock, FromSystem), IsOk());
}

}  // namespace
}  // namespace tidemark
