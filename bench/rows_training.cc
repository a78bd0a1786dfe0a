// What checkpoints cost a training as a whole: its time and its memory.

#include <filesystem>
#include <memory>
#include <string>

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

absl::StatusOr<Measurement> RssVsState(Context& context) {
  const uint64_t bytes = context.Bytes(1);
  return context.Compare(
      Unit::kBytes,
      [&]() -> absl::StatusOr<double> {
        const std::string directory = context.NewPath("store");
        absl::StatusOr<uint64_t> extra = RunRssProbe(directory, bytes);
        std::filesystem::remove_all(directory);
        if (!extra.ok()) return extra.status();
        return static_cast<double>(*extra);
      },
      [&]() -> absl::StatusOr<double> { return static_cast<double>(bytes); });
}

}  // namespace tidemark::bench
