// How fast, how cheaply and how much a save writes.

#include <fcntl.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_store.h"
#include "bench/fio.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "storage/io/unique_fd.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

// A save of `tensors` from the call of Save to committed ÷ fio writing as many bytes; both in bytes per second, each to
// a new file, the one before having been removed.
absl::StatusOr<Measurement> CompareWithFio(Context& context, const TrainingState& tensors, Compression compression) {
  TorchState state;
  tensors.AddTo(state);
  const CheckpointerOptions options{
      .staging_bytes_max = tensors.bytes() + (64 << 20), .compression = compression, .reuse = false};
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, options);
  if (!store.ok()) return store.status();
  if (absl::Status prepared = (*store)->checkpointer().Prepare(state); !prepared.ok()) return prepared;
  if (auto warm_up = (*store)->SaveUntilCommitted(state); !warm_up.ok()) return warm_up.status();
  if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;

  const auto bytes = static_cast<double>(tensors.bytes());
  return context.Compare(
      Unit::kBytesPerSecond,
      [&]() -> absl::StatusOr<double> {
        absl::StatusOr<double> seconds = (*store)->SaveUntilCommitted(state);
        if (!seconds.ok()) return seconds.status();
        if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;
        return bytes / *seconds;
      },
      [&]() -> absl::StatusOr<double> {
        const FioJob job{.path = context.NewPath("fio"), .bytes = tensors.bytes(), .depth = options.tuning.io_depth};
        absl::StatusOr<double> rate = RunFio(job);
        std::filesystem::remove(job.path);
        if (absl::Status synced = SyncFileSystem(context.folder()); !synced.ok()) return synced;
        return rate;
      },
      kDiskTimes);
}

absl::Status SyncFile(const std::string& path) {
  const storage::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "open " + path);
  if (fsync(file.get()) != 0) return absl::ErrnoToStatus(errno, "fsync " + path);
  return absl::OkStatus();
}

absl::StatusOr<SaveCost> CostOfTorchSave(Context& context, const TrainingState& tensors) {
  const std::string path = context.NewPath("torch");
  const double cpu_before = CpuSeconds();
  const Stopwatch watch;
  torch::save(tensors.tensors(), path);
  if (absl::Status synced = SyncFile(path); !synced.ok()) return synced;
  const SaveCost cost{.wall_seconds = watch.seconds(), .cpu_seconds = CpuSeconds() - cpu_before};
  std::filesystem::remove(path);
  if (absl::Status synced = SyncFileSystem(context.folder()); !synced.ok()) return synced;
  return cost;
}

absl::StatusOr<SaveCost> CostOfSave(BenchStore& store, TorchState& state) {
  const double cpu_before = CpuSeconds();
  absl::StatusOr<double> seconds = store.SaveUntilCommitted(state);
  if (!seconds.ok()) return seconds.status();
  const SaveCost cost{.wall_seconds = *seconds, .cpu_seconds = CpuSeconds() - cpu_before};
  if (absl::Status removed = store.RemoveShards(); !removed.ok()) return removed;
  return cost;
}

// Pairs of a save and torch::save of the same tensors.
absl::StatusOr<Pairs<SaveCost>> TorchSavePairs(Context& context, Compression compression) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store =
      BenchStore::Open(context, {.compression = compression, .reuse = false});
  if (!store.ok()) return store.status();
  if (absl::Status prepared = (*store)->checkpointer().Prepare(state); !prepared.ok()) return prepared;
  if (auto warm_up = CostOfSave(**store, state); !warm_up.ok()) return warm_up.status();
  return context.MeasurePairs<SaveCost>([&] { return CostOfSave(**store, state); },
                                        [&] { return CostOfTorchSave(context, **tensors); }, kDiskTimes);
}

}  // namespace

std::string NoFio(Context& context) { return context.FioProblem(); }

absl::StatusOr<Measurement> WriteRawVsFio(Context& context) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(2));
  if (!tensors.ok()) return tensors.status();
  return CompareWithFio(context, **tensors, Compression::kNone);
}

absl::StatusOr<Measurement> WriteAutoVsFio(Context& context) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kBFloat16, context.Bytes(2));
  if (!tensors.ok()) return tensors.status();
  return CompareWithFio(context, **tensors, Compression::kThroughput);
}

absl::StatusOr<Measurement> CpuVsTorchSave(Context& context) {
  absl::StatusOr<Pairs<SaveCost>> costs = TorchSavePairs(context, Compression::kNone);
  if (!costs.ok()) return costs.status();
  Pairs<double> seconds;
  for (const auto& [ours, theirs] : *costs) seconds.emplace_back(ours.cpu_seconds, theirs.cpu_seconds);
  return Summarise(seconds, Unit::kSeconds);
}

absl::StatusOr<Measurement> CommittedVsTorchSave(Context& context) {
  absl::StatusOr<Pairs<SaveCost>> costs = TorchSavePairs(context, Compression::kThroughput);
  if (!costs.ok()) return costs.status();
  Pairs<double> seconds;
  for (const auto& [ours, theirs] : *costs) seconds.emplace_back(theirs.wall_seconds, ours.wall_seconds);
  return Summarise(seconds, Unit::kSeconds);
}

absl::StatusOr<Measurement> Reuse90Frozen(Context& context) {
  constexpr size_t kOneInTen = 10;
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  // Not the default: how much that compresses depends on how busy the disk is, and this row is about reuse.
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.compression = Compression::kNone});
  if (!store.ok()) return store.status();
  const auto written = [&]() -> absl::StatusOr<double> {
    if (auto saved = (*store)->SaveUntilCommitted(state); !saved.ok()) return saved.status();
    absl::StatusOr<StepInfo> step = (*store)->LastStep();
    if (!step.ok()) return step.status();
    return static_cast<double>(step->stored_bytes);
  };

  // A pair is in order here: the first save follows on a change of everything, the second on one of every tenth tensor.
  Pairs<double> pairs;
  for (int pair = 1; pair <= context.settings().pairs; ++pair) {
    context.progress().Pair(pair, context.settings().pairs);
    (*tensors)->Change(1);
    absl::StatusOr<double> first = written();
    if (!first.ok()) return first.status();
    (*tensors)->Change(kOneInTen);
    absl::StatusOr<double> second = written();
    if (!second.ok()) return second.status();
    pairs.emplace_back(*second, *first);
  }
  return Summarise(pairs, Unit::kBytes);
}

}  // namespace tidemark::bench
