// How a job of several processes saves, beside one process that saves the same bytes.

#include <string>
#include <vector>

#include "bench/ranks_probe.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "fmt/format.h"
#include "snapshot/ranks/replicated_entries.h"
#include "snapshot/restore/box_plan.h"

namespace tidemark::bench {
namespace {

constexpr int32_t kRanks = 4;
constexpr int64_t kPlanSize = 4096;

absl::StatusOr<RanksCost> CostOf(Context& context, int32_t world_size) {
  absl::StatusOr<RanksCost> cost = RunRanksProbe(context.NewPath("store"), world_size, context.Bytes(1));
  if (absl::Status synced = SyncFileSystem(context.folder()); !synced.ok()) return synced;
  return cost;
}

// The box that a rank has of a tensor of [kPlanSize, kPlanSize]: rows, columns, or squares, by turns.
Box BoxOfRank(size_t tensor, int64_t rank, int64_t ranks) {
  constexpr int64_t kSquares = 32;  // in each direction, of 1,024 ranks
  const int64_t band = kPlanSize / ranks;
  if (tensor % 3 == 0) return {.offset = {rank * band, 0}, .extent = {band, kPlanSize}};
  if (tensor % 3 == 1) return {.offset = {0, rank * band}, .extent = {kPlanSize, band}};
  const int64_t side = kPlanSize / kSquares;
  return {.offset = {rank / kSquares * side, rank % kSquares * side}, .extent = {side, side}};
}

}  // namespace

absl::StatusOr<Measurement> Plan1024x1024(Context& context) {
  constexpr size_t kTensors = 1024;
  constexpr int64_t kRanks = 1024;
  std::vector<State::Entry> entries;
  for (size_t i = 0; i < kTensors; ++i) {
    entries.push_back({.spec = {.name = fmt::format("layers.{}.weight", i),
                                .dtype = Dtype::kFloat32,
                                .shape = {kPlanSize, kPlanSize}},
                       .bytes = kPlanSize * kPlanSize * sizeof(float)});
  }
  const std::vector<std::string> all = {"*"};
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        const double begin = CpuSeconds();
        AssignWriters(entries, all, kRanks);
        for (size_t i = 0; i < kTensors; ++i) {
          std::vector<Box> boxes;
          for (int64_t rank = 0; rank < kRanks; ++rank) boxes.push_back(BoxOfRank(i, rank, kRanks));
          const absl::StatusOr<BoxPlan> plan = PlanBox(WholeBox(entries[i].spec.shape), boxes);
          if (!plan.ok()) return plan.status();
          if (!plan->missing.empty()) return absl::InternalError("the boxes leave a hole");
        }
        return CpuSeconds() - begin;
      },
      []() -> absl::StatusOr<double> { return 1; });
}

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
