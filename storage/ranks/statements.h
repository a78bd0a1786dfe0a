// What the ranks of a job tell each other about an attempt that they save together: votes and outcomes, as structs and
// pure functions between them and bytes. No I/O.
//
// A statement is true for good once it is made. So it may be read late, twice, in an old version, or never, and it is
// not synced. What must survive is in the journal.

#ifndef TIDEMARK_STORAGE_RANKS_STATEMENTS_H_
#define TIDEMARK_STORAGE_RANKS_STATEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {

inline constexpr uint32_t kWorldSizeMax = 1 << 20;        // the longest list of ranks that a reader takes
inline constexpr size_t kStatementReasonBytesMax = 4096;  // a longer reason is cut
inline constexpr size_t kStatementBytesMax = 64 << 20;    // a longer file is no statement
inline constexpr size_t kOutcomesKept = 64;               // a rank that is later finds no outcome, only the journal

// One rank's part of an attempt that several ranks save. Every rank knows its own without a message.
struct RankPart {
  SessionId session;
  AttemptId attempt;  // MakeAttemptId: the epoch, and the ordinal of the save in it
  int64_t step = 0;
  uint32_t rank = 0;  // < world_size
  uint32_t world_size = 1;
  // Of the entries that one rank writes for all (ReplicatedEntries::structure). Of a vote that is a no it does not
  // count.
  Digest128 structure;

  friend bool operator==(const RankPart&, const RankPart&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RankPart& part) {
    return H::combine(std::move(h), part.session.bytes, part.attempt.bytes, part.step, part.rank, part.world_size,
                      part.structure.bytes);
  }
};

// A rank states that its shard survives power loss, or that it will never be part of a commit.
struct RankVote {
  RankPart part;
  bool yes = false;
  // Of a yes: the record of the step as if this rank alone had saved it, with its shard and what that refers to.
  StepRecord record;
  std::string reason;  // of a no; UTF-8

  template <typename H>
  friend H AbslHashValue(H h, const RankVote& vote) {
    return H::combine(std::move(h), vote.part, vote.yes, vote.reason);
  }
};

// The record of the whole step. Metrics, metadata and times are those of the first vote. Precondition: one vote of each
// rank, all of them yes, in the order of the ranks.
StepRecord MergeVotes(std::span<const RankVote> votes);

// The coordinator states that an attempt is committed, or that it never will be.
struct RankOutcome {
  AttemptId attempt;
  int64_t step = 0;
  bool committed = false;
  std::string reason;  // of an abort; names the rank; UTF-8

  friend bool operator==(const RankOutcome&, const RankOutcome&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RankOutcome& outcome) {
    return H::combine(std::move(h), outcome.attempt.bytes, outcome.step, outcome.committed, outcome.reason);
  }
};

// What the coordinator says last: its outcomes, the newest last, kOutcomesKept at most.
struct RankOutcomes {
  SessionId session;
  std::vector<RankOutcome> outcomes;

  friend bool operator==(const RankOutcomes&, const RankOutcomes&) = default;
};

// A reason is cut at kStatementReasonBytesMax, and what is not UTF-8 in it is replaced. kInvalidArgument: a reader
// would refuse the bytes.
absl::StatusOr<std::string> EncodeRankVote(const RankVote& vote);
absl::StatusOr<std::string> EncodeRankOutcomes(const RankOutcomes& outcomes);

// kDataLoss: not such bytes, or not as they were written; the message says what is wrong, and at what offset.
// kUnimplemented: of a newer version. They take no more memory than a small multiple of `bytes`.
absl::StatusOr<RankVote> DecodeRankVote(std::string_view bytes);
absl::StatusOr<RankOutcomes> DecodeRankOutcomes(std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_STATEMENTS_H_
