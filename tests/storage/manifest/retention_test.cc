#include "storage/manifest/retention.h"

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
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RetentionTest : public testing::Test {
 protected:
  RetentionTest() { Reopen(); }

  void Reopen() {
    store_.reset();
    auto store = OpenStore(directory_.path(), &warnings_, files_);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  LeaseObserver Observer(std::string machine = "here") {
    return LeaseObserver(files_, store_->layout(), std::move(machine), [this] { return now_; });
  }
  Retention Make(RetentionOptions options) {
    return Retention(
        *store_, std::move(options), [this](std::string_view line) { warnings_ += std::string(line) + "\n"; },
        Observer());
  }
  // "step: reason" of what was let go.
  std::vector<std::string> Apply(Retention& retention, const Claims& claims = {}) {
    auto marked = retention.Apply([&] { return claims; });
    EXPECT_THAT(marked, IsOk());
    std::vector<std::string> lines;
    if (!marked.ok()) return lines;
    for (const RetentionDecision& decision : *marked) {
      EXPECT_FALSE(decision.keep);
      lines.push_back(absl::StrCat(decision.step, ": ", decision.reason));
    }
    return lines;
  }
  std::unique_ptr<Lease> Take(const ShardIdentity& identity, std::string machine = "here") {
    LeaseNote note;
    note.step = identity.step;
    note.attempt = identity.attempt;
    note.evaluator = "validation";
    note.holder = "worker 1";
    note.expiry = absl::Seconds(60);
    auto lease = Observer(std::move(machine)).Acquire(note);
    EXPECT_THAT(lease, IsOk());
    return lease.ok() ? *std::move(lease) : nullptr;
  }
  // Of one whose holder was killed, or is on a machine whose locks do not reach here.
  void LeaveLease(const ShardIdentity& identity, std::string machine) {
    std::unique_ptr<Lease> lease = Take(identity, std::move(machine));
    const std::string path = LeasePath(identity);
    std::filesystem::copy_file(path, path + ".copy");
    lease.reset();
    std::filesystem::rename(path + ".copy", path);
  }
  std::string LeasePath(const ShardIdentity& identity) const {
    return store_->layout().leases() + "/" + LeaseFileName(identity.attempt, "validation");
  }
  bool HasFiles(const ShardIdentity& identity) const {
    return std::filesystem::exists(store_->layout().shard(identity.step, identity.attempt, 0, 1));
  }
  StepInfo InfoOf(int64_t step) const { return (*store_->manifest().Find(step))->info; }

  const TestDirectory directory_;
  FailingFileSystem files_{PosixFileSystem()};
  std::string warnings_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<Store> store_;
};

TEST_F(RetentionTest, DeletesWithAReasonAndNotesWhyTheOthersStay) {
  const ShardIdentity first = CommitStep(*store_, 1, 10);
  const ShardIdentity second = CommitStep(*store_, 2, 5);
  const ShardIdentity third = CommitStep(*store_, 3, 20);
  const ShardIdentity fourth = CommitStep(*store_, 4, 30);
  Retention retention = Make({.max_to_keep = 2, .keep_best = {{.metric = "loss"}}});
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
  const auto claims = [] { return Claims{{2, "evaluator x has yet to read it"}}; };
  const auto plan = retention.Plan(claims);
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->size(), 3u);
  EXPECT_EQ((*plan)[1].reason, "evaluator x has yet to read it");
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
  EXPECT_THAT(Apply(retention), ElementsAre("1: not asked for by the predicate"));
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
    EXPECT_THAT(
        store_->UpdateStep(1, ToHex(first.attempt.bytes), [](StepRecord& record) { return record.info.pinned = true; }),
        IsOk());
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
  EXPECT_THAT(Apply(retention), ElementsAre("1: not asked for by the predicate"));
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
  EXPECT_EQ(InfoOf(1).kept, "leased by somebody whose note cannot be read");
  EXPECT_EQ(warnings_, "a lease that cannot be read keeps its attempt's files: " + LeasePath(first) +
                           ": lease note has version 2; this library reads up to 1\n");
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

TEST_F(RetentionTest, DeletesNothingWhileNobodyKnowsWhatIsLeased) {
  CommitStep(*store_, 1, 10);
  CommitStep(*store_, 2, 20);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  files_.FailOperation("ListDirectory", absl::InternalError("injected"));
  EXPECT_THAT(retention.Apply({}), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_THAT(retention.Plan({}), IsOk());  // the failure was once
  files_.Reset();
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
}

// On a full disk nothing else could be written, as often as it were tried.
TEST_F(RetentionTest, LetsGoBeforeItNotesWhyOthersStay) {
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
  EXPECT_THAT(store_->manifest().Deletions().value(), IsEmpty());
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
    EXPECT_THAT(store_->UpdateStep(info.step, info.attempt, [](StepRecord& r) { return r.info.pinned = true; }),
                IsOk());
    return false;
  };
  Retention retention(
      *store_, {.keep = pins_all}, [](std::string_view) {}, Observer(), /*changes_max=*/2);
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_FALSE(retention.unfinished());
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
}

class RetentionBacklogTest : public RetentionTest {
 protected:
  // As somebody who was killed before they removed any files.
  void Mark(const std::vector<ShardIdentity>& attempts) {
    std::vector<Store::StepNote> notes;
    for (const ShardIdentity& attempt : attempts) {
      notes.push_back(
          {.step = attempt.step, .attempt = ToHex(attempt.attempt.bytes), .deleted = true, .reason = "test"});
    }
    auto marked = store_->NoteSteps(notes);
    ASSERT_THAT(marked, IsOk());
    ASSERT_EQ(marked->deleted.size(), attempts.size());
  }
  Retention Remover(size_t changes_max) {
    return Retention(
        *store_, {}, [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }, Observer(), changes_max);
  }
  size_t Pending() const { return store_->manifest().Deletions()->size(); }
};

TEST_F(RetentionBacklogTest, GoesABoundedNumberAtATime) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 5; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitStep(*store_, 6, 6);
  Mark(backlog);
  Retention retention = Remover(/*changes_max=*/2);
  for (const size_t left : {3, 1, 0}) {
    EXPECT_THAT(Apply(retention), IsEmpty());
    EXPECT_EQ(Pending(), left);
    EXPECT_EQ(std::count_if(backlog.begin(), backlog.end(), [&](const auto& attempt) { return HasFiles(attempt); }),
              static_cast<std::ptrdiff_t>(left));
    EXPECT_EQ(retention.unfinished(), left > 0);
  }
  EXPECT_EQ(warnings_, "");
}

TEST_F(RetentionBacklogTest, IsNotHeldUpByWhatStaysOrCannotBeRemoved) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 6; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitReferringStep(*store_, 7, backlog[0]);
  std::unique_ptr<Lease> lease = Take(backlog[1]);
  Mark(backlog);
  const std::string stuck = store_->layout().attempt(3, backlog[2].attempt);
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" && call.path == stuck ? absl::InternalError("injected")
                                                                     : absl::OkStatus();
  });
  Retention retention = Remover(/*changes_max=*/1);
  for (int passes = 1; passes == 1 || retention.unfinished(); ++passes) {
    ASSERT_LE(passes, 4);
    EXPECT_THAT(Apply(retention), IsEmpty());
  }
  EXPECT_EQ(Pending(), 3u);
  EXPECT_TRUE(HasFiles(backlog[0]));
  EXPECT_TRUE(HasFiles(backlog[1]));
  EXPECT_THAT(warnings_, HasSubstr("step 3 was deleted, but its files are still there: injected"));
  files_.Reset();
  lease.reset();
  for (int passes = 0; passes < 2; ++passes) EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_EQ(Pending(), 1u);
  EXPECT_FALSE(retention.unfinished());
}

TEST_F(RetentionBacklogTest, GoesBeforeWhatItRefersTo) {
  std::vector<ShardIdentity> bases;
  std::vector<ShardIdentity> referring;
  for (int64_t step = 1; step <= 16; step += 2) {
    bases.push_back(CommitStep(*store_, step, step));
    referring.push_back(CommitReferringStep(*store_, step + 1, bases.back()));
  }
  CommitStep(*store_, 99, 99);
  Mark(bases);
  Mark(referring);
  Retention retention = Remover(/*changes_max=*/referring.size());
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_TRUE(retention.unfinished());
  for (const ShardIdentity& base : bases) EXPECT_TRUE(HasFiles(base)) << base.step;
  for (const ShardIdentity& gone : referring) EXPECT_FALSE(HasFiles(gone)) << gone.step;
  EXPECT_THAT(Apply(retention), IsEmpty());
  for (const ShardIdentity& base : bases) EXPECT_FALSE(HasFiles(base)) << base.step;
}

TEST_F(RetentionBacklogTest, IsLeftForAnotherTimeWhereTheDiskRefusesToSync) {
  const std::vector<ShardIdentity> backlog = {CommitStep(*store_, 1, 1), CommitStep(*store_, 2, 2)};
  CommitStep(*store_, 3, 3);
  Mark(backlog);
  files_.FailOperation("SyncDirectory", absl::InternalError("injected"));
  Retention retention = Remover(/*changes_max=*/1);
  EXPECT_THAT(Apply(retention), IsEmpty());
  EXPECT_FALSE(retention.unfinished());
  EXPECT_EQ(Pending(), 2u);
  EXPECT_THAT(warnings_, HasSubstr("files are still there: injected"));
}

// What has its mark makes room, which may be all that is wanting.
TEST_F(RetentionBacklogTest, IsRemovedThoughMarksOfOthersAreRefused) {
  std::vector<ShardIdentity> backlog;
  for (int64_t step = 1; step <= 3; ++step) backlog.push_back(CommitStep(*store_, step, step));
  CommitStep(*store_, 4, 4);
  CommitStep(*store_, 5, 5);
  Mark(backlog);
  Retention retention = Make(RetentionOptions::MaxToKeep(1));
  const std::string manifest = store_->layout().manifest();
  bool failed = false;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (failed || call.operation != "SyncData" || !call.path.starts_with(manifest)) return absl::OkStatus();
    failed = true;
    return absl::InternalError("injected");
  });
  EXPECT_THAT(retention.Apply({}), StatusIs(StatusCode::kInternal, HasSubstr("injected")));
  EXPECT_FALSE(retention.unfinished());
  files_.Reset();
  for (const ShardIdentity& gone : backlog) EXPECT_FALSE(HasFiles(gone)) << gone.step;
}

// Whatever call fails: the next pass finishes what this one left.
TEST_F(RetentionTest, FinishesAfterAnyFailureInTheNextPass) {
  for (size_t call = 0;; ++call) {
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
    EXPECT_THAT(status, AnyOf(IsOk(), StatusIs(StatusCode::kInternal, HasSubstr("injected"))));
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
    EXPECT_THAT(store_->manifest().Deletions().value(), IsEmpty());
    if (!failed) break;
  }
}

}  // namespace
}  // namespace tidemark::storage
