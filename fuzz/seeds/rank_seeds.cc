#include "fuzz/seeds/seed_lists.h"
#include "storage/ranks/statements.h"

namespace tidemark::fuzz {

// The first byte says which of the two it is, and that the checksum is made right.
std::map<std::string, std::string> RankSeeds() {
  std::map<std::string, std::string> seeds;
  const auto without_checksum = [](char form, std::string bytes) {
    bytes.resize(bytes.size() - sizeof(uint64_t));
    return std::string(1, form) + bytes;
  };
  storage::RankVote yes;
  yes.part = {.attempt = storage::MakeAttemptId(3, 11 << 16 | 1), .step = 10, .rank = 1, .world_size = 2};
  yes.yes = true;
  yes.record.info.step = 10;
  yes.record.info.attempt = storage::ToHex(yes.part.attempt.bytes);
  yes.record.info.world_size = 2;
  yes.record.info.metrics = {{"loss", 0.5}};
  yes.record.shards.Add(1, 8192, {});
  yes.record.references = {{.step = 5, .attempt = storage::MakeAttemptId(3, 6 << 16 | 1), .rank = 1, .world_size = 2}};
  seeds["rank_statement/yes"] = without_checksum('\0', EncodeRankVote(yes).value());
  storage::RankVote only = yes;
  only.part.rank = 0;
  only.part.world_size = only.record.info.world_size = 1;
  seeds["rank_statement/only"] = without_checksum('\0', EncodeRankVote(only).value());
  const storage::RankVote no = {.part = yes.part, .reason = "the disk is full"};
  seeds["rank_statement/no"] = without_checksum('\0', EncodeRankVote(no).value());
  const storage::RankOutcomes outcomes = {
      .outcomes = {{.attempt = yes.part.attempt, .step = 10, .committed = true},
                   {.attempt = yes.part.attempt, .step = 10, .reason = "rank 1: the disk is full"}}};
  seeds["rank_statement/outcomes"] = without_checksum('\1', EncodeRankOutcomes(outcomes).value());
  seeds["rank_statement/no_outcomes"] = without_checksum('\1', storage::EncodeRankOutcomes({}).value());
  return seeds;
}

}  // namespace tidemark::fuzz
