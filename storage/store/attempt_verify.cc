#include "storage/store/attempt_verify.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// Those that have a shard, and the first ones that have none.
std::vector<uint32_t> RanksToLookAt(const std::vector<uint32_t>& there, uint32_t world_size) {
  std::vector<uint32_t> ranks;
  auto next = there.begin();
  size_t missing = 0;
  for (uint32_t rank = 0; rank < world_size && missing < kMissingShardsListedMax; ++rank) {
    if (next != there.end() && *next == rank) {
      ++next;
    } else {
      ++missing;
    }
    ranks.push_back(rank);
  }
  ranks.insert(ranks.end(), next, there.end());
  return ranks;
}

}  // namespace

bool AttemptVerification::restorable() const {
  return std::ranges::all_of(damage, [](const ShardDamage& place) { return place.unused; });
}

absl::StatusOr<AttemptVerification> VerifyAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                                  const StepRecord& record, const AttemptVerifyOptions& options) {
  const StepInfo& info = record.info;
  const StepFolder folder{info.step, AttemptId{*FromHex(info.attempt)}};
  const std::string path = layout.attempt(folder.step, folder.attempt);
  const absl::StatusOr<std::vector<uint32_t>> there = FindRanks(files, layout, folder, info.world_size);
  if (!there.ok()) return there.status();
  const size_t missing = info.world_size - there->size();
  AttemptVerification attempt;
  for (const uint32_t rank : RanksToLookAt(*there, info.world_size)) {
    const ShardIdentity identity{.store = store,
                                 .step = info.step,
                                 .attempt = folder.attempt,
                                 .sequence = info.sequence,
                                 .rank = rank,
                                 .world_size = info.world_size};
    absl::StatusOr<ShardVerification> shard =
        VerifyShard(files, layout.shard(info.step, folder.attempt, rank, info.world_size), layout.steps(), &identity,
                    options.read, options.progress, options.sample, options.cancelled);
    if (!shard.ok()) return shard.status();
    attempt.bytes_read += shard->bytes_read;
    attempt.chunks += shard->chunks;
    attempt.chunks_total += shard->chunks_total;
    std::ranges::move(shard->damage, std::back_inserter(attempt.damage));
  }
  if (missing > kMissingShardsListedMax) {
    attempt.damage.push_back(
        {.path = path, .what = fmt::format("{} of its {} shards are missing", missing, info.world_size)});
  }
  if (!attempt.restorable()) return attempt;
  // Sound in themselves, and yet not what was committed: shards that were put in their place.
  const absl::StatusOr<StepRecord> found = ReadAttemptRecord(files, layout, store, folder);
  absl::Status status = found.status();
  if (found.ok()) status = CheckShards(*found, record, path);
  if (status.ok()) return attempt;
  if (!IsMissingOrDamaged(status)) return status;
  attempt.damage.insert(attempt.damage.begin(), {.path = path, .what = std::string(status.message())});
  return attempt;
}

absl::Status CheckAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store, const StepRecord& record,
                          const AttemptVerifyOptions& options) {
  const absl::StatusOr<AttemptVerification> verified = VerifyAttempt(files, layout, store, record, options);
  if (!verified.ok()) return verified.status();
  for (const ShardDamage& damage : verified->damage) {
    if (!damage.unused) return absl::DataLossError(damage.what);
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
