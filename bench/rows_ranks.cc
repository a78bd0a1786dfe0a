// How a job of several processes saves, beside one process that saves the same bytes.

#include "bench/ranks_probe.h"
#include "bench/rows.h"
#include "bench/work_folder.h"

namespace tidemark::bench {
namespace {

constexpr int32_t kRanks = 4;

absl::StatusOr<RanksCost> CostOf(Context& context, int32_t world_size) {
  absl::StatusOr<RanksCost> cost = RunRanksProbe(context.NewPath("store"), world_size, context.Bytes(1));
  if (absl::Status synced = SyncFileSystem(context.folder()); !synced.ok()) return synced;
  return cost;
}

}  // namespace

absl::StatusOr<Measurement> Ranks4Vs1(Context& context) {
  const auto rate = [&](int32_t world_size) -> absl::StatusOr<double> {
    const absl::StatusOr<RanksCost> cost = CostOf(context, world_size);
    if (!cost.ok()) return cost.status();
    return static_cast<double>(context.Bytes(1)) / cost->committed;
  };
  return context.Compare(
      Unit::kBytesPerSecond, [&] { return rate(kRanks); }, [&] { return rate(1); });
}

absl::StatusOr<Measurement> RanksBlocked4Vs1(Context& context) {
  const auto blocked = [&](int32_t world_size) -> absl::StatusOr<double> {
    const absl::StatusOr<RanksCost> cost = CostOf(context, world_size);
    if (!cost.ok()) return cost.status();
    return cost->blocked;
  };
  return context.Compare(
      Unit::kSeconds, [&] { return blocked(kRanks); }, [&] { return blocked(1); });
}

}  // namespace tidemark::bench
