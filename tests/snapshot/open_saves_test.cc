#include "snapshot/open_saves.h"

#include <optional>

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

TEST(OpenSaves, LeavesOutWhatSomebodyHasSeen) {
  OpenSaves saves;
  Promise committed;
  saves.Add(1, Future(), committed.future());
  committed.Set(absl::InternalError("x"));
  EXPECT_FALSE(committed.future().Wait().ok());
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
      EXPECT_FALSE(staged.future().Wait().ok());
    }
    EXPECT_EQ(saves.TakeFailure().ok(), seen);
  }
}

}  // namespace
}  // namespace tidemark
