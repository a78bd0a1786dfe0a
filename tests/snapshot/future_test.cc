#include "tidemark/future.h"

#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(Future, OfNoPromiseIsResolvedAndOk) {
  Future future;
  EXPECT_TRUE(future.ready());
  EXPECT_TRUE(future.Wait().ok());
}

TEST(Future, IsNotReadyUntilThePromiseIsSet) {
  Promise promise;
  Future future = promise.future();
  EXPECT_FALSE(future.ready());
  promise.Set(absl::OkStatus());
  EXPECT_TRUE(future.ready());
}

TEST(Future, HandsTheResultToAWaiterOnAnotherThread) {
  Promise promise;
  absl::Status seen;
  std::thread waiter([&, future = promise.future()] { seen = future.Wait(); });
  promise.Set(absl::DataLossError("gone"));
  waiter.join();
  EXPECT_EQ(seen, absl::DataLossError("gone"));
}

TEST(Future, HandsTheResultToAWaiterWithADeadline) {
  Promise promise;
  absl::Status seen;
  std::thread waiter([&, future = promise.future()] { seen = future.WaitUntil(absl::Now() + absl::Hours(1)); });
  promise.Set(absl::DataLossError("gone"));
  waiter.join();
  EXPECT_EQ(seen, absl::DataLossError("gone"));
}

TEST(Future, GivesUpAtTheDeadlineWithoutLooking) {
  Promise promise;
  Future future = promise.future();
  EXPECT_TRUE(absl::IsDeadlineExceeded(future.WaitUntil(absl::Now())));
  EXPECT_FALSE(future.observed());
  promise.Set(absl::OkStatus());
  EXPECT_TRUE(future.WaitUntil(absl::InfinitePast()).ok());
}

TEST(Future, CountsWaitingAsLookingAndReadyNot) {
  Promise promise;
  promise.Set(absl::OkStatus());
  Future future = promise.future();
  EXPECT_TRUE(future.ready());
  EXPECT_FALSE(future.observed());
  EXPECT_TRUE(future.Wait().ok());
  EXPECT_TRUE(promise.future().observed());
}

TEST(Future, CallsBackAtOnceIfTheResultIsThere) {
  Promise promise;
  promise.Set(absl::InternalError("x"));
  std::optional<absl::Status> seen;
  promise.future().OnReady([&](const absl::Status& status) { seen = status; });
  EXPECT_EQ(seen, absl::InternalError("x"));
}

TEST(Future, CallsBackOnTheThreadThatSetsItWithNoLockHeld) {
  Promise promise;
  Future future = promise.future();
  std::optional<std::thread::id> thread;
  future.OnReady([&](const absl::Status&) {
    thread = std::this_thread::get_id();
    EXPECT_TRUE(future.ready());  // would deadlock under the lock
  });
  EXPECT_FALSE(thread.has_value());
  std::thread setter([&] { promise.Set(absl::OkStatus()); });
  const std::thread::id setter_id = setter.get_id();
  setter.join();
  EXPECT_EQ(thread, setter_id);
  EXPECT_TRUE(future.observed());
}

TEST(Future, GivesTheResultToOthersWhereACallbackThrows) {
  Promise first;
  first.future().OnReady([](const absl::Status&) { throw std::runtime_error("of the trainer's"); });
  Promise second;
  second.future().OnReady([](const absl::Status&) { throw 5; });
  const Future future = first.future();
  testing::internal::CaptureStderr();
  std::thread setter([&] {
    first.Set(absl::InternalError("x"));
    second.Set(absl::OkStatus());
  });
  setter.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tidemark: a callback of Future::OnReady threw: of the trainer's\n"
            "tidemark: a callback of Future::OnReady threw something other than a std::exception\n");
  EXPECT_EQ(future.Wait(), absl::InternalError("x"));
}

TEST(FutureDeathTest, RefusesASecondCallback) {
  Promise promise;
  promise.future().OnReady([](const absl::Status&) {});
  EXPECT_DEATH(promise.future().OnReady([](const absl::Status&) {}), "OnReady was called twice");
}

TEST(PromiseDeathTest, RefusesASecondResult) {
  Promise promise;
  promise.Set(absl::OkStatus());
  EXPECT_DEATH(promise.Set(absl::OkStatus()), "Set was called twice");
}

TEST(Promise, ThatIsDroppedCancelsItsFutures) {
  Future future;
  {
    Promise promise;
    future = promise.future();
  }
  EXPECT_TRUE(absl::IsCancelled(future.Wait()));
}

TEST(Promise, TellsEveryWatcherOnceWithoutCountingAsLookedAt) {
  Promise promise;
  const Future future = promise.future();
  int told = 0;
  const auto watcher = [&](const absl::Status& status) {
    EXPECT_EQ(status.message(), "the disk is full");
    ++told;
  };
  promise.Watch(watcher);
  promise.Watch(watcher);
  EXPECT_EQ(told, 0);
  promise.Set(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(told, 2);
  promise.Watch(watcher);  // the result is there
  EXPECT_EQ(told, 3);
  EXPECT_FALSE(future.observed());
}

TEST(Promise, TellsWatchersBeforeTheCallback) {
  Promise promise;
  bool told = false;
  promise.future().OnReady([&](const absl::Status&) { EXPECT_TRUE(told); });
  promise.Watch([&](const absl::Status&) { told = true; });
  promise.Set(absl::OkStatus());
  EXPECT_TRUE(told);
}

TEST(Promise, TellsWatchersThatItWasDropped) {
  absl::Status result;
  {
    Promise promise;
    promise.Watch([&](const absl::Status& status) { result = status; });
  }
  EXPECT_EQ(result.code(), absl::StatusCode::kCancelled);
}

TEST(Promise, KeepsItsResultWhenItMoves) {
  Promise promise;
  Future future = promise.future();
  Promise moved = std::move(promise);
  moved.Set(absl::InternalError("y"));
  EXPECT_EQ(future.Wait(), absl::InternalError("y"));
}

}  // namespace
}  // namespace tidemark
