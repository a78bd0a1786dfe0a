// How long Save holds the trainer, against the least that copying takes.

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/bench_store.h"
#include "bench/rows.h"
#include "bench/warm_memory.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

// Blocked time of saves of `state`, whose bytes are those of `sources`, ÷ copying these. Everything that a save does
// once has been done before, and every save is committed before the next thing is measured.
absl::StatusOr<Measurement> CompareWithCopy(Context& context, TorchState& state,
                                            const std::vector<std::span<const std::byte>>& sources) {
  constexpr int kTimes = 2;
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.reuse = false});
  if (!store.ok()) return store.status();
  uint64_t bytes = 0;
  for (const std::span<const std::byte> source : sources) bytes += source.size();
  const WarmMemory memory(bytes);

  if (absl::Status prepared = (*store)->checkpointer().Prepare(state); !prepared.ok()) return prepared;
  if (auto warm_up = (*store)->SaveBlocked(state); !warm_up.ok()) return warm_up.status();
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        if (absl::Status removed = (*store)->RemoveShards(); !removed.ok()) return removed;
        return (*store)->SaveBlocked(state);
      },
      [&]() -> absl::StatusOr<double> { return TimedCopy(sources, memory.bytes()); }, kTimes);
}

}  // namespace

absl::StatusOr<Measurement> StageVsMemcpy(Context& context) {
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  std::vector<std::span<const std::byte>> sources;
  for (size_t i = 0; i < (*tensors)->tensors().size(); ++i) sources.push_back((*tensors)->bytes_of(i));
  return CompareWithCopy(context, state, sources);
}

namespace {

absl::StatusOr<Measurement> CompareSmallWithCopy(Context& context, size_t count) {
  constexpr int64_t kElements = 256;  // 1 KiB of fp32
  TorchState state;
  for (size_t i = 0; i < count; ++i) {
    at::Tensor tensor = at::empty({kElements}, at::kFloat);
    tensor.fill_(static_cast<double>(i));
    state.AddTensor(fmt::format("layers.{}.bias", i), std::move(tensor));
  }
  const WarmMemory contiguous(count * kElements * sizeof(float));
  return CompareWithCopy(context, state, {contiguous.bytes()});
}

}  // namespace

absl::StatusOr<Measurement> StageSmallVsMemcpy(Context& context) {
  return CompareSmallWithCopy(context, context.Count(100'000));
}

absl::StatusOr<Measurement> MillionBlockedVsMemcpy(Context& context) {
  return CompareSmallWithCopy(context, context.Count(kMillion));
}

absl::StatusOr<Measurement> FirstVsLaterSave(Context& context) {
  // A training makes some steps before it saves for the first time.
  constexpr absl::Duration kFirstSteps = absl::Seconds(2);
  absl::StatusOr<TrainingState*> tensors = context.State(at::kFloat, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  std::unique_ptr<BenchStore> store;
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        store.reset();
        absl::StatusOr<std::unique_ptr<BenchStore>> opened = BenchStore::Open(context, {.reuse = false});
        if (!opened.ok()) return opened.status();
        store = *std::move(opened);
        if (auto resumed = store->checkpointer().Resume(state); !resumed.ok()) return resumed.status();
        absl::SleepFor(kFirstSteps);
        return store->SaveBlocked(state);
      },
      [&]() -> absl::StatusOr<double> {
        if (absl::Status removed = store->RemoveShards(); !removed.ok()) return removed;
        return store->SaveBlocked(state);
      });
}

}  // namespace tidemark::bench
