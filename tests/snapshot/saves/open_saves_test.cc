#include "snapshot/saves/open_saves.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(OpenSaves, KnowsWhatIsInFlight) {
  OpenSaves saves;
  Promise committed;
  saves.Add(5, Future(), committed.future());
  EXPECT_TRUE(saves.IsInFlight(5));
  EXPECT_FALSE(saves.IsInFlight(6));
  EXPECT_TRUE(saves.TakeFailure().ok()) << "not settled";
  committed.Set(absl::OkStatus());
  EXPECT_FALSE(saves.IsInFlight(5));
}

TEST(OpenSaves, GivesTheFutureOfTheLastSaveOfAStepThatIsInFlight) {
  OpenSaves saves;
  Promise replaced;
  Promise committed;
  saves.Add(5, Future(), replaced.future());
  saves.Add(5, Future(), committed.future());
  EXPECT_FALSE(saves.CommittedOf(6).has_value());
  const std::optional<Future> future = saves.CommittedOf(5);
  ASSERT_TRUE(future.has_value());
  committed.Set(absl::InternalError("x"));
  EXPECT_EQ(future->Wait(), absl::InternalError("x"));
  EXPECT_FALSE(saves.CommittedOf(5).has_value()) << "settled";
}

TEST(OpenSaves, HasNoCommitOfWhatIsNotToBeSaved) {
  OpenSaves saves;
  Promise saved;
  Promise evaluated;
  saves.Add(5, Future(), saved.future());
  saves.Add(5, Future(), evaluated.future(), /*persist=*/false);
  evaluated.Set(absl::OkStatus());
  const std::optional<Future> future = saves.CommittedOf(5);
  ASSERT_TRUE(future.has_value());
  saved.Set(absl::InternalError("x"));
  EXPECT_EQ(future->Wait(), absl::InternalError("x"));

  Promise running;
  saves.Add(6, Future(), running.future(), /*persist=*/false);
  EXPECT_FALSE(saves.CommittedOf(6).has_value());
}

TEST(OpenSaves, ReportsEachFailureOnceInOrder) {
  OpenSaves saves;
  Promise one;
  Promise two;
  saves.Add(1, Future(), one.future());
  saves.Add(2, Future(), two.future());
  two.Set(absl::InternalError("two"));
  one.Set(absl::InternalError("one"));
  EXPECT_EQ(saves.TakeFailure(), absl::InternalError("one"));
  EXPECT_EQ(saves.TakeFailure(), absl::InternalError("two"));
  EXPECT_TRUE(saves.TakeFailure().ok());
}

TEST(OpenSaves, KeepsTheOtherFailuresBehindTheFirstUnseenOne) {
  OpenSaves saves;
  std::vector<int64_t> told;
  const auto tell = [&](int64_t step, const absl::Status&) { told.push_back(step); };
  for (int64_t step : {1, 2, 3}) {
    Promise committed;
    saves.Add(step, Future(), committed.future());
    committed.Set(absl::InternalError(std::to_string(step)));
  }
  EXPECT_EQ(saves.FirstUnseenFailure(tell).value_or(Future()).Wait(), absl::InternalError("1"));
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(saves.FirstUnseenFailure(tell).value_or(Future()).Wait(), absl::InternalError("2"));
  EXPECT_EQ(told.size(), 3u) << "told once";
  EXPECT_EQ(saves.TakeFailure(), absl::InternalError("3"));
  EXPECT_TRUE(saves.TakeFailure().ok());
}

TEST(OpenSaves, CountsTheFailuresThatItHasNoRoomFor) {
  constexpr int64_t kFailures = 1000;
  OpenSaves saves;
  int64_t told = 0;
  for (int64_t step = 1; step <= kFailures; ++step) {
    Promise committed;
    saves.Add(step, Future(), committed.future());
    committed.Set(absl::InternalError("step " + std::to_string(step)));
    EXPECT_TRUE(saves.FirstUnseenFailure([&](int64_t, const absl::Status&) { ++told; }).has_value());
  }
  EXPECT_EQ(told, kFailures);
  int64_t kept = 0;
  absl::Status last;
  for (absl::Status next = saves.TakeFailure(); !next.ok(); next = saves.TakeFailure()) {
    last = next;
    ++kept;
  }
  EXPECT_LT(kept, 20);
  EXPECT_EQ(last, absl::InternalError("990 more saves failed; the last one: step 1000"));
}

TEST(OpenSaves, LeavesOutWhatSomebodyHasSeen) {
  OpenSaves saves;
  Promise committed;
  saves.Add(1, Future(), committed.future());
  committed.Set(absl::InternalError("x"));
  EXPECT_EQ(committed.future().Wait(), absl::InternalError("x"));
  EXPECT_TRUE(saves.TakeFailure().ok());
}

TEST(OpenSaves, CountsAFailureSeenThroughStaged) {
  OpenSaves saves;
  for (bool seen : {true, false}) {
    Promise staged;
    Promise committed;
    saves.Add(1, staged.future(), committed.future());
    committed.Set(absl::InternalError("x"));
    staged.Set(absl::InternalError("x"));
    if (seen) {
      EXPECT_EQ(staged.future().Wait(), absl::InternalError("x"));
    }
    EXPECT_EQ(saves.TakeFailure().ok(), seen);
  }
}

}  // namespace
}  // namespace tidemark
