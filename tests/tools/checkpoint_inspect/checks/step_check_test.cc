#include "tools/checkpoint_inspect/checks/step_check.h"

#include <sys/resource.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
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
  const StepInfo before = *reader->FindStep(1);
  store.Save({1}, {.overwrite = true});
  const StepCheck check = CheckStep(*reader, before, {});
  EXPECT_EQ(check.result, CheckResult::kSound);
  EXPECT_NE(check.info.attempt, before.attempt);
  EXPECT_THAT(check.report.damage, IsEmpty());
}

TEST(CheckStep, FindsDamageOfTheAttemptThatTookThePlace) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  const StepInfo before = *reader->FindStep(1);
  store.Save({1}, {.overwrite = true});
  store.DamageChunk(1);
  EXPECT_EQ(CheckStep(*reader, before, {}).result, CheckResult::kDamaged);
}

TEST(CheckStep, SaysThatAStepIsRemovedWhichRetentionDeletedMeanwhile) {
  TestStore store;
  store.Save({1, 2});
  const auto reader = Open(store);
  const StepInfo before = *reader->FindStep(1);
  store.Delete(1, "not among the latest 1");
  const StepCheck check = CheckStep(*reader, before, {});
  EXPECT_EQ(check.result, CheckResult::kRemoved);
  EXPECT_EQ(CheckStep(*reader, before, {}).result, CheckResult::kRemoved);
}

// A reader of two steps, the second of which a trainer has removed since it was opened.
std::unique_ptr<StoreReader> OpenAndRemoveTheSecondStep(const TestStore& store) {
  store.Save({1, 2});
  auto reader = Open(store);
  const std::string shard = store.ShardPath(2);
  const auto discarded = store.OpenCheckpointer()->DiscardAfter(1);
  EXPECT_TRUE(discarded.ok()) << discarded.status();
  EXPECT_FALSE(std::filesystem::exists(shard));
  return reader;
}

// While it lives, nothing can be opened.
class NoOpenFiles {
 public:
  NoOpenFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoOpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

struct Verified {
  ExitCode code;
  std::string out;
};

Verified VerifyWith(StoreReader& reader, std::optional<int64_t> step, bool without_files = false) {
  Console console;
  const std::string directory = "store";
  testing::internal::CaptureStdout();
  std::optional<NoOpenFiles> no_files;
  if (without_files) no_files.emplace();
  std::optional<StepSelector> selector;
  if (step) selector = StepSelector(*step);
  const ExitCode code = VerifySteps({console, reader, directory, /*json=*/false, absl::Now(), directory}, selector, {});
  no_files.reset();
  EXPECT_TRUE(console.FlushData().ok());
  return {code, testing::internal::GetCapturedStdout()};
}

TEST(CheckStep, ReportsAStepThatWasDiscardedAsRemoved) {
  TestStore store;
  const auto reader = OpenAndRemoveTheSecondStep(store);
  const StepInfo gone = *reader->FindStep(2);
  const StepCheck check = CheckStep(*reader, gone, {});
  EXPECT_EQ(check.result, CheckResult::kRemoved);
  EXPECT_EQ(check.info.attempt, gone.attempt);
  EXPECT_THAT(check.report.damage, IsEmpty());
}

TEST(CheckStep, TellsAFailureToReadFromDamage) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  const StepInfo info = *reader->FindStep(1);
  StepCheck check;
  {
    NoOpenFiles no_files;
    check = CheckStep(*reader, info, {});
  }
  EXPECT_EQ(check.result, CheckResult::kUnreadable);
  EXPECT_EQ(check.error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(check.error.message()), HasSubstr("Too many open files"));
  EXPECT_THAT(check.report.damage, IsEmpty());
}

TEST(VerifySteps, DoesNotCallARemovedStepDamaged) {
  TestStore store;
  const Verified all = VerifyWith(*OpenAndRemoveTheSecondStep(store), std::nullopt);
  EXPECT_EQ(all.code, ExitCode::kOk);
  EXPECT_THAT(all.out, HasSubstr("step 2: removed while it was being read\n"));
}

TEST(VerifySteps, FailsForARemovedStepThatWasAskedFor) {
  TestStore store;
  EXPECT_EQ(VerifyWith(*OpenAndRemoveTheSecondStep(store), 2).code, ExitCode::kFailure);
}

TEST(VerifySteps, FailsWhereAStepCannotBeRead) {
  TestStore store;
  store.Save({1});
  const Verified verified = VerifyWith(*Open(store), std::nullopt, /*without_files=*/true);
  EXPECT_EQ(verified.code, ExitCode::kFailure);
  EXPECT_THAT(verified.out, AllOf(HasSubstr("step 1: unreadable: "), HasSubstr("Too many open files"),
                                  HasSubstr("no step can be restored\n")));
}

TEST(CheckStep, ReportsDamageWhereTheJournalCannotBeReadEither) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  store.DamageIndex(1);
  store.DamageJournal();
  const StepCheck check = CheckStep(*reader, *reader->FindStep(1), {});
  EXPECT_EQ(check.result, CheckResult::kDamaged);
  EXPECT_THAT(check.report.damage, SizeIs(1));
}

TEST(CheckStep, ReportsProgressUpToTheEnd) {
  TestStore store;
  store.Save({1});
  const auto reader = Open(store);
  VerifyProgress last;
  const StepCheck check =
      CheckStep(*reader, *reader->FindStep(1), {.progress = [&](const VerifyProgress& progress) { last = progress; }});
  EXPECT_GT(last.bytes_total, 0u);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(check.report.bytes_read, last.bytes_total);
}

// As a step that a trainer has committed since the look at the store.
TEST(DamagedFilesBehind, AreNamedWhereAStepThatWasNotVerifiedRestsOnThem) {
  TestStore store;
  store.SaveReusing({1, 2, 3});
  store.DamageChunk(1);
  const auto reader = Open(store);
  const std::vector<StepCheck> checks = {CheckStep(*reader, *reader->FindStep(1), {})};
  EXPECT_THAT(DamagedFilesBehind(*reader, checks, 3), testing::ElementsAre(store.ShardPath(1)));
  EXPECT_THAT(DamagedFilesBehind(*reader, checks, 1), IsEmpty());
  EXPECT_THAT(DamagedFilesBehind(*reader, {CheckStep(*reader, *reader->FindStep(2), {})}, 3),
              testing::ElementsAre(store.ShardPath(1)))
      << "its chunks are there, too";
  EXPECT_THAT(DamagedFilesBehind(*reader, {}, 3), IsEmpty());
  const Finished verify = RunInspect({"--store", store.directory(), "verify", "1"});
  EXPECT_EQ(verify.exit_code, 13);
  EXPECT_THAT(verify.out,
              HasSubstr("\na restore takes step 3, which was not verified and has chunks in damaged files: " +
                        store.ShardPath(1) + "\n"));
}

TEST(DamagedFilesBehind, HaveTheirStepForANameWhereTheyAreLost) {
  TestStore store;
  store.SaveReusing({1, 2, 3});
  store.Update(1, [](StepInfo& info) { info.state = StepState::kLost; });
  EXPECT_THAT(RunInspect({"--store", store.directory(), "verify", "1"}).out,
              HasSubstr("which was not verified and has chunks in damaged files: the files of step 1\n"));
}

}  // namespace
}  // namespace tidemark::inspect
