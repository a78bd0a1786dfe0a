// What a participant and a coordinator tell, and why. That no order of events breaks a promise is for the exploration.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/ranks/coordinator.h"
#include "storage/ranks/participant.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using Result = Appender::Result;

RankPart PartOf(uint32_t rank, uint32_t world_size = 3) {
  return {.attempt = MakeAttemptId(5, 1), .step = 100, .rank = rank, .world_size = world_size};
}
RankVote YesOf(uint32_t rank, uint32_t world_size = 3) { return {.part = PartOf(rank, world_size), .yes = true}; }

Participant Waiting() {
  Participant participant(PartOf(1));
  participant.Written(StepRecord());
  participant.Voted();
  EXPECT_EQ(participant.step(), Participant::Step::kWait);
  return participant;
}

TEST(ParticipantTest, StatesItsRecordInItsVote) {
  Participant participant(PartOf(1));
  StepRecord record;
  record.info.stored_bytes = 4096;
  participant.Written(record);
  EXPECT_TRUE(participant.vote().yes);
  EXPECT_EQ(participant.vote().part, PartOf(1));
  EXPECT_EQ(participant.vote().record.info.stored_bytes, 4096u);
}

TEST(ParticipantTest, ARankThatFailsKnowsAtOnceThatTheStepIsAborted) {
  Participant participant(PartOf(1));
  participant.Written(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_FALSE(participant.vote().yes);
  EXPECT_EQ(participant.Voted(), Participant::Step::kNone);
  EXPECT_EQ(participant.result(), Participant::Result::kAborted);
  EXPECT_EQ(participant.reason(), "rank 1: RESOURCE_EXHAUSTED: the disk is full");
}

TEST(ParticipantTest, AWritingThatTakesTooLongIsANo) {
  Participant participant(PartOf(1));
  EXPECT_EQ(participant.Expire(), Participant::Step::kVote);
  EXPECT_FALSE(participant.vote().yes);
  EXPECT_EQ(participant.Expire(), Participant::Step::kVote);  // it is still to be stated
  participant.Voted();
  EXPECT_EQ(participant.result(), Participant::Result::kAborted);
  EXPECT_THAT(participant.reason(), HasSubstr("was not durable at the deadline"));
}

TEST(ParticipantTest, TakesTheOutcomeOfItsAttemptOnly) {
  Participant participant = Waiting();
  EXPECT_EQ(participant.Hear({.attempt = MakeAttemptId(5, 2), .committed = true}), Participant::Step::kWait);
  EXPECT_EQ(participant.Hear({.attempt = MakeAttemptId(4, 1), .committed = true}), Participant::Step::kWait);
  EXPECT_EQ(participant.Hear({.attempt = MakeAttemptId(5, 1), .reason = "rank 2: full"}), Participant::Step::kNone);
  EXPECT_EQ(participant.result(), Participant::Result::kAborted);
  EXPECT_EQ(participant.reason(), "rank 2: full");
  participant.Hear({.attempt = MakeAttemptId(5, 1), .committed = true});
  EXPECT_EQ(participant.result(), Participant::Result::kAborted);
}

TEST(ParticipantTest, StopsWritingWhenTheStepIsAborted) {
  Participant participant(PartOf(1));
  participant.Hear({.attempt = MakeAttemptId(5, 1), .reason = "rank 2: full"});
  EXPECT_EQ(participant.result(), Participant::Result::kAborted);
}

TEST(ParticipantTest, TheJournalSaysWhatTheCoordinatorDoesNot) {
  Participant committed = Waiting();
  EXPECT_EQ(committed.Look({.epoch = 5}), Participant::Step::kWait);
  committed.Look({.committed = true, .epoch = 6});
  EXPECT_EQ(committed.result(), Participant::Result::kCommitted);
  Participant aborted = Waiting();
  aborted.Look({.epoch = 6});
  EXPECT_EQ(aborted.result(), Participant::Result::kAborted);
  EXPECT_THAT(aborted.reason(), HasSubstr("its epoch is 6, the attempt's is 5"));
}

TEST(ParticipantTest, LooksOnceMoreAtItsDeadline) {
  Participant unknown = Waiting();
  EXPECT_EQ(unknown.Expire(), Participant::Step::kSettle);
  EXPECT_EQ(unknown.Expire(), Participant::Step::kSettle);
  unknown.Settled({.epoch = 5});
  EXPECT_EQ(unknown.result(), Participant::Result::kUnknown);
  Participant committed = Waiting();
  committed.Expire();
  committed.Settled({.committed = true, .epoch = 5});
  EXPECT_EQ(committed.result(), Participant::Result::kCommitted);
}

TEST(CoordinatorTest, CommitsWithTheVoteOfEveryRank) {
  Coordinator coordinator(PartOf(0));
  coordinator.Hear(YesOf(2));
  coordinator.Hear(YesOf(2));
  EXPECT_EQ(coordinator.Hear(YesOf(0)), Coordinator::Step::kCollect);
  EXPECT_EQ(coordinator.Hear(YesOf(1)), Coordinator::Step::kAppend);
  EXPECT_EQ(coordinator.Expire(), Coordinator::Step::kAppend);
  EXPECT_EQ(coordinator.Appended(Result::kEstablished, absl::OkStatus()), Coordinator::Step::kNone);
  EXPECT_EQ(coordinator.outcome(), (RankOutcome{.attempt = MakeAttemptId(5, 1), .step = 100, .committed = true}));
}

TEST(CoordinatorTest, ANoNamesItsRank) {
  Coordinator coordinator(PartOf(0));
  coordinator.Hear({.part = PartOf(2), .reason = "the disk is full"});
  EXPECT_FALSE(coordinator.outcome().committed);
  EXPECT_EQ(coordinator.outcome().reason, "rank 2: the disk is full");
}

TEST(CoordinatorTest, TheDeadlineNamesWhoIsMissing) {
  Coordinator two(PartOf(0));
  two.Hear(YesOf(1));
  two.Expire();
  EXPECT_EQ(two.outcome().reason, "no vote of ranks 0, 2 came before the deadline");
  Coordinator one(PartOf(0));
  one.Hear(YesOf(0));
  one.Hear(YesOf(1));
  one.Expire();
  EXPECT_EQ(one.outcome().reason, "no vote of rank 2 came before the deadline");
  Coordinator many(PartOf(0, 100));
  many.Hear(YesOf(3, 100));
  many.Expire();
  EXPECT_EQ(many.outcome().reason, "no vote of ranks 0, 1, 2, 4, 5, 6, 7, 8 and 91 more came before the deadline");
}

TEST(CoordinatorTest, TheDeadlineNamesTheStepThatAMissingRankIsAt) {
  Coordinator coordinator(PartOf(0, 2));
  RankVote elsewhere = YesOf(1, 2);
  elsewhere.part.attempt = MakeAttemptId(5, 2);
  elsewhere.part.step = 200;
  coordinator.Hear(YesOf(0, 2));
  coordinator.Hear(elsewhere);
  coordinator.Expire();
  EXPECT_EQ(coordinator.outcome().reason, "no vote of rank 1 (which has voted on step 200) came before the deadline");
}

TEST(CoordinatorTest, RanksThatDisagreeAreNamed) {
  const auto reason_for = [](RankPart other) {
    Coordinator coordinator(PartOf(0));
    coordinator.Hear({.part = other, .yes = true});
    return coordinator.outcome().reason;
  };
  RankPart other = PartOf(2);
  other.structure = Digest128{{1}};
  EXPECT_THAT(reason_for(other), HasSubstr("rank 2 and rank 0 differ in the entries that match"));
  EXPECT_THAT(reason_for(PartOf(3, 4)), HasSubstr("rank 3 is one of 4 ranks, rank 0 one of 3"));
}

// It could not begin, and knows none.
TEST(CoordinatorTest, TheReasonOfANoCountsWhateverItsStructure) {
  Coordinator coordinator(PartOf(0));
  RankVote no{.part = PartOf(2), .reason = "its disk is full"};
  no.part.structure = Digest128{{1}};
  coordinator.Hear(no);
  EXPECT_EQ(coordinator.outcome().reason, "rank 2: its disk is full");
}

TEST(CoordinatorTest, VotesOfOtherAttemptsAndSessionsAreNotHeard) {
  Coordinator coordinator(PartOf(0));
  RankVote other{.part = PartOf(1), .reason = "no"};
  other.part.attempt = MakeAttemptId(5, 0);
  coordinator.Hear(other);
  other = {.part = PartOf(1), .reason = "no"};
  other.part.session = SessionId{{1}};
  EXPECT_EQ(coordinator.Hear(other), Coordinator::Step::kCollect);
}

TEST(CoordinatorTest, StatesNothingWhileTheAppendIsUnknown) {
  for (const bool committed : {false, true}) {
    Coordinator coordinator(PartOf(0, 1));
    coordinator.Hear(YesOf(0, 1));
    EXPECT_EQ(coordinator.Appended(Result::kUnknown, absl::InternalError("EIO")), Coordinator::Step::kSettle);
    EXPECT_EQ(coordinator.Expire(), Coordinator::Step::kSettle);
    EXPECT_EQ(coordinator.Settled(committed), Coordinator::Step::kNone);
    EXPECT_EQ(coordinator.outcome().committed, committed);
  }
}

TEST(CoordinatorTest, AnAppendThatWasRefusedOrFailedIsAnAbort) {
  for (const Result result : {Result::kRefused, Result::kFailed}) {
    Coordinator coordinator(PartOf(0, 1));
    coordinator.Hear(YesOf(0, 1));
    coordinator.Appended(result, absl::AbortedError("epoch 6 has begun"));
    EXPECT_FALSE(coordinator.outcome().committed);
    EXPECT_THAT(coordinator.outcome().reason, HasSubstr("epoch 6 has begun"));
  }
}

}  // namespace
}  // namespace tidemark::storage
