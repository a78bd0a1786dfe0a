// How fast a state comes back, or is looked through, from a disk of which nothing is in memory.

#include <torch/serialize.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_store.h"
#include "bench/fio.h"
#include "bench/process.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "fmt/format.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

absl::Status Inspect(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {CHECKPOINT_INSPECT};
  arguments.insert(arguments.end(), words.begin(), words.end());
  absl::StatusOr<ProcessOutput> output = RunProcess(arguments);
  if (!output.ok()) return output.status();
  if (output->exit_code == 0) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("checkpoint-inspect {}: exit code {}: {}", words.front(), output->exit_code, output->err));
}

absl::StatusOr<double> RestoreCold(BenchStore& store, TorchState& state) { return store.RestoreCold(state); }

// Of the program from its start to its end.
absl::StatusOr<double> TimedColdStatistics(BenchStore& store, TorchState&) {
  if (absl::Status dropped = DropCaches(store.directory()); !dropped.ok()) return dropped;
  // The program may have gone from memory with the rest, and is no part of what is compared. This reads no shard.
  if (absl::Status listed = Inspect({"ls", "--store", store.directory()}); !listed.ok()) return listed;
  const Stopwatch watch;
  absl::Status read = Inspect({"tensors", "latest", "--stats", "--store", store.directory()});
  if (!read.ok()) return read;
  return watch.seconds();
}

// Of what is read.
struct Saved {
  double gib = 0;
  at::ScalarType dtype = at::kFloat;
  Compression compression = Compression::kNone;
};

// Of a state, saved like that: its bytes by the seconds that `read` takes ÷ fio's readers reading the shard.
absl::StatusOr<Measurement> CompareWithColdRead(
    Context& context, const Saved& saved, int fio_readers,
    const std::function<absl::StatusOr<double>(BenchStore&, TorchState&)>& read) {
  absl::StatusOr<TrainingState*> tensors = context.State(saved.dtype, context.Bytes(saved.gib));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  const CheckpointerOptions options{.staging_bytes_max = (*tensors)->bytes() + (64 << 20),
                                    .compression = saved.compression};
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, options);
  if (!store.ok()) return store.status();
  if (auto committed = (*store)->SaveUntilCommitted(state); !committed.ok()) return committed.status();
  absl::StatusOr<std::string> shard = (*store)->LastShard();
  if (!shard.ok()) return shard.status();
  const FioJob job{.direction = FioDirection::kRead,
                   .path = *shard,
                   .bytes = std::filesystem::file_size(*shard),
                   .depth = options.tuning.io_depth,
                   .readers = fio_readers};
  return context.Compare(
      Unit::kBytesPerSecond,
      [&]() -> absl::StatusOr<double> {
        absl::StatusOr<double> seconds = read(**store, state);
        if (!seconds.ok()) return seconds.status();
        return static_cast<double>((*tensors)->bytes()) / *seconds;
      },
      [&]() -> absl::StatusOr<double> {
        if (absl::Status dropped = DropCaches((*store)->directory()); !dropped.ok()) return dropped;
        return RunFio(job);
      },
      kDiskTimes);
}

}  // namespace

absl::StatusOr<Measurement> RestoreVsFio(Context& context) {
  return CompareWithColdRead(context, {.gib = 2}, /*fio_readers=*/1, RestoreCold);
}

absl::StatusOr<Measurement> RestoreAutoVsFio(Context& context) {
  const Saved saved{.gib = 2, .dtype = at::kBFloat16, .compression = Compression::kSpace};
  return CompareWithColdRead(context, saved, /*fio_readers=*/2, RestoreCold);
}

absl::StatusOr<Measurement> StatisticsVsFio(Context& context) {
  return CompareWithColdRead(context, {.gib = 1}, /*fio_readers=*/1, TimedColdStatistics);
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
      [&]() { return (*store)->RestoreCold(state); }, kDiskTimes);
  std::filesystem::remove_all(folder);
  return measured;
}

}  // namespace tidemark::bench
