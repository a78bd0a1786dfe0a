// Retention::DiscardAfter: a run that goes back to an older step gives up the later ones.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/retention/retention_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RetentionDiscardTest : public RetentionTest {
 protected:
  std::vector<int64_t> Committed() const {
    std::vector<int64_t> steps;
    const absl::StatusOr<CommittedSteps> committed = store_->catalog().Committed();
    EXPECT_THAT(committed, IsOk());
    for (const auto& info : *committed) steps.push_back(info->step);
    return steps;
  }
  Retention::Discarded Discard(int64_t after, const Claims& claims = {}, size_t changes_max = 100) {
    Retention retention(
        *store_, {}, [this](std::string_view line) { warnings_ += std::string(line) + "\n"; }, Observer(), changes_max);
    Retention::Discarded discarded;
    retention.DiscardAfter(
        after, "went back", [&] { return claims; }, &discarded);
    do {
      retention.Apply({}).status().IgnoreError();  // removes files
    } while (retention.unfinished());
    return discarded;
  }
};

TEST_F(RetentionDiscardTest, DeletesAllLaterStepsTheLatestIncluded) {
  std::vector<ShardIdentity> steps;
  for (int64_t step = 1; step <= 7; ++step) steps.push_back(CommitStep(*store_, step, 10 * step));
  const Retention::Discarded discarded = Discard(/*after=*/3, /*claims=*/{}, /*changes_max=*/3);
  EXPECT_THAT(discarded.error, IsOk());
  EXPECT_THAT(discarded.deleted, ElementsAre(7, 6, 5, 4));
  EXPECT_EQ(store_->catalog().LatestCommitted().value(), 3);
  EXPECT_EQ(InfoOf(7).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(7).reason, "went back");
  EXPECT_TRUE(HasFiles(steps[2]));
  EXPECT_FALSE(HasFiles(steps[3]));
  EXPECT_FALSE(HasFiles(steps[6]));
  EXPECT_THAT(Discard(3).deleted, IsEmpty());
  Reopen();
  EXPECT_THAT(Committed(), ElementsAre(1, 2, 3));
  CommitStep(*store_, 4, 44);
  EXPECT_EQ(ValueAt(*store_, 4), 44);
  EXPECT_EQ(store_->catalog().LatestCommitted().value(), 4);
  EXPECT_EQ(warnings_, "");
}

TEST_F(RetentionDiscardTest, RefusesAndNamesEachStepThatIsKept) {
  for (int64_t step = 1; step <= 6; ++step) CommitStep(*store_, step, step);
  ASSERT_THAT(store_->Pin(2, "before"), IsOk());  // which is no matter
  ASSERT_THAT(store_->Pin(4, "for the paper"), IsOk());
  ASSERT_THAT(store_->Tag(5, "release"), IsOk());
  const ShardIdentity leased = CommitStep(*store_, 7, 7);
  const auto lease = Take(leased);
  const Retention::Discarded refused = Discard(3, {{6, "evaluator 'validation' has not read it yet"}});
  EXPECT_THAT(
      refused.error,
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("the steps after 3 are not discarded"),
                     HasSubstr("step 4 is kept: pinned (for the paper)"), HasSubstr("step 5 is kept: tagged release"),
                     HasSubstr("step 6 is kept: evaluator 'validation' has not read it yet"),
                     HasSubstr("step 7 is kept: leased by worker 1"), testing::Not(HasSubstr("step 2")))));
  EXPECT_THAT(refused.deleted, IsEmpty());
  EXPECT_THAT(Committed(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(RetentionDiscardTest, CountsTheKeptStepsThatItDoesNotName) {
  for (int64_t step = 1; step <= 11; ++step) CommitStep(*store_, step, step);
  for (int64_t step = 2; step <= 11; ++step) ASSERT_THAT(store_->Pin(step, ""), IsOk());
  EXPECT_THAT(Discard(1).error, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("; and 2 more steps")));
}

TEST_F(RetentionDiscardTest, RefusesWhereNoStepWouldRemain) {
  for (const int64_t step : {5, 6}) CommitStep(*store_, step, step);
  const Retention::Discarded refused = Discard(4);
  EXPECT_THAT(refused.error, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no committed step would remain")));
  // The store asks once more, under its lock.
  EXPECT_THAT(store_->NoteSteps({{.step = 6, .attempt = InfoOf(6).attempt, .deleted = true}}, 4),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no committed step would remain")));
  EXPECT_THAT(Committed(), ElementsAre(5, 6));
}

TEST_F(RetentionDiscardTest, StopsBeforeAStepThatIsPinnedMeanwhile) {
  for (int64_t step = 1; step <= 5; ++step) CommitStep(*store_, step, step);
  Retention retention = Make({});
  Retention::Discarded discarded;
  const auto pin = [&] {
    EXPECT_THAT(store_->Pin(3, "by hand"), IsOk());
    return Claims();
  };
  retention.DiscardAfter(1, "went back", pin, &discarded);
  EXPECT_THAT(discarded.error, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("step 3 is pinned")));
  EXPECT_THAT(discarded.deleted, ElementsAre(5, 4));
  EXPECT_THAT(Committed(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Discard(1).error, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("pinned (by hand)")));
}

// Whichever call of a deletion fails, alone or with all after it, the steps up to some number are left, and a call that
// was ok has left none behind `after`.
TEST_F(RetentionDiscardTest, LeavesTheStepsUpToSomeNumberWhicheverCallFails) {
  constexpr int64_t kAfter = 2;
  constexpr int64_t kLast = 6;
  for (const bool all_after : {false, true}) {
    std::set<size_t> left;  // numbers of committed steps
    const DrawnCalls drawn;
    for (size_t call = drawn.first;; call += drawn.stride) {
      SCOPED_TRACE(testing::Message() << "call " << call << (all_after ? " and all after it" : ""));
      ASSERT_LT(call, 300u);
      for (int64_t step = 1; step <= kLast; ++step) {
        const auto record = store_->catalog().Find(step);
        ASSERT_THAT(record, IsOk());
        if (!record->has_value() || (*record)->info.state != StepState::kCommitted) CommitStep(*store_, step, step);
      }
      files_.Reset();
      if (all_after) {
        files_.FailFrom(call, absl::InternalError("EIO"));
      } else {
        files_.FailCall(call, absl::InternalError("EIO"));
      }
      const Retention::Discarded discarded = Discard(kAfter, /*claims=*/{}, /*changes_max=*/2);
      const bool met = files_.calls().size() > call;
      store_.reset();
      files_.Reset();
      Reopen();
      const std::vector<int64_t> committed = Committed();
      for (size_t i = 0; i < committed.size(); ++i) ASSERT_EQ(committed[i], static_cast<int64_t>(i) + 1);
      ASSERT_GE(committed.size(), static_cast<size_t>(kAfter));
      if (discarded.error.ok()) {
        EXPECT_EQ(committed.size(), static_cast<size_t>(kAfter));
      }
      for (const int64_t step : discarded.deleted) EXPECT_GT(step, committed.back());
      for (const int64_t step : committed) EXPECT_EQ(ValueAt(*store_, step), step);
      left.insert(committed.size());
      if (!met) break;
    }
    if (drawn.are_all()) {
      EXPECT_THAT(left, testing::IsSupersetOf({size_t{6}, size_t{4}, size_t{2}}));
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
