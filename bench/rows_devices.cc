// How long Save holds the trainer where the tensors are on a device: a pretended one, whose copies take as long as it
// is told, and a real one, where there is one.

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/bench_store.h"
#include "bench/rows.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

// Tensors on a device, and host tensors to copy them to.
struct DeviceTensors {
  std::vector<at::Tensor> device;
  std::vector<at::Tensor> host;

  void AddTo(TorchState& state) const {
    for (size_t i = 0; i < device.size(); ++i) state.AddTensor(fmt::format("layers.{}.weight", i), device[i]);
  }
  // Enqueues copies of all of them.
  void Copy() const {
    for (size_t i = 0; i < device.size(); ++i) host[i].copy_(device[i], /*non_blocking=*/true);
  }
};

// What copies between a device and the host share: so many bytes per second, one copy behind the other. Thread-safe.
class Bus {
 public:
  explicit Bus(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Returns when a copy of `bytes` that begins now has gone over it.
  void Send(size_t bytes) {
    absl::Time arrival;
    {
      const absl::MutexLock lock(&mutex_);
      free_at_ = std::max(free_at_, absl::Now()) + absl::Seconds(static_cast<double>(bytes) / bytes_per_second_);
      arrival = free_at_;
    }
    absl::SleepFor(arrival - absl::Now());
  }

 private:
  const double bytes_per_second_;
  absl::Mutex mutex_;
  absl::Time free_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

constexpr size_t kPretendTensors = 32;
constexpr size_t kGpuTensors = 64;

absl::StatusOr<std::unique_ptr<BenchStore>> OpenWarm(Context& context, TorchState& state, Staging staging) {
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.staging = staging, .reuse = false});
  if (!store.ok()) return store;
  if (absl::Status prepared = (*store)->checkpointer().Prepare(state); !prepared.ok()) return prepared;
  if (auto warm_up = (*store)->SaveBlocked(state, staging); !warm_up.ok()) return warm_up.status();
  return store;
}

// What Save and WaitUntilStaged take together, where the device computes for `compute_seconds` between them, which
// costs the host nothing.
absl::StatusOr<double> OverlappedSave(BenchStore& store, int64_t step, TorchState& state, double compute_seconds) {
  const Stopwatch saving;
  absl::StatusOr<SaveHandle> save = store.checkpointer().Save(step, state, {.staging = Staging::kOverlapped});
  const double in_save = saving.seconds();
  if (!save.ok()) return save.status();
  std::this_thread::sleep_for(std::chrono::duration<double>(compute_seconds));
  const Stopwatch waiting;
  if (absl::Status staged = store.checkpointer().WaitUntilStaged(); !staged.ok()) return staged;
  const double in_wait = waiting.seconds();
  if (absl::Status committed = save->committed().Wait(); !committed.ok()) return committed;
  return in_save + in_wait;
}

absl::StatusOr<Measurement> CompareGpuSave(Context& context, Staging staging) {
  const auto bytes = static_cast<int64_t>(context.Bytes(4) / kGpuTensors);
  DeviceTensors tensors;
  for (size_t i = 0; i < kGpuTensors; ++i) {
    tensors.device.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)).random_());
    tensors.host.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
  }
  torch::cuda::synchronize();
  TorchState state;
  tensors.AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = OpenWarm(context, state, staging);
  if (!store.ok()) return store.status();
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;
        return (*store)->SaveBlocked(state, staging);
      },
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        tensors.Copy();
        torch::cuda::synchronize();
        return watch.seconds();
      });
}

}  // namespace

absl::StatusOr<Measurement> StageOverlapped(Context& context) {
  constexpr double kBytesPerSecond = 512 << 20;  // slow enough for the host's own copying to vanish in it
  constexpr double kComputePerCopy = 1.5;
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  const auto bytes = static_cast<int64_t>(context.Bytes(0.25) / kPretendTensors);
  DeviceTensors tensors;
  for (size_t i = 0; i < kPretendTensors; ++i) {
    tensors.device.push_back(accelerator.Bytes(bytes, static_cast<uint8_t>(i)));
    tensors.host.push_back(at::empty({bytes}, at::kByte).zero_());
  }
  TorchState state;
  tensors.AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = OpenWarm(context, state, Staging::kOverlapped);
  if (!store.ok()) return store.status();
  const double copy_seconds = static_cast<double>(bytes * kPretendTensors) / kBytesPerSecond;

  Bus bus(kBytesPerSecond);
  accelerator.SetTransfer([&bus](size_t sent) { bus.Send(sent); });
  int64_t step = 1;  // behind the one that warmed the store up
  absl::StatusOr<Measurement> measured = context.Compare(
      Unit::kSeconds, [&]() { return OverlappedSave(**store, step++, state, kComputePerCopy * copy_seconds); },
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        tensors.Copy();
        accelerator.Synchronize(accelerator.CurrentStream(PretendAccelerator::Device()));
        return watch.seconds();
      });
  accelerator.SetTransfer(nullptr);
  return measured;
}

std::string NoCuda(Context&) {
  if (torch::cuda::is_available()) return "";
  return "no GPU: LibTorch finds no CUDA device, or was built without CUDA";
}

absl::StatusOr<Measurement> StageGpuVsPinnedCopy(Context& context) {
  return CompareGpuSave(context, Staging::kBlocking);
}

absl::StatusOr<Measurement> StageGpuOnDevice(Context& context) { return CompareGpuSave(context, Staging::kOnDevice); }

}  // namespace tidemark::bench
