#include "tools/checkpoint_inspect/step_check.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::unique_ptr<StoreReader> Open(const TestStore& store) {
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

TEST(CheckStep, ReadsTheAttemptThatTookThePlaceOfTheOneItHad) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  const StepInfo before = *reader->Find(1);
  store.Save({1}, {.overwrite = true});
  const StepCheck check = CheckStep(*reader, before, nullptr);
  EXPECT_EQ(check.result, CheckResult::kSound);
  EXPECT_NE(check.info.attempt, before.attempt);
  EXPECT_THAT(check.report.damage, IsEmpty());
}

TEST(CheckStep, FindsDamageOfTheAttemptThatTookThePlace) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  const StepInfo before = *reader->Find(1);
  store.Save({1}, {.overwrite = true});
  store.DamageChunk(1);
  EXPECT_EQ(CheckStep(*reader, before, nullptr).result, CheckResult::kDamaged);
}

TEST(CheckStep, ReportsAStepThatIsNoLongerRecordedAsRemoved) {
  TestStore store, copy;
  store.Save({1});
  std::filesystem::copy(store.directory(), copy.directory(), std::filesystem::copy_options::recursive);
  store.Save({2});
  const auto reader = Open(store);
  const StepInfo gone = *reader->Find(2);
  // The manifest as it would be if a trainer had removed the step.
  store.RemoveStep(2);
  std::filesystem::remove_all(store.directory() + "/manifest");
  std::filesystem::copy(copy.directory() + "/manifest", store.directory() + "/manifest");
  const StepCheck check = CheckStep(*reader, gone, nullptr);
  EXPECT_EQ(check.result, CheckResult::kRemoved);
  EXPECT_EQ(check.info.attempt, gone.attempt);
  EXPECT_THAT(check.report.damage, IsEmpty());
}

TEST(CheckStep, ReportsDamageWhereTheManifestCannotBeReadEither) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  store.DamageIndex(1);
  store.DamageManifest();
  const StepCheck check = CheckStep(*reader, *reader->Find(1), nullptr);
  EXPECT_EQ(check.result, CheckResult::kDamaged);
  EXPECT_THAT(check.report.damage, SizeIs(1));
}

TEST(CheckStep, ReportsProgressUpToTheEnd) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  VerifyProgress last;
  const StepCheck check =
      CheckStep(*reader, *reader->Find(1), [&](const VerifyProgress& progress) { last = progress; });
  EXPECT_GT(last.bytes_total, 0u);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(check.report.bytes_read, last.bytes_total);
}

}  // namespace
}  // namespace tidemark::inspect
