#include "snapshot/restore/own_shard.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/shard/format/name_table.h"

namespace tidemark {
namespace {

// How much there is of a name. Values may have another length in the state.
struct Amount {
  std::vector<int64_t> shape;  // of a tensor
  uint64_t elements = 0;       // of its boxes

  friend bool operator==(const Amount&, const Amount&) = default;
};

void Add(const EntrySpec& spec, storage::NameMap<Amount>& amounts) {
  Amount& amount = *amounts.Add(spec.name, {}).first;
  if (spec.kind != EntryKind::kTensor) return;
  amount.shape = spec.shape;
  uint64_t elements = 1;
  for (const int64_t extent : spec.held_shape()) elements *= static_cast<uint64_t>(extent);
  amount.elements += elements;
}

}  // namespace

absl::StatusOr<storage::Attempt> OpenOwnShard(const RestoreSource& source, const storage::StepRecord& record) {
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::NotFoundError(fmt::format("step {} has no attempt", record.info.step));
  const auto rank = static_cast<uint32_t>(source.ranks->rank);
  auto shard = storage::ReadShard(source.files, source.layout, source.store,
                                  {record.info.step, storage::AttemptId{*id}}, rank, record.info.world_size);
  if (!shard.ok()) return shard.status();
  storage::Attempt attempt{.record = record};
  attempt.shards.push_back(*std::move(shard));
  return attempt;
}

bool HasAsMuch(const State& state, const storage::ShardIndex& index) {
  storage::NameMap<Amount> wanted;
  storage::NameMap<Amount> saved;
  for (const State::Entry& entry : state.entries()) Add(entry.spec, wanted);
  for (const storage::ShardEntry& entry : index.entries) Add(entry.spec, saved);
  return wanted.items().size() == saved.items().size() && std::ranges::all_of(wanted.items(), [&](const auto& item) {
           const Amount* const amount = saved.Find(item.name);
           return amount != nullptr && *amount == item.value;
         });
}

}  // namespace tidemark
