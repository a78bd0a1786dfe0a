#include "storage/ranks/statements.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/bytes/frame.h"
#include "storage/bytes/utf8.h"
#include "storage/records/record_bytes.h"

namespace tidemark::storage {
namespace {

// A vote has the version of the record in it.
constexpr FrameKind kVoteFrame = {.magic = "TMKRVOTE", .name = "a vote", .version = 2};
static_assert(kVoteFrame.version == kStepBytesVersion);
constexpr FrameKind kOutcomesFrame = {.magic = "TMKOUTCM", .name = "outcomes"};

constexpr size_t kOutcomeBytesMin = 16 + 8 + 1 + 4;

// UTF-8, and no longer than a reader takes.
std::string ReasonText(std::string_view reason) {
  RecordWriter writer;
  writer.PutText(reason.substr(0, kStatementReasonBytesMax + 1));
  const std::string_view text = writer.view().substr(sizeof(uint32_t));
  size_t end = std::min(text.size(), kStatementReasonBytesMax);
  if (end < text.size()) {
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not within a character
  }
  return std::string(text.substr(0, end));
}

std::string EncodeVote(const RankVote& vote) {
  ByteWriter frame;
  BeginFrame(frame, kVoteFrame);
  frame.PutBytes16(vote.part.session.bytes);
  frame.PutBytes16(vote.part.attempt.bytes);
  frame.Put<int64_t>(vote.part.step);
  frame.Put<uint32_t>(vote.part.rank);
  frame.Put<uint32_t>(vote.part.world_size);
  frame.PutBytes16(vote.part.structure.bytes);
  RecordWriter fields;
  fields.PutBool(vote.yes);
  if (vote.yes) {
    fields.PutStep(vote.record);
  } else {
    fields.PutText(ReasonText(vote.reason));
  }
  frame.PutText(fields.view());
  EndFrame(frame);
  return std::move(frame).Take();
}

void CheckRank(ByteReader& in, uint32_t rank, uint32_t world_size) {
  if (!in.ok()) return;
  if (world_size < 1 || world_size > kWorldSizeMax) {
    in.Fail("world size", 4, fmt::format("1 to {}", kWorldSizeMax), fmt::format("{}", world_size));
  } else if (rank >= world_size) {
    in.FailAt(in.offset() - 8, "rank", fmt::format("less than {}", world_size), fmt::format("{}", rank));
  }
}

// Whether the record is of the vote's attempt, and of a committed step without evaluations and pins.
bool IsRecordOf(const RankPart& part, const StepRecord& record) {
  const StepInfo& info = record.info;
  return info.step == part.step && info.state == StepState::kCommitted && info.attempt == ToHex(part.attempt.bytes) &&
         info.world_size == part.world_size && info.evaluations.empty() && !info.pinned;
}

std::string EncodeOutcomes(const RankOutcomes& outcomes) {
  ByteWriter frame;
  BeginFrame(frame, kOutcomesFrame);
  frame.PutBytes16(outcomes.session.bytes);
  frame.Put<uint32_t>(static_cast<uint32_t>(outcomes.outcomes.size()));
  for (const RankOutcome& outcome : outcomes.outcomes) {
    frame.PutBytes16(outcome.attempt.bytes);
    frame.Put<int64_t>(outcome.step);
    RecordWriter fields;
    fields.PutBool(outcome.committed);
    fields.PutText(ReasonText(outcome.reason));
    frame.PutText(fields.view());
  }
  EndFrame(frame);
  return std::move(frame).Take();
}

}  // namespace

StepRecord MergeVotes(std::span<const RankVote> votes) {
  StepRecord merged = votes[0].record;
  std::set<std::tuple<AttemptId, int64_t, uint32_t, uint32_t>> seen;
  const auto is_new = [&](const FileReference& file) {
    return seen.emplace(file.attempt, file.step, file.rank, file.world_size).second;
  };
  for (const FileReference& file : merged.references) is_new(file);
  for (const RankVote& vote : votes.subspan(1)) {
    const StepInfo& info = vote.record.info;
    merged.info.entry_count += info.entry_count;
    merged.info.logical_bytes += info.logical_bytes;
    merged.info.stored_bytes += info.stored_bytes;
    merged.info.reused_bytes += info.reused_bytes;
    merged.info.blocked = std::max(merged.info.blocked, info.blocked);
    merged.shards.Add(vote.record.shards);
    std::ranges::copy_if(vote.record.references, std::back_inserter(merged.references), is_new);
  }
  return merged;
}

absl::StatusOr<std::string> EncodeRankVote(const RankVote& vote) {
  auto encoded = EncodeAndCheck(fmt::format("the vote of rank {}", vote.part.rank), vote, EncodeVote, DecodeRankVote);
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->bytes);
}

absl::StatusOr<RankVote> DecodeRankVote(std::string_view bytes) {
  constexpr std::string_view kWhat = "vote";
  const auto checked = CheckFrame(kWhat, kVoteFrame, bytes);
  if (!checked.ok()) return checked.status();
  RecordReader reader(*checked, kWhat);
  const uint16_t version = SkipFrame(reader.in());
  RankVote vote;
  vote.part.session = SessionId{reader.in().GetBytes16("session")};
  vote.part.attempt = AttemptId{reader.in().GetBytes16("attempt")};
  vote.part.step = reader.GetStep("step");
  vote.part.rank = reader.in().Get<uint32_t>("rank");
  vote.part.world_size = reader.in().Get<uint32_t>("world size");
  CheckRank(reader.in(), vote.part.rank, vote.part.world_size);
  vote.part.structure = Digest128{reader.in().GetBytes16("structure")};
  vote.yes = reader.GetBool("yes");
  if (vote.yes) {
    const size_t begin = reader.in().offset();
    vote.record = reader.GetStep(version);
    if (reader.ok() && !IsRecordOf(vote.part, vote.record)) {
      reader.in().FailAt(begin, "record", "that of the rank's shard", "another one");
    }
  } else {
    vote.reason = reader.GetText("reason", kStatementReasonBytesMax);
  }
  reader.in().ExpectEnd();
  if (!reader.ok()) return reader.status();
  return vote;
}

absl::StatusOr<std::string> EncodeRankOutcomes(const RankOutcomes& outcomes) {
  auto encoded = EncodeAndCheck("the list of outcomes", outcomes, EncodeOutcomes, DecodeRankOutcomes);
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->bytes);
}

absl::StatusOr<RankOutcomes> DecodeRankOutcomes(std::string_view bytes) {
  constexpr std::string_view kWhat = "outcomes";
  const auto checked = CheckFrame(kWhat, kOutcomesFrame, bytes);
  if (!checked.ok()) return checked.status();
  RecordReader reader(*checked, kWhat);
  SkipFrame(reader.in());
  RankOutcomes outcomes;
  outcomes.session = SessionId{reader.in().GetBytes16("session")};
  const uint32_t count = reader.GetCount(kOutcomeBytesMin, "count of outcomes");
  if (count > kOutcomesKept) {
    reader.in().Fail("count of outcomes", 4, fmt::format("at most {}", kOutcomesKept), fmt::format("{}", count));
  }
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    RankOutcome& outcome = outcomes.outcomes.emplace_back();
    outcome.attempt = AttemptId{reader.in().GetBytes16("attempt")};
    outcome.step = reader.GetStep("step");
    outcome.committed = reader.GetBool("committed");
    const size_t begin = reader.in().offset();
    outcome.reason = reader.GetText("reason", kStatementReasonBytesMax);
    if (outcome.committed && !outcome.reason.empty()) {
      reader.in().FailAt(begin, "reason", "none, since the attempt is committed", "one");
    }
  }
  reader.in().ExpectEnd();
  if (!reader.ok()) return reader.status();
  return outcomes;
}

}  // namespace tidemark::storage
