// Repairing a store under every single fault of its disk: the repair succeeds or says what failed, takes no sound step
// for a damaged one, and leaves a store that a trainer can open and that the next repair brings into order.

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/store/repair/repair_testing.h"

namespace tidemark::storage {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::IsSubsetOf;

class RepairFaultsTest : public RepairTest {
 protected:
  static std::vector<int64_t> StepsOf(const std::vector<LostStep>& lost) {
    std::vector<int64_t> steps;
    for (const LostStep& step : lost) steps.push_back(step.step);
    return steps;
  }
};

TEST_F(RepairFaultsTest, ARepairIsFinishedByTheNextOneAfterAFault) {
  {
    auto store = Open();
    const ShardIdentity zero = CommitStep(*store, 0, 50, files_);
    ASSERT_THAT(store->MarkStep(0, ToHex(zero.attempt.bytes), StepState::kDamaged, "a bad cable"), IsOk());
  }
  MakeAMess();
  const FileTree mess = ReadTree(files_, path_);
  FailingFileSystem failing(files_);
  absl::StatusOr<RepairReport> report;
  const auto prepare = [&] {
    ASSERT_THAT(RemoveTree(files_, path_), IsOk());
    WriteTree(files_, path_, mess);
  };
  const auto act = [&] {
    report = RepairStore(failing, Options());
    return report.status();
  };
  const auto check = [&](const absl::Status& status, const InjectedFault& fault) {
    EXPECT_TRUE(status.ok() || fault.IsNamedIn(status));
    if (report.ok()) {
      EXPECT_THAT(StepsOf(report->lost), IsSubsetOf({2, 3}));
    }
    {
      // What a trainer finds that is started before the next repair.
      DraftFileSystem draft(files_, path_);
      const auto store = OpenSoundStore(path_, &warnings_, draft);
      ASSERT_NE(store, nullptr);
      EXPECT_THAT(ValueAt(*store, 0, draft), AnyOf(-1, 50));
      EXPECT_EQ(ValueAt(*store, 1, draft), 100);
      EXPECT_EQ(ValueAt(*store, 2, draft), -1);
      EXPECT_EQ(ValueAt(*store, 3, draft), -1);
      EXPECT_EQ(ValueAt(*store, 4, draft), 300);
      EXPECT_EQ(ValueAt(*store, 5, draft), -1);
    }
    const auto again = Apply();
    ASSERT_THAT(again, IsOk());
    EXPECT_THAT(StepsOf(again->lost), ElementsAre(2, 3));
    EXPECT_THAT(StepsOf(again->unread), testing::IsEmpty());
    EXPECT_EQ(again->restores, 4);
    EXPECT_TRUE(IsThere(layout_.quarantine() + "/" + StepFolderName(2, two_.attempt) + "/" + ShardFileName(0, 1)));
    EXPECT_TRUE(IsThere(ShardOf(three_))) << "step 4 refers to it";
    EXPECT_EQ(ValueAt(*Open(), 0, files_), 50);
    ExpectInOrder();
  };
  const auto figures = SweepFaults(
      failing, {.name = "repair", .prepare = prepare, .act = act, .check = check, .one_thread = true}, FaultsToRun(40));
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark::storage
