#include "snapshot/housekeeping/lease_renewal.h"

#include <atomic>
#include <new>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;

TEST(LeaseRenewal, RenewsUntilItIsStopped) {
  std::atomic<int> renewals = 0;
  absl::Notification third;
  auto renewal = LeaseRenewal::Start(
      [&] {
        if (++renewals == 3) third.Notify();
        return absl::OkStatus();
      },
      absl::Milliseconds(1));
  ASSERT_THAT(renewal, IsOk());
  third.WaitForNotification();
  EXPECT_THAT((*renewal)->Stop(), IsOk());
  const int at_stop = renewals;
  EXPECT_THAT((*renewal)->Stop(), IsOk());
  EXPECT_EQ(renewals, at_stop);
}

TEST(LeaseRenewal, GoesOnAfterARenewalThatThrows) {
  std::atomic<int> renewals = 0;
  absl::Notification second;
  auto renewal = LeaseRenewal::Start(
      [&]() -> absl::Status {
        if (++renewals == 2) second.Notify();
        throw std::bad_alloc();
      },
      absl::Milliseconds(1));
  ASSERT_THAT(renewal, IsOk());
  second.WaitForNotification();
  EXPECT_THAT((*renewal)->Stop(), StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("renewal")));
}

TEST(LeaseRenewal, GoesOnAfterAFailureAndSaysWhatCameLast) {
  std::atomic<int> renewals = 0;
  absl::Notification second;
  auto renewal = LeaseRenewal::Start(
      [&]() -> absl::Status {
        if (++renewals == 1) return absl::InternalError("once");
        if (renewals == 2) second.Notify();
        return absl::OkStatus();
      },
      absl::Milliseconds(1));
  ASSERT_THAT(renewal, IsOk());
  second.WaitForNotification();
  EXPECT_THAT((*renewal)->Stop(), IsOk());
}

TEST(LeaseRenewal, EndsWhenTheLeaseIsLost) {
  std::atomic<int> renewals = 0;
  absl::Notification first;
  auto renewal = LeaseRenewal::Start(
      [&]() -> absl::Status {
        if (++renewals == 1) first.Notify();
        return absl::AbortedError("somebody took it");
      },
      absl::Milliseconds(1));
  ASSERT_THAT(renewal, IsOk());
  first.WaitForNotification();
  EXPECT_THAT((*renewal)->Stop(), StatusIs(absl::StatusCode::kAborted, "somebody took it"));
  EXPECT_EQ(renewals, 1);
}

TEST(LeaseRenewal, DoesNotWaitForTheNextRenewalToStop) {
  auto renewal = LeaseRenewal::Start([] { return absl::InternalError("called"); }, absl::Hours(1));
  ASSERT_THAT(renewal, IsOk());
  EXPECT_THAT((*renewal)->Stop(), IsOk());
}

}  // namespace
}  // namespace tidemark
