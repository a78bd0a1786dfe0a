#include "snapshot/saves/save_deadlines.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const PendingSave> NewSave(int64_t step) {
  return std::make_shared<PendingSave>(step, /*persist=*/true);
}

TEST(SaveDeadlines, SettleOverdueSavesAndTellOfEachOnce) {
  std::vector<std::string> told;
  absl::Notification second;
  auto deadlines = SaveDeadlines::Start(absl::Milliseconds(5), [&](int64_t step, const absl::Status& status) {
    told.emplace_back(status.message());
    if (step == 3) second.Notify();
  });
  ASSERT_THAT(deadlines, IsOk());
  const auto overdue = NewSave(1);
  const auto committed = NewSave(2);
  const auto last = NewSave(3);
  EXPECT_TRUE(committed->Settle(absl::OkStatus()));
  for (const auto& save : {overdue, committed, last}) (*deadlines)->Watch(save, Deadline::After(absl::Milliseconds(5)));
  EXPECT_THAT(overdue->committed()->future().Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("step 1 was not committed within 5ms")));
  EXPECT_FALSE(overdue->Settle(absl::OkStatus())) << "its persister comes later";
  EXPECT_THAT(overdue->CheckDeadline(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("save_timeout")));
  second.WaitForNotification();
  EXPECT_THAT(committed->committed()->future().Wait(), IsOk());
  deadlines->reset();
  EXPECT_THAT(told, ElementsAre(HasSubstr("step 1 "), HasSubstr("step 3 ")));
}

TEST(SaveDeadlines, LeaveSavesAloneWhoseTimeIsNotUp) {
  const auto save = NewSave(1);
  {
    auto deadlines = SaveDeadlines::Start(absl::Hours(1), [](int64_t, const absl::Status&) { FAIL(); });
    ASSERT_THAT(deadlines, IsOk());
    (*deadlines)->Watch(save, Deadline::After(absl::Hours(1)));
  }
  EXPECT_THAT(save->CheckDeadline(), IsOk());
  EXPECT_TRUE(save->Settle(absl::OkStatus()));
}

}  // namespace
}  // namespace tidemark
