#include "storage/ranks/rank_board.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class RankBoardTest : public testing::Test {
 protected:
  RankBoardTest() { EXPECT_THAT(disk_.CreateDirectory("/store"), IsOk()); }

  RankBoard Board(uint32_t rank) { return RankBoard(disk_, layout_, session_, rank); }
  static RankVote VoteOf(uint32_t rank, std::string reason) {
    return {.part = {.rank = rank, .world_size = 2}, .reason = std::move(reason)};
  }

  SimulatedDisk disk_;
  const StoreLayout layout_{"/store"};
  const SessionId session_{{7}};
};

TEST_F(RankBoardTest, HasTheLastStatementOfEachRank) {
  RankBoard zero = Board(0), one = Board(1);
  ASSERT_THAT(zero.Open(), IsOk());
  ASSERT_THAT(one.Open(), IsOk());
  EXPECT_EQ(zero.ReadVote(1)->has_value(), false);
  EXPECT_EQ(one.ReadOutcomes()->has_value(), false);
  for (const char* reason : {"first", "second"}) {
    ASSERT_THAT(one.StateVote(VoteOf(1, reason)), IsOk());
    EXPECT_EQ((*zero.ReadVote(1))->reason, reason);
  }
  ASSERT_THAT(zero.StateOutcomes({.session = session_, .outcomes = {{.step = 10, .committed = true}}}), IsOk());
  EXPECT_EQ((*one.ReadOutcomes())->outcomes.at(0).step, 10);
  EXPECT_EQ(zero.ReadRefusals(1)->has_value(), false);
  ASSERT_THAT(one.StateRefusals({.session = session_, .outcomes = {{.step = 20, .reason = "EIO"}}}), IsOk());
  EXPECT_EQ((*zero.ReadRefusals(1))->outcomes.at(0).reason, "EIO");
}

TEST_F(RankBoardTest, APlaceIsTakenOnce) {
  ASSERT_THAT(Board(1).Open(), IsOk());
  EXPECT_THAT(Board(1).Open(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 1 takes part already")));
  EXPECT_THAT(Board(0).Open(), IsOk());
}

TEST_F(RankBoardTest, NamesAFileThatIsNoStatement) {
  const RankBoard zero = Board(0);
  ASSERT_THAT(Board(0).Open(), IsOk());
  const std::string folder = layout_.ranks(session_);
  PutFile(disk_, folder + "/vote-00001", "damaged");
  EXPECT_THAT(zero.ReadVote(1), StatusIs(StatusCode::kDataLoss, HasSubstr(folder + "/vote-00001: vote: 7 bytes")));
  PutFile(disk_, folder + "/vote-00001", *EncodeRankVote(VoteOf(0, "no")));
  EXPECT_THAT(zero.ReadVote(1), StatusIs(StatusCode::kDataLoss, HasSubstr("the vote is that of rank 0")));
  PutFile(disk_, folder + "/outcomes", "damaged");
  EXPECT_THAT(zero.ReadOutcomes(), StatusIs(StatusCode::kDataLoss, HasSubstr("/outcomes: outcomes: 7 bytes")));
  PutFile(disk_, folder + "/refused-00001", "damaged");
  EXPECT_THAT(zero.ReadRefusals(1), StatusIs(StatusCode::kDataLoss, HasSubstr("/refused-00001: outcomes: 7 bytes")));
}

TEST_F(RankBoardTest, RemovesOtherSessionsOnly) {
  RankBoard own = Board(0);
  RankBoard other(disk_, layout_, SessionId{{8}}, 0);
  ASSERT_THAT(own.Open(), IsOk());
  ASSERT_THAT(other.Open(), IsOk());
  own.RemoveOtherSessions();
  const auto sessions = disk_.ListDirectory(layout_.ranks());
  ASSERT_EQ(sessions->size(), 1u);
  EXPECT_THAT(own.StateVote(VoteOf(0, "still there")), IsOk());
}

TEST_F(RankBoardTest, ADraftThatWasLeftIsReplaced) {
  RankBoard zero = Board(0);
  ASSERT_THAT(zero.Open(), IsOk());
  PutFile(disk_, layout_.ranks(session_) + "/new-00000", "of an earlier call");
  EXPECT_THAT(zero.StateVote(VoteOf(0, "no")), IsOk());
  EXPECT_EQ((*zero.ReadVote(0))->reason, "no");
}

}  // namespace
}  // namespace tidemark::storage
