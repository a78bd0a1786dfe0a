#include "snapshot/staging/staging_arena.h"

#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

TEST(StagingArena, UsesIdleMemoryThatIsALittleLarger) {
  auto arena = StagingArena::Create(0);
  arena->Acquire(kBlock, WhenFull::kFail, FromSystem)->reset();
  auto smaller = arena->Acquire(kBlock - kBlock / 5, WhenFull::kFail, FromSystem);
  ASSERT_THAT(smaller, IsOk());
  EXPECT_EQ((*smaller)->bytes(), kBlock);
  EXPECT_EQ(arena->bytes_mapped(), kBlock);
  EXPECT_EQ(arena->bytes_in_use(), kBlock);
  smaller->reset();
  auto much_smaller = arena->Acquire(kBlock / 2, WhenFull::kFail, FromSystem);
  ASSERT_THAT(much_smaller, IsOk());
  EXPECT_EQ((*much_smaller)->bytes(), kBlock / 2);
}

// A machine that can give so many bytes more.
AvailableMemory Gives(uint64_t bytes) { return {.bytes = bytes, .limit = "what the test says"}; }

// A machine with so many bytes of memory. What an arena has taken is not available. Must outlive the arena.
class Machine {
 public:
  explicit Machine(uint64_t bytes) : bytes_(bytes) {}

  AvailableMemory Available() const { return Gives(bytes_ - taken_); }

  absl::StatusOr<StagingMemory> Take(size_t bytes) {
    absl::StatusOr<StagingMemory> memory = FromSystem(bytes);
    if (!memory.ok()) return memory;
    taken_ += bytes;
    std::shared_ptr<std::byte> held = std::move(memory->data);
    std::byte* const data = held.get();
    const auto give_back = [this, bytes, held = std::move(held)](std::byte*) mutable {
      held.reset();
      taken_ -= bytes;
    };
    return StagingMemory{.data = std::shared_ptr<std::byte>(data, give_back), .kind = memory->kind};
  }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> taken_{0};
};

TEST(StagingArena, TakesABlockThatComesBackWhileTheSystemRefusesAnother) {
  for (const WhenFull when_full : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    // The first look refuses the memory. The two after it ask whether waiting would help.
    for (const int look : {1, 2, 3}) {
      SCOPED_TRACE(look);
      Machine machine(kBlock + 1000);
      std::unique_ptr<StagingArena::Block> earlier;
      int looks = 0;
      auto arena = StagingArena::Create(4 * kBlock, [&] {
        const AvailableMemory available = machine.Available();
        if (earlier != nullptr && ++looks == look) earlier.reset();
        return available;
      });
      const auto source = [&](size_t bytes) { return machine.Take(bytes); };
      auto first = arena->Acquire(kBlock, when_full, source);
      ASSERT_THAT(first, IsOk());
      earlier = *std::move(first);
      const auto second = arena->Acquire(kBlock, when_full, source);
      ASSERT_THAT(second, IsOk());
      ASSERT_NE(*second, nullptr);
      EXPECT_EQ(arena->bytes_mapped(), kBlock);
    }
  }
}

// If it were given back, another program might take it.
TEST(StagingArena, KeepsABlockThatComesBackWhileTheSystemRefusesAnother) {
  uint64_t left = kBlock;
  std::unique_ptr<StagingArena::Block> earlier;
  auto arena = StagingArena::Create(4 * kBlock, [&] {
    earlier.reset();
    return Gives(left);
  });
  auto first = arena->Acquire(kBlock, WhenFull::kBlock, FromSystem);
  ASSERT_THAT(first, IsOk());
  left = 0;
  for (const bool beyond : {false, true}) {
    SCOPED_TRACE(beyond);
    earlier = *std::move(first);
    std::byte* const data = earlier->data();
    first =
        beyond ? arena->AcquireBeyondBudget(kBlock, FromSystem) : arena->Acquire(kBlock, WhenFull::kBlock, FromSystem);
    ASSERT_THAT(first, IsOk());
    EXPECT_EQ((*first)->data(), data);
    EXPECT_EQ(arena->bytes_mapped(), kBlock);
    EXPECT_EQ(arena->bytes_in_use(), kBlock);
  }
}

TEST(StagingArena, RefusesWhatTheSystemCannotGiveBeforeItTakesAnyOfIt) {
  auto arena = StagingArena::Create(0, [] { return Gives(2 * kBlock - 1); });
  bool asked = false;
  const auto source = [&](size_t bytes) {
    asked = true;
    return FromSystem(bytes);
  };
  const auto refused = storage::StatusIs(
      absl::StatusCode::kResourceExhausted,
      testing::AllOf(HasSubstr("needs 8388608 more bytes"), HasSubstr("8388607 are available (what the test says)")));
  EXPECT_THAT(arena->Acquire(2 * kBlock, WhenFull::kBlock, source), refused);
  EXPECT_THAT(arena->AcquireBeyondBudget(2 * kBlock, source), refused);
  EXPECT_FALSE(asked);
  EXPECT_EQ(arena->bytes_mapped(), 0u);
  EXPECT_THAT(arena->Acquire(kBlock, WhenFull::kBlock, source), IsOk());
}

TEST(StagingArena, WaitsForTheOneBlockThatTheSystemHasMemoryFor) {
  Machine machine(kBlock + 1000);
  std::vector<std::string> warnings;
  auto arena = StagingArena::Create(
      0, [&] { return machine.Available(); }, [&](std::string_view line) { warnings.emplace_back(line); });
  const auto source = [&](size_t bytes) { return machine.Take(bytes); };
  auto first = arena->Acquire(kBlock, WhenFull::kBlock, source);
  ASSERT_THAT(first, IsOk());
  for (const WhenFull policy : {WhenFull::kSkip, WhenFull::kFail}) {
    auto none = arena->Acquire(kBlock, policy, source);
    ASSERT_THAT(none, IsOk());
    EXPECT_EQ(*none, nullptr);
  }
  EXPECT_THAT(arena->Acquire(4 * kBlock, WhenFull::kBlock, source),
              storage::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000 are available")))
      << "not even when all comes back";
  std::thread waits([&] { EXPECT_THAT(arena->Acquire(kBlock, WhenFull::kBlock, source), IsOk()); });
  first->reset();
  waits.join();
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("more bytes of staging memory, and")));
  EXPECT_EQ(arena->bytes_mapped(), kBlock);
}

TEST(StagingArena, GivesBackWhatIsIdleBeforeItIsShortOfMemory) {
  uint64_t left = kBlock;
  auto arena = StagingArena::Create(8 * kBlock, [&] { return Gives(left); });
  ASSERT_THAT(arena->Acquire(kBlock, WhenFull::kBlock, FromSystem), IsOk());
  left = 0;
  const auto source = [&](size_t bytes) {
    EXPECT_EQ(arena->bytes_mapped(), bytes) << "the idle block is gone";
    return FromSystem(bytes);
  };
  // What was given back is there to be taken.
  EXPECT_THAT(arena->Acquire(kBlock / 2, WhenFull::kBlock, source),
              StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  EXPECT_EQ(arena->bytes_mapped(), 0u);
  left = kBlock;
  EXPECT_THAT(arena->Acquire(kBlock / 2, WhenFull::kBlock, source), IsOk());
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
  std::thread holder([&] { arena->NoteReleased(); });
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
  std::thread holder([&] { arena->NoteReleased(); });
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
