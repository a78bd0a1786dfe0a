#include "storage/retention/retention.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/retention/retention_testing.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST_F(RetentionTest, DeletesWithAReasonAndNotesWhyTheOthersStay) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  const ShardIdentity second = CommitStep(*store_, 2, 5);
  const ShardIdentity third = CommitStep(*store_, 3, 20);
  const ShardIdentity fourth = CommitStep(*store_, 4, 30);
  Retention retention = Make({.max_to_keep = 2, .keep_best = {{.metric = "loss", .mode = BestMode::kLowest}}});
  auto plan = retention.Plan({});
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->size(), 4u);
  EXPECT_FALSE((*plan)[0].keep);
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);

  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 2 or the best of loss"));
  EXPECT_EQ(InfoOf(1).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(1).reason, "not among the latest 2 or the best of loss");
  EXPECT_EQ(InfoOf(1).metrics.at("loss"), 10);
  EXPECT_EQ(InfoOf(2).kept, "best loss (5)");
  EXPECT_EQ(InfoOf(3).kept, "among the latest 2");
  EXPECT_EQ(InfoOf(4).kept, "latest");
  EXPECT_FALSE(HasFiles(first));
  EXPECT_FALSE(std::filesystem::exists(store_->layout().attempt(1, first.attempt)));
  for (const ShardIdentity& kept : {second, third, fourth}) EXPECT_TRUE(HasFiles(kept));
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(warnings_, "");
  Reopen();
  EXPECT_EQ(InfoOf(1).state, StepState::kDeleted);
  EXPECT_EQ(ValueAt(*store_, 2), 5);
  EXPECT_EQ(warnings_, "");
}

// A predicate may ask for the metadata, and a note on the record must keep it.
TEST_F(RetentionTest, APredicateSeesTheMetadataAndANoteKeepsIt) {
  for (const int64_t step : {1, 2, 3}) {
    const ShardIdentity identity = WriteAttempt(*store_, step, step, files_);
    auto attempt = ReadAttempt(files_, store_->layout(), store_->id(), {step, identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    attempt->record.info.user_metadata = absl::StrCat("{\"number\":", step, "}");
    ASSERT_THAT(store_->CommitAttempt(attempt->record), IsOk());
  }
  std::vector<std::string> seen;
  Retention retention = Make({.keep = [&](const StepInfo& info) {
    seen.push_back(info.user_metadata);
    return info.user_metadata == "{\"number\":1}";
  }});
  EXPECT_THAT(Apply(retention), ElementsAre("2: not kept by the predicate"));
  EXPECT_THAT(seen, ElementsAre("{\"number\":1}", "{\"number\":2}", "{\"number\":3}"));
  EXPECT_EQ(InfoOf(1).kept, "kept by the predicate");
  for (const int64_t step : {1, 3}) EXPECT_EQ(InfoOf(step).user_metadata, absl::StrCat("{\"number\":", step, "}"));
}

// Which is more than what is kept in memory of a step.
TEST_F(RetentionTest, APredicateSeesAllOfALargeRecord) {
  const ShardIdentity identity = WriteAttempt(*store_, 1, 1, files_);
  auto attempt = ReadAttempt(files_, store_->layout(), store_->id(), {1, identity.attempt});
  ASSERT_THAT(attempt, IsOk());
  attempt->record.info.user_metadata = R"({"text":")" + std::string(100'000, 'x') + R"("})";
  ASSERT_THAT(store_->CommitAttempt(attempt->record), IsOk());
  std::string seen;
  Retention retention = Make({.keep = [&](const StepInfo& info) {
    seen = info.user_metadata;
    return true;
  }});
  EXPECT_THAT(retention.Plan({}), IsOk());
  EXPECT_EQ(seen, attempt->record.info.user_metadata);
}

TEST_F(RetentionTest, WithoutARuleOnlyRemovesWhatOthersHaveMarked) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  Retention retention = Make({.keep_unevaluated_until = {{.evaluator = "validation"}}});
  files_.Reset();
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_THAT(files_.calls(), IsEmpty());
  EXPECT_EQ(InfoOf(1).kept, "");
  std::unique_ptr<Lease> lease = Take(first);
  ASSERT_THAT(
      store_->NoteSteps({{.step = 1, .attempt = ToHex(first.attempt.bytes), .deleted = true, .reason = "mine"}}),
      IsOk());
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_TRUE(HasFiles(first));
  lease.reset();
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_FALSE(HasFiles(first));
}

TEST_F(RetentionTest, KeepsWhatIsLeasedOrClaimed) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  const ShardIdentity second = CommitStep(*store_, 2, 20);
  CommitStep(*store_, 3, 30);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  std::unique_ptr<Lease> lease = Take(first);
  EXPECT_THAT(Apply(retention, {{2, "evaluator x reads it"}}), IsEmpty());
  EXPECT_EQ(InfoOf(1).kept, "leased by worker 1 (evaluator validation)");
  EXPECT_EQ(InfoOf(2).kept, "evaluator x reads it");
  EXPECT_THAT(Apply(retention), ElementsAre("2: not among the latest 1"));
  lease.reset();
  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 1"));
  EXPECT_FALSE(HasFiles(first));
  EXPECT_FALSE(HasFiles(second));
}

// What is claimed before it is committed is then never seen without its claim, however long the look at the leases
// takes.
TEST_F(RetentionTest, AsksForTheClaimsAfterReadingTheSteps) {
  CommitStep(*store_, 1, 10);
  bool asked = false;
  const auto saves_on = [&]() -> Claims {
    if (!std::exchange(asked, true)) {
      CommitStep(*store_, 2, 20);
      CommitStep(*store_, 3, 30);
    }
    return {};
  };
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  EXPECT_THAT(retention.Apply(saves_on).value(), IsEmpty());
  EXPECT_TRUE(asked);
  EXPECT_EQ(InfoOf(1).kept, "latest");
  EXPECT_EQ(InfoOf(2).state, StepState::kCommitted);
  const auto claims = [] { return Claims{{2, "evaluator x has not read it yet"}}; };
  const auto plan = retention.Plan(claims);
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->size(), 3u);
  EXPECT_EQ((*plan)[1].reason, "evaluator x has not read it yet");
}

TEST_F(RetentionTest, KeepsTheFilesForALeaseThatCameAfterThePlan) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  std::unique_ptr<Lease> lease;
  const auto meanwhile = [&](const StepInfo&) {
    if (lease == nullptr) lease = Take(first);
    return false;
  };
  Retention retention = Make({.keep = meanwhile});
  EXPECT_THAT(Apply(retention), ElementsAre("1: not kept by the predicate"));
  EXPECT_EQ(InfoOf(1).state, StepState::kDeleted);
  EXPECT_TRUE(HasFiles(first));
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_TRUE(HasFiles(first));
  Reopen();
  EXPECT_TRUE(HasFiles(first));
  lease.reset();
  Retention after = Make(RetentionOptions::MaxToKeep(1));
  EXPECT_THAT(Apply(after), IsEmpty());
  EXPECT_FALSE(HasFiles(first));
  EXPECT_EQ(warnings_, "");
}

TEST_F(RetentionTest, LeavesAStepAloneThatWasPinnedAfterThePlan) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  const auto meanwhile = [&](const StepInfo& info) {
    EXPECT_THAT(store_->Pin(1, ""), IsOk());
    return info.step > 2;
  };
  Retention retention = Make({.keep = meanwhile});
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
  EXPECT_TRUE(HasFiles(first));
}

TEST_F(RetentionTest, NeverLetsTheLatestGoThoughALaterOneTurnsOutDamagedAfterThePlan) {
  CommitStep(*store_, 1, 10);
  const ShardIdentity second = CommitStep(*store_, 2, 20);
  const ShardIdentity third = CommitStep(*store_, 3, 30);
  const auto meanwhile = [&](const StepInfo&) {
    EXPECT_THAT(store_->MarkStep(3, ToHex(third.attempt.bytes), StepState::kDamaged, "test"), IsOk());
    return false;
  };
  Retention retention = Make({.keep = meanwhile});
  EXPECT_THAT(Apply(retention), ElementsAre("1: not kept by the predicate"));
  EXPECT_EQ(InfoOf(2).state, StepState::kCommitted);
  EXPECT_TRUE(HasFiles(second));
}

TEST_F(RetentionTest, IsNotHeldUpByTheDead) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  const ShardIdentity second = CommitStep(*store_, 2, 20);
  CommitStep(*store_, 3, 30);
  LeaveLease(first, "here");
  LeaveLease(second, "elsewhere");
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 1"));
  EXPECT_FALSE(HasFiles(first));
  now_ += absl::Seconds(59);
  EXPECT_THAT(Apply(retention), IsEmpty());
  now_ += absl::Seconds(1);
  EXPECT_THAT(Apply(retention), ElementsAre("2: not among the latest 1"));
  EXPECT_FALSE(HasFiles(second));
  EXPECT_FALSE(std::filesystem::exists(LeasePath(second)));
}

TEST_F(RetentionTest, WarnsOnceOfALeaseThatItCannotRead) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  std::filesystem::create_directories(store_->layout().leases());
  std::ofstream(LeasePath(first)) << "{\"version\":2}";
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(InfoOf(1).kept, "leased; the lease's note cannot be read");
  EXPECT_EQ(warnings_, "a lease that cannot be read keeps its attempt's files: " + LeasePath(first) +
                           ": lease note has version 2; this library reads up to 1\n");
}

TEST_F(RetentionTest, KeepsWhatIsJustBeingLeasedWithoutAWarning) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  int passes = 0;
  files_.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation != "WriteNote" || path != LeasePath(first)) return;
    ++passes;
    EXPECT_THAT(Apply(retention), IsEmpty());
    EXPECT_EQ(InfoOf(1).kept, "leased by a process that has not written its note yet");
  });
  std::unique_ptr<Lease> lease = Take(first);
  files_.SetGate(nullptr);
  EXPECT_EQ(passes, 1);
  EXPECT_TRUE(HasFiles(first));
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(InfoOf(1).kept, "leased by worker 1 (evaluator validation)");
  EXPECT_EQ(warnings_, "");
}

TEST_F(RetentionTest, WarnsOfALeaseWhoseHolderWritesNoNote) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  std::filesystem::create_directories(store_->layout().leases());
  auto lock = PosixFileSystem().TryLock(LeasePath(first));
  ASSERT_THAT(lock, IsOk());
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(warnings_, "");
  now_ += absl::Seconds(10);
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_THAT(warnings_, testing::StartsWith("a lease that cannot be read keeps its attempt's files: " +
                                             LeasePath(first) + ": lease note of 0 bytes"));
  lock->reset();
  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 1"));
}

TEST_F(RetentionTest, KeepsFilesThatStepsWhichStayReferTo) {
  const ShardIdentity base = CommitStep(*store_, 1, 10);
  CommitReferringStep(*store_, 2, base);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 1"));
  EXPECT_TRUE(HasFiles(base));
  EXPECT_EQ(ValueAt(*store_, 2), 10);
  CommitStep(*store_, 3, 30);
  EXPECT_THAT(Apply(retention), ElementsAre("2: not among the latest 1"));
  EXPECT_FALSE(HasFiles(base));
}

TEST_F(RetentionTest, DeletesNothingWhileItIsUnknownWhatIsLeased) {
  CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  files_.FailOperation("ListDirectory", absl::InternalError("injected"));
  EXPECT_THAT(retention.Apply({}), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_THAT(retention.Plan({}), IsOk());  // the failure was once
  files_.Reset();
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
}

TEST_F(RetentionTest, SaysWhyAStepIsNotDeletedAndRecordsNothingOfIt) {
  std::vector<Retention::Unwanted> unwanted;
  for (int64_t step = 1; step <= 5; ++step) {
    unwanted.push_back({.step = step, .attempt = CommitStep(*store_, step, step).attempt, .reason = "by hand"});
  }
  CommitStep(*store_, 1, 11);
  ASSERT_THAT(store_->MarkStep(2, InfoOf(2).attempt, StepState::kDamaged, "rot"), IsOk());
  ASSERT_THAT(store_->NoteSteps({{.step = 3, .attempt = InfoOf(3).attempt, .deleted = true}}), IsOk());
  ASSERT_THAT(store_->Pin(4, ""), IsOk());
  Retention retention = Make({});
  const auto result = retention.LetGo(unwanted, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->kept, ElementsAre(Pair(0, "another save has replaced it"), Pair(1, "it is damaged"),
                                        Pair(2, "it is deleted"), Pair(3, "pinned"), Pair(4, HasSubstr("latest"))));
  EXPECT_EQ(InfoOf(4).kept, "");
}

// On a full disk nothing else could be written, as often as it were tried.
TEST_F(RetentionTest, DeletesBeforeItNotesWhyOthersStay) {
  for (int64_t step = 1; step <= 4; ++step) CommitStep(*store_, step, step);
  ASSERT_THAT(store_->Pin(1, ""), IsOk());
  Retention retention(
      *store_, RetentionOptions::MaxToKeep(1), [](std::string_view) {}, Observer(), /*changes_max=*/1);
  EXPECT_THAT(Apply(retention), ElementsAre("2: not among the latest 1"));
  EXPECT_THAT(Apply(retention), ElementsAre("3: not among the latest 1"));
  EXPECT_EQ(InfoOf(1).kept, "");
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(InfoOf(1).kept, "pinned");
}

TEST_F(RetentionTest, ChangesABoundedNumberOfRecordsAtATimeAndSaysSo) {
  for (int64_t step = 1; step <= 7; ++step) CommitStep(*store_, step, step);
  Retention retention(
      *store_, RetentionOptions::MaxToKeep(2), [](std::string_view) {}, Observer(), /*changes_max=*/2);
  EXPECT_FALSE(retention.unfinished());
  EXPECT_THAT(Apply(retention), ElementsAre("1: not among the latest 2", "2: not among the latest 2"));
  EXPECT_TRUE(retention.unfinished());
  EXPECT_THAT(store_->catalog().Deletions().value(), IsEmpty());
  EXPECT_EQ(InfoOf(7).kept, "");
  EXPECT_THAT(Apply(retention), ElementsAre("3: not among the latest 2", "4: not among the latest 2"));
  EXPECT_TRUE(retention.unfinished());
  EXPECT_THAT(Apply(retention), ElementsAre("5: not among the latest 2"));
  EXPECT_EQ(InfoOf(6).kept, "among the latest 2");
  EXPECT_TRUE(retention.unfinished());
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(InfoOf(7).kept, "latest");
  EXPECT_FALSE(retention.unfinished());
  CommitStep(*store_, 8, 8);
  EXPECT_THAT(Apply(retention), ElementsAre("6: not among the latest 2"));
}

TEST_F(RetentionTest, IsFinishedWhereEveryRecordIsRefused) {
  for (int64_t step = 1; step <= 4; ++step) CommitStep(*store_, step, step);
  const auto pins_all = [&](const StepInfo& info) {
    EXPECT_THAT(store_->Pin(info.step, ""), IsOk());
    return false;
  };
  Retention retention(
      *store_, {.keep = pins_all}, [](std::string_view) {}, Observer(), /*changes_max=*/2);
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_FALSE(retention.unfinished());
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
}

// Whatever call fails: the next pass finishes what this one left.
TEST_F(RetentionTest, FinishesAfterAnyFailureInTheNextPass) {
  const DrawnCalls drawn;
  for (size_t call = drawn.first;; call += drawn.stride) {
    SCOPED_TRACE(absl::StrCat("call ", call));
    const int64_t base = static_cast<int64_t>(call) * 10 + 1;
    const ShardIdentity first = CommitStep(*store_, base, 10);
    const ShardIdentity second = CommitStep(*store_, base + 1, 20);
    const ShardIdentity third = CommitReferringStep(*store_, base + 2, first);
    const ShardIdentity latest = CommitStep(*store_, base + 3, 30);
    LeaveLease(second, "here");
    Retention retention = Make(RetentionOptions::MaxToKeep(1));
    warnings_.clear();
    files_.Reset();
    files_.FailCall(call, absl::InternalError("injected"));
    const absl::Status status = retention.Apply({}).status();
    const bool failed = call < files_.calls().size();
    files_.Reset();
    EXPECT_THAT(status, AnyOf(IsOk(), StatusIs(StatusCode::kInternal, HasSubstr("injected")),
                              StatusIs(StatusCode::kUnknown, HasSubstr("injected"))));
    EXPECT_EQ(ValueAt(*store_, base + 3), 30);
    if (call % 2 == 0) Reopen();  // a new process takes it up as well
    Retention next = Make(RetentionOptions::MaxToKeep(1));
    EXPECT_THAT(next.Apply({}), IsOk());
    for (const ShardIdentity& gone : {first, second, third}) {
      EXPECT_FALSE(std::filesystem::exists(store_->layout().attempt(gone.step, gone.attempt))) << gone.step;
      EXPECT_EQ(InfoOf(gone.step).state, StepState::kDeleted);
    }
    EXPECT_TRUE(HasFiles(latest));
    EXPECT_FALSE(std::filesystem::exists(LeasePath(second)));
    EXPECT_THAT(store_->catalog().Deletions().value(), IsEmpty());
    if (!failed) break;
  }
}

}  // namespace
}  // namespace tidemark::storage
