#include "storage/ranks/statements.h"

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/utf8.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

RankPart SomePart() {
  return {.session = SessionId{{1, 2, 3}},
          .attempt = MakeAttemptId(7, 42),
          .step = 1000,
          .rank = 3,
          .world_size = 8,
          .structure = Digest128{{9}}};
}

RankVote SomeYes(uint32_t rank = 3) {
  RankVote vote{.part = SomePart(), .yes = true};
  vote.part.rank = rank;
  StepInfo& info = vote.record.info;
  info.step = vote.part.step;
  info.attempt = ToHex(vote.part.attempt.bytes);
  info.sequence = 12;
  info.world_size = vote.part.world_size;
  info.metrics = {{"loss", 0.5 + rank}};
  info.entry_count = 2;
  info.logical_bytes = 200;
  info.stored_bytes = 100 + rank;
  info.reused_bytes = 10;
  info.blocked = absl::Milliseconds(rank);
  vote.record.shards.Add(rank, 123456, Digest128{{4, 5}});
  vote.record.references = {{.step = 900, .attempt = MakeAttemptId(7, 41), .rank = rank, .world_size = 8},
                            {.step = 10, .attempt = MakeAttemptId(2, 1), .rank = 0, .world_size = 2}};
  return vote;
}

RankVote SomeNo() { return {.part = SomePart(), .reason = "RESOURCE_EXHAUSTED: the disk is full"}; }

RankOutcomes SomeOutcomes() {
  return {.session = SessionId{{1, 2, 3}},
          .outcomes = {{.attempt = MakeAttemptId(7, 41), .step = 900, .committed = true},
                       {.attempt = MakeAttemptId(7, 42), .step = 1000, .reason = "rank 3: the disk is full"}}};
}

void RepairChecksum(std::string& bytes) {
  const uint64_t checksum = ChecksumOf(AsBytes(std::string_view(bytes).substr(0, bytes.size() - 8)));
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, 8);
}

TEST(StatementsTest, SurviveEncodingExactly) {
  for (const RankVote& vote : {SomeYes(), SomeNo()}) {
    const auto bytes = EncodeRankVote(vote);
    ASSERT_THAT(bytes, IsOk());
    const auto decoded = DecodeRankVote(*bytes);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->part, vote.part);
    EXPECT_EQ(decoded->yes, vote.yes);
    EXPECT_EQ(decoded->reason, vote.reason);
    EXPECT_EQ(decoded->record.info.metrics, vote.record.info.metrics);
    EXPECT_EQ(decoded->record.shards, vote.record.shards);
    EXPECT_EQ(decoded->record.references, vote.record.references);
    EXPECT_EQ(*EncodeRankVote(*decoded), *bytes);
  }
  for (const RankOutcomes& outcomes : {SomeOutcomes(), RankOutcomes()}) {
    const auto bytes = EncodeRankOutcomes(outcomes);
    ASSERT_THAT(bytes, IsOk());
    const auto decoded = DecodeRankOutcomes(*bytes);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(*decoded, outcomes);
  }
}

TEST(StatementsTest, AVoteIsSmall) { EXPECT_LT(EncodeRankVote(SomeYes())->size(), 512u); }

TEST(StatementsTest, VotesAreMergedIntoTheRecordOfTheStep) {
  const std::vector<RankVote> votes = {SomeYes(0), SomeYes(1), SomeYes(2)};
  const StepRecord merged = MergeVotes(votes);
  EXPECT_EQ(merged.info.metrics, (Metrics{{"loss", 0.5}}));
  EXPECT_EQ(merged.info.entry_count, 6u);
  EXPECT_EQ(merged.info.logical_bytes, 600u);
  EXPECT_EQ(merged.info.stored_bytes, 303u);
  EXPECT_EQ(merged.info.reused_bytes, 30u);
  EXPECT_EQ(merged.info.blocked, absl::Milliseconds(2));
  EXPECT_EQ(merged.info.world_size, 8u);
  ShardsDigest shards;
  for (uint32_t rank = 0; rank < 3; ++rank) shards.Add(rank, 123456, Digest128{{4, 5}});
  EXPECT_EQ(merged.shards, shards);
  EXPECT_EQ(merged.references.size(), 4u);  // the one that all of them have counts once
}

struct Form {
  std::string bytes;
  std::function<absl::Status(std::string_view)> decode;
};

std::vector<Form> AllForms() {
  const auto vote = [](std::string_view bytes) { return DecodeRankVote(bytes).status(); };
  const auto outcomes = [](std::string_view bytes) { return DecodeRankOutcomes(bytes).status(); };
  return {{*EncodeRankVote(SomeYes()), vote},
          {*EncodeRankVote(SomeNo()), vote},
          {*EncodeRankOutcomes(SomeOutcomes()), outcomes}};
}

TEST(StatementsTest, EveryChangedByteAndEveryLengthIsDamage) {
  for (const Form& form : AllForms()) {
    for (size_t i = 0; i < form.bytes.size(); ++i) {
      std::string changed = form.bytes;
      changed[i] = static_cast<char>(changed[i] ^ 0x21);
      EXPECT_TRUE(absl::IsDataLoss(form.decode(changed))) << i;
      EXPECT_TRUE(absl::IsDataLoss(form.decode(form.bytes.substr(0, i)))) << i;
    }
    EXPECT_TRUE(absl::IsDataLoss(form.decode(form.bytes + '\0')));
  }
}

// Version 1 has a list of shards in the place of their digest.
TEST(StatementsTest, AVoteOfVersion1IsRead) {
  constexpr size_t kReferencesBytes = sizeof(uint32_t) + 2 * 32, kDigestBytes = 16, kChecksumBytes = 8;
  const RankVote vote = SomeYes();
  std::string bytes = *EncodeRankVote(vote);
  bytes[8] = 1;
  ByteWriter shards;
  shards.Put<uint32_t>(1);
  shards.Put<uint32_t>(vote.part.rank);
  shards.Put<uint64_t>(123456);
  shards.PutBytes16({4, 5});
  bytes.replace(bytes.size() - kChecksumBytes - kReferencesBytes - kDigestBytes, kDigestBytes, shards.view());
  RepairChecksum(bytes);
  const absl::StatusOr<RankVote> decoded = DecodeRankVote(bytes);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*EncodeRankVote(*decoded), *EncodeRankVote(vote));
}

TEST(StatementsTest, ANewerVersionIsNotDamage) {
  for (Form& form : AllForms()) {
    form.bytes[8] = 3;
    RepairChecksum(form.bytes);
    EXPECT_THAT(form.decode(form.bytes), StatusIs(StatusCode::kUnimplemented, HasSubstr("version 3")));
  }
}

TEST(StatementsTest, WhatIsWrongBehindARightChecksumIsNamed) {
  const auto patched = [](std::string bytes, size_t offset, std::string_view with) {
    bytes.replace(offset, with.size(), with);
    RepairChecksum(bytes);
    return bytes;
  };
  const std::string yes = *EncodeRankVote(SomeYes());
  const std::string no = *EncodeRankVote(SomeNo());
  const std::string outcomes = *EncodeRankOutcomes(SomeOutcomes());
  using std::string_literals::operator""s;
  constexpr size_t kStep = 10 + 16 + 16, kRank = kStep + 8, kWorld = kRank + 4, kYes = kWorld + 4 + 16;
  EXPECT_THAT(DecodeRankVote(patched(yes, kStep + 7, "\x80")), StatusIs(StatusCode::kDataLoss, HasSubstr("step")));
  EXPECT_THAT(DecodeRankVote(patched(yes, kRank, "\x08")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("rank at byte 50: expected less than 8, found 8")));
  EXPECT_THAT(DecodeRankVote(patched(yes, kWorld, "\0"s)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("world size at byte 54: expected 1 to")));
  EXPECT_THAT(DecodeRankVote(patched(yes, kWorld, "\x01\x00\x10"s)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("world size")));
  EXPECT_THAT(DecodeRankVote(patched(yes, kYes, "\x02")), StatusIs(StatusCode::kDataLoss, HasSubstr("yes")));
  EXPECT_THAT(DecodeRankVote(patched(no, kYes + 5, "\xff")), StatusIs(StatusCode::kDataLoss, HasSubstr("reason")));
  constexpr size_t kCount = 10 + 16, kFirst = kCount + 4, kCommitted = kFirst + 16 + 8;
  EXPECT_THAT(DecodeRankOutcomes(patched(outcomes, kCount, "\x41")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("count of outcomes")));
  EXPECT_THAT(DecodeRankOutcomes(patched(outcomes, kCommitted + 5 + 24, "\x01")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("reason")));
}

TEST(StatementsTest, WhatNoReaderTakesIsNotWritten) {
  RankVote vote = SomeYes();
  vote.part.rank = 8;
  EXPECT_THAT(EncodeRankVote(vote), StatusIs(StatusCode::kInvalidArgument, HasSubstr("the vote of rank 8")));
  const auto refuses = [](const std::function<void(StepRecord&)>& change) {
    RankVote changed = SomeYes();
    change(changed.record);
    EXPECT_THAT(EncodeRankVote(changed), StatusIs(StatusCode::kInvalidArgument, HasSubstr("that of the rank's shard")));
  };
  refuses([](StepRecord& record) { record.info.step = 1; });
  refuses([](StepRecord& record) { record.info.attempt = ToHex(MakeAttemptId(1, 1).bytes); });
  refuses([](StepRecord& record) { record.info.world_size = 4; });
  refuses([](StepRecord& record) { record.info.state = StepState::kDamaged; });
  refuses([](StepRecord& record) { record.info.pinned = true; });
  RankOutcomes outcomes;
  outcomes.outcomes.resize(kOutcomesKept + 1);
  EXPECT_THAT(EncodeRankOutcomes(outcomes), StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 64")));
}

TEST(StatementsTest, ALongReasonIsCutBetweenCharacters) {
  RankVote vote = SomeNo();
  vote.reason = std::string(kStatementReasonBytesMax - 1, 'a') + "\u00e4b";
  const auto decoded = DecodeRankVote(*EncodeRankVote(vote));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->reason, std::string(kStatementReasonBytesMax - 1, 'a'));
  vote.reason = "not \xff UTF-8";
  EXPECT_TRUE(IsUtf8(DecodeRankVote(*EncodeRankVote(vote))->reason));
  // Text that was replaced has more bytes than before, and is cut after that.
  vote.reason = std::string(kStatementReasonBytesMax, '\xff');
  const auto replaced = DecodeRankVote(*EncodeRankVote(vote));
  ASSERT_THAT(replaced, IsOk());
  EXPECT_LE(replaced->reason.size(), kStatementReasonBytesMax);
}

}  // namespace
}  // namespace tidemark::storage
