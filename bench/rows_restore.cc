// How fast a state comes back from a disk of which nothing is in memory.

#include <torch/serialize.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_store.h"
#include "bench/fio.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

// Seconds that a restore into the tensors themselves takes, which are in memory already, as a resuming trainer's are.
absl::StatusOr<double> TimedColdRestore(BenchStore& store, TorchState& state) {
  if (absl::Status dropped = DropCaches(store.directory()); !dropped.ok()) return dropped;
  const Stopwatch watch;
  absl::StatusOr<RestoreReport> report = store.checkpointer().RestoreLatest(state);
  const double seconds = watch.seconds();
  if (!report.ok()) return report.status();
  return seconds;
}

}  // namespace

absl::StatusOr<Measurement> RestoreVsFio(Context& context) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(2));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  const CheckpointerOptions options{.staging_bytes_max = (*tensors)->bytes() + (64 << 20),
                                    .compression = Compression::kNone};
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, options);
  if (!store.ok()) return store.status();
  if (auto saved = (*store)->SaveUntilCommitted(state); !saved.ok()) return saved.status();
  absl::StatusOr<std::string> shard = (*store)->LastShard();
  if (!shard.ok()) return shard.status();
  const FioJob job{.direction = FioDirection::kRead,
                   .path = *shard,
                   .bytes = std::filesystem::file_size(*shard),
                   .depth = options.io_depth};
  return context.Compare(
      Unit::kBytesPerSecond,
      [&]() -> absl::StatusOr<double> {
        absl::StatusOr<double> seconds = TimedColdRestore(**store, state);
        if (!seconds.ok()) return seconds.status();
        return static_cast<double>((*tensors)->bytes()) / *seconds;
      },
      [&]() -> absl::StatusOr<double> {
        if (absl::Status dropped = DropCaches((*store)->directory()); !dropped.ok()) return dropped;
        return RunFio(job);
      },
      kDiskTimes);
}

absl::StatusOr<Measurement> RestoreVsTorchLoad(Context& context) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {});
  if (!store.ok()) return store.status();
  if (auto saved = (*store)->SaveUntilCommitted(state); !saved.ok()) return saved.status();

  const std::string folder = context.NewPath("torch");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/state.pt";
  torch::save((*tensors)->tensors(), path);
  absl::StatusOr<Measurement> measured = context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        if (absl::Status dropped = DropCaches(folder); !dropped.ok()) return dropped;
        std::vector<at::Tensor> loaded;
        const Stopwatch watch;
        torch::load(loaded, path);
        return watch.seconds();
      },
      [&]() { return TimedColdRestore(**store, state); }, kDiskTimes);
  std::filesystem::remove_all(folder);
  return measured;
}

}  // namespace tidemark::bench
