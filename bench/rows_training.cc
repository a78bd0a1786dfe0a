// What checkpoints cost a training as a whole: its time and its memory.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/bench_store.h"
#include "bench/rows.h"
#include "bench/rss_probe.h"
#include "tidemark/torch.h"

namespace tidemark::bench {

absl::StatusOr<Measurement> TrainingSlowdown(Context& context) {
  constexpr int kStepsPerSave = 20;
  constexpr int kTimes = 3;
  absl::StatusOr<TrainedModel*> model = context.Model();
  if (!model.ok()) return model.status();
  TorchState state;
  (*model)->AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {});
  if (!store.ok()) return store.status();
  if (auto warm_up = (*store)->SaveBlocked(state); !warm_up.ok()) return warm_up.status();

  int64_t step = 1;  // behind the one that warmed the store up
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        AsyncCheckpointer& checkpointer = (*store)->checkpointer();
        const Stopwatch watch;
        // In front, so that what goes on behind a save falls into the steps that are measured with it.
        if (auto save = checkpointer.Save(step++, state); !save.ok()) return save.status();
        for (int i = 0; i < kStepsPerSave; ++i) (*model)->Step();
        // Nothing is left for the steps without a save to pay for.
        if (absl::Status committed = checkpointer.WaitUntilCommitted(); !committed.ok()) return committed;
        return watch.seconds() / kStepsPerSave;
      },
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        for (int i = 0; i < kStepsPerSave; ++i) (*model)->Step();
        return watch.seconds() / kStepsPerSave;
      },
      kTimes);
}

absl::StatusOr<Measurement> AutoSizeVsSpace(Context& context) {
  constexpr int kStepsPerSave = 20;
  absl::StatusOr<TrainedModel*> model = context.Model();
  if (!model.ok()) return model.status();
  TorchState state;
  (*model)->AddTo(state);
  const auto open = [&](Compression compression) {
    return BenchStore::Open(context, {.compression = compression, .reuse = false});
  };
  auto automatic = open(Compression::kAuto);
  auto space = open(Compression::kSpace);
  if (!automatic.ok()) return automatic.status();
  if (!space.ok()) return space.status();
  int64_t step = 0;
  // The example trains after the save and does not wait for the commit.
  const auto saved_bytes = [&](AsyncCheckpointer& checkpointer, int steps) -> absl::StatusOr<double> {
    const auto save = checkpointer.Save(step++, state);
    if (!save.ok()) return save.status();
    for (int i = 0; i < steps; ++i) (*model)->Step();
    while (!save->committed().ready()) absl::SleepFor(absl::Milliseconds(1));
    const absl::StatusOr<StepInfo> saved = checkpointer.LatestStep();
    if (!saved.ok()) return saved.status();
    return static_cast<double>(saved->stored_bytes);
  };
  // The first save knows nothing of the next one.
  const absl::StatusOr<double> first = saved_bytes((*automatic)->checkpointer(), kStepsPerSave);
  if (!first.ok()) return first.status();
  return context.Compare(
      Unit::kBytes, [&] { return saved_bytes((*automatic)->checkpointer(), kStepsPerSave); },
      [&] { return saved_bytes((*space)->checkpointer(), 0); });
}

namespace {

// Memory of a save of so many bytes in so many tensors ÷ these bytes.
absl::StatusOr<Measurement> CompareMemory(Context& context, uint64_t bytes, size_t tensors) {
  return context.Compare(
      Unit::kBytes,
      [&]() -> absl::StatusOr<double> {
        const std::string directory = context.NewPath("store");
        absl::StatusOr<uint64_t> extra = RunRssProbe(directory, bytes, tensors);
        std::filesystem::remove_all(directory);
        if (!extra.ok()) return extra.status();
        return static_cast<double>(*extra);
      },
      [&]() -> absl::StatusOr<double> { return static_cast<double>(bytes); });
}

}  // namespace

absl::StatusOr<Measurement> RssVsState(Context& context) {
  return CompareMemory(context, context.Bytes(1), kTensorCount);
}

absl::StatusOr<Measurement> MillionRssVsState(Context& context) {
  const size_t count = context.Count(kMillion);
  return CompareMemory(context, count * 1024, count);
}

}  // namespace tidemark::bench
