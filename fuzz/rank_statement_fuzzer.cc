// What ranks state: a vote or a list of outcomes, as the first byte of the input says. That byte also says whether the
// checksum at the end is made right, or is what the input says.

#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/bytes/frame.h"
#include "storage/bytes/ids.h"
#include "storage/ranks/coordinator.h"
#include "storage/ranks/statements.h"

namespace tidemark::fuzz {
namespace {

void RequireNamedError(const absl::Status& status) {
  Require(absl::IsDataLoss(status) || absl::IsUnimplemented(status),
          "a statement is refused for another reason than damage or a newer version");
}

void TryVote(const std::string& bytes) {
  const absl::StatusOr<storage::RankVote> vote = storage::DecodeRankVote(bytes);
  if (!vote.ok()) return RequireNamedError(vote.status());
  const absl::StatusOr<std::string> written = storage::EncodeRankVote(*vote);
  Require(written.ok(), "a vote that was read cannot be written");
  if (bytes[storage::kFrameMagicBytes] == (*written)[storage::kFrameMagicBytes]) {
    Require(*written == bytes, "a vote is not what it was once it is written");
  } else {
    const absl::StatusOr<storage::RankVote> again = storage::DecodeRankVote(*written);
    Require(again.ok() && storage::EncodeRankVote(*again) == written, "a vote of an older version changes twice");
  }
  // A coordinator has a place for each rank, which a small input is not to pay for.
  if (vote->part.world_size > 1024) return;
  storage::Coordinator coordinator(vote->part);
  const auto step = coordinator.Hear(*vote);
  if (!vote->yes) {
    Require(step == storage::Coordinator::Step::kNone && !coordinator.outcome().committed, "a no is no abort");
  } else if (vote->part.world_size == 1) {
    Require(step == storage::Coordinator::Step::kAppend, "the only vote is not enough");
    Require(coordinator.Merged().shards == vote->record.shards, "the record of the step has not the vote's shard");
  }
}

void TryOutcomes(const std::string& bytes) {
  const absl::StatusOr<storage::RankOutcomes> outcomes = storage::DecodeRankOutcomes(bytes);
  if (!outcomes.ok()) return RequireNamedError(outcomes.status());
  const absl::StatusOr<std::string> written = storage::EncodeRankOutcomes(*outcomes);
  Require(written.ok() && *written == bytes, "a list of outcomes is not what it was once it is written");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  fuzz::FuzzInput in(data, size);
  const auto form = in.Take<uint8_t>();
  std::string bytes(in.TakeRest());
  if ((form & 2) == 0) {
    const uint64_t checksum = storage::ChecksumOf(fuzz::AsBytes(bytes));
    bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  const bool is_vote = (form & 1) == 0;
  const fuzz::AllocationBudget budget(size);
  is_vote ? fuzz::TryVote(bytes) : fuzz::TryOutcomes(bytes);
  return 0;
}
