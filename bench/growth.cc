#include "bench/growth.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "bench/bench_store.h"
#include "bench/process.h"
#include "bench/ranks_probe.h"
#include "bench/rows.h"
#include "bench/rows_journal.h"
#include "bench/rss_probe.h"
#include "bench/training_state.h"
#include "bench/work_folder.h"
#include "fmt/format.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

using Growth = std::vector<GrowthSeries>;

absl::StatusOr<double> MedianOf(Context& context, const std::function<absl::StatusOr<double>()>& measure) {
  std::vector<double> values;
  for (int i = 1; i <= context.settings().pairs; ++i) {
    absl::StatusOr<double> value = measure();
    if (!value.ok()) return value;
    values.push_back(*value);
  }
  return Median(std::move(values));
}

// Adds the median of `measure` to the series, for the size.
absl::Status Add(Context& context, double size, const std::function<absl::StatusOr<double>()>& measure,
                 GrowthSeries& series) {
  context.progress().Say(fmt::format("{} of {:.0f} {}", series.quantity, size, series.axis));
  absl::StatusOr<double> value = MedianOf(context, measure);
  if (!value.ok()) return value.status();
  series.sizes.push_back(size);
  series.values.push_back(*value);
  return absl::OkStatus();
}

struct Shape {
  uint64_t bytes = 0;
  size_t tensors = 0;
  double size = 0;  // on the axis
};

// What a save and a restore of each shape take: raw, so that the disk's share is the same in all.
absl::StatusOr<Growth> SavesAndRestores(Context& context, const std::string& axis, const std::vector<Shape>& shapes) {
  Growth growth = {{.axis = axis, .quantity = "blocked"},
                   {.axis = axis, .quantity = "committed"},
                   {.axis = axis, .quantity = "restored"},
                   {.axis = axis, .quantity = "memory", .unit = Unit::kBytes}};
  for (const Shape& shape : shapes) {
    TorchState state;
    AddRandomTensors(state, shape.bytes, shape.tensors);
    absl::StatusOr<std::unique_ptr<BenchStore>> store =
        BenchStore::Open(context, {.compression = Compression::kNone, .reuse = false});
    if (!store.ok()) return store.status();
    if (auto first = (*store)->SaveUntilCommitted(state); !first.ok()) return first.status();
    absl::Status status = Add(
        context, shape.size,
        [&]() -> absl::StatusOr<double> {
          if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;
          return (*store)->SaveBlocked(state);
        },
        growth[0]);
    if (status.ok()) {
      status = Add(
          context, shape.size,
          [&]() -> absl::StatusOr<double> {
            if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;
            return (*store)->SaveUntilCommitted(state);
          },
          growth[1]);
    }
    if (status.ok())
      status = Add(
          context, shape.size, [&] { return (*store)->RestoreCold(state); }, growth[2]);
    if (!status.ok()) return status;
    const std::string directory = context.NewPath("store");
    absl::StatusOr<uint64_t> memory = RunRssProbe(directory, shape.bytes, shape.tensors);
    std::filesystem::remove_all(directory);
    if (!memory.ok()) return memory.status();
    growth[3].sizes.push_back(shape.size);
    growth[3].values.push_back(static_cast<double>(*memory));
  }
  return growth;
}

absl::StatusOr<Growth> ByBytes(Context& context) {
  std::vector<Shape> shapes;
  for (const double gib : {0.0625, 0.125, 0.25, 0.5, 1.0, 2.0}) {
    const uint64_t bytes = context.Bytes(gib);
    shapes.push_back({.bytes = bytes, .tensors = kTensorCount, .size = static_cast<double>(bytes)});
  }
  return SavesAndRestores(context, "state bytes", shapes);
}

absl::StatusOr<Growth> ByEntries(Context& context) {
  std::vector<Shape> shapes;
  for (const size_t entries : {size_t{1'000}, size_t{10'000}, size_t{100'000}, kMillion}) {
    const size_t count = context.Count(entries);
    shapes.push_back({.bytes = count * 1024, .tensors = count, .size = static_cast<double>(count)});
  }
  return SavesAndRestores(context, "entries", shapes);
}

absl::StatusOr<double> TimedList(const std::string& directory) {
  const Stopwatch watch;
  const absl::StatusOr<ProcessOutput> output = RunProcess({CHECKPOINT_INSPECT, "ls", "--store", directory});
  const double seconds = watch.seconds();
  if (!output.ok()) return output.status();
  if (output->exit_code != 0) {
    return absl::InternalError(fmt::format("ls: exit code {}: {}", output->exit_code, output->err));
  }
  return seconds;
}

absl::StatusOr<Growth> BySteps(Context& context) {
  Growth growth = {{.axis = "steps", .quantity = "open"}, {.axis = "steps", .quantity = "ls"}};
  for (const size_t full : {size_t{1'000}, size_t{10'000}, size_t{100'000}}) {
    const size_t steps = context.Count(full);
    const absl::StatusOr<std::string> directory = MakeStore(context, steps);
    if (!directory.ok()) return directory.status();
    const auto size = static_cast<double>(steps);
    absl::Status status = Add(
        context, size, [&] { return TimedOpen(*directory); }, growth[0]);
    if (status.ok())
      status = Add(
          context, size, [&] { return TimedList(*directory); }, growth[1]);
    std::filesystem::remove_all(*directory);
    if (!status.ok()) return status;
  }
  return growth;
}

// Every rank has the whole state and writes its share of it.
absl::StatusOr<Growth> ByRanks(Context& context) {
  Growth growth = {{.axis = "ranks", .quantity = "blocked"}, {.axis = "ranks", .quantity = "committed"}};
  for (const int32_t ranks : {1, 2, 4, 8}) {
    context.progress().Say(fmt::format("{} ranks", ranks));
    const absl::StatusOr<RanksCost> cost = RunRanksProbe(context.NewPath("store"), ranks, context.Bytes(0.25));
    if (!cost.ok()) return cost.status();
    if (absl::Status synced = SyncFileSystem(context.folder()); !synced.ok()) return synced;
    for (GrowthSeries& series : growth) series.sizes.push_back(ranks);
    growth[0].values.push_back(cost->blocked);
    growth[1].values.push_back(cost->committed);
  }
  return growth;
}

}  // namespace

absl::StatusOr<std::vector<GrowthSeries>> MeasureGrowth(Context& context) {
  std::vector<GrowthSeries> all;
  for (const auto measure : {ByRanks, ByBytes, ByEntries, BySteps}) {
    absl::StatusOr<Growth> growth = measure(context);
    if (!growth.ok()) return growth.status();
    all.insert(all.end(), std::make_move_iterator(growth->begin()), std::make_move_iterator(growth->end()));
  }
  return all;
}

}  // namespace tidemark::bench
