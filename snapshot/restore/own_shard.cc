#include "snapshot/restore/own_shard.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/restore/box_plan.h"
#include "storage/bytes/ids.h"

namespace tidemark {
namespace {

// What makes an entry another one. Values may have another length in the state.
using EntryKey = std::tuple<std::string_view, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>;

EntryKey KeyOf(const EntrySpec& spec) {
  if (spec.kind != EntryKind::kTensor) return {spec.name, {}, {}, {}};
  Box box = HeldBox(spec);
  return {spec.name, spec.shape, std::move(box.offset), std::move(box.extent)};
}

}  // namespace

absl::StatusOr<storage::Attempt> OpenOwnShard(const RestoreSource& source, const storage::StepRecord& record) {
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::NotFoundError(fmt::format("step {} has no attempt", record.info.step));
  const auto rank = static_cast<uint32_t>(source.ranks->rank);
  const auto recorded =
      std::ranges::find(record.shards, rank, [](const storage::RecordedShard& shard) { return shard.rank; });
  if (recorded == record.shards.end()) {
    return absl::NotFoundError(fmt::format("step {} has no shard of rank {}", record.info.step, rank));
  }
  auto shard = storage::ReadShard(source.files, source.layout, source.store,
                                  {record.info.step, storage::AttemptId{*id}}, rank, record.info.world_size);
  if (!shard.ok()) return shard.status();
  const storage::RecordedShard found = {
      .rank = rank, .file_bytes = (*shard)->footer().file_bytes, .index_digest = (*shard)->footer().index_digest};
  if (found != *recorded) {
    return absl::DataLossError(
        fmt::format("{}: it differs in size or digest from the one that was committed", (*shard)->path()));
  }
  storage::Attempt attempt{.record = record};
  attempt.shards.push_back(*std::move(shard));
  return attempt;
}

bool HasJustTheseEntries(const State& state, const storage::ShardIndex& index) {
  if (state.entries().size() != index.entries.size()) return false;
  std::vector<EntryKey> wanted;
  std::vector<EntryKey> saved;
  for (const State::Entry& entry : state.entries()) wanted.push_back(KeyOf(entry.spec));
  for (const storage::ShardEntry& entry : index.entries) saved.push_back(KeyOf(entry.spec));
  std::ranges::sort(wanted);
  std::ranges::sort(saved);
  return wanted == saved;
}

}  // namespace tidemark
