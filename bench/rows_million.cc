// What a million small tensors cost beyond their bytes.

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bench/bench_store.h"
#include "bench/rows.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

constexpr size_t kKiB = 1024;

class SmallTensors {
 public:
  // fp32, of other values each.
  SmallTensors(size_t count, size_t bytes_each) {
    const auto elements = static_cast<int64_t>(bytes_each / sizeof(float));
    tensors_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      tensors_.push_back(at::empty({elements}, at::kFloat).uniform_(-1, 1));
      state_.AddTensor(fmt::format("layers.{}.bias", i), tensors_.back());
    }
  }

  TorchState& state() { return state_; }
  double bytes() const { return static_cast<double>(tensors_.size() * tensors_.front().nbytes()); }
  void Change(size_t stride) {
    for (size_t i = 0; i < tensors_.size(); i += stride) tensors_[i].add_(1);
  }

 private:
  std::vector<at::Tensor> tensors_;
  TorchState state_;
};

// Raw, so that the bytes are the same in both: those of the small tensors, and as many in large ones.
struct Stores {
  std::unique_ptr<SmallTensors> small;
  std::unique_ptr<TorchState> large;
  std::unique_ptr<BenchStore> of_small;
  std::unique_ptr<BenchStore> of_large;
};

absl::StatusOr<Stores> SaveBoth(Context& context) {
  Stores stores;
  const size_t count = context.Count(kMillion);
  stores.small = std::make_unique<SmallTensors>(count, kKiB);
  stores.large = std::make_unique<TorchState>();
  AddRandomTensors(*stores.large, count * kKiB, kTensorCount);
  const CheckpointerOptions options{.compression = Compression::kNone, .reuse = false};
  for (const auto& [state, store] :
       {std::pair<State*, std::unique_ptr<BenchStore>*>(&stores.small->state(), &stores.of_small),
        std::pair<State*, std::unique_ptr<BenchStore>*>(stores.large.get(), &stores.of_large)}) {
    absl::StatusOr<std::unique_ptr<BenchStore>> opened = BenchStore::Open(context, options);
    if (!opened.ok()) return opened.status();
    *store = *std::move(opened);
    if (auto first = (*store)->SaveUntilCommitted(*state); !first.ok()) return first.status();
  }
  return stores;
}

absl::StatusOr<double> TimedSave(BenchStore& store, State& state) {
  if (absl::Status removed = store.RemoveShards(); !removed.ok()) return removed;
  return store.SaveUntilCommitted(state);
}

// In a store of its own, with the default options but for the compression: how much that saves is not the question.
absl::StatusOr<Measurement> CompareStored(Context& context, size_t bytes_each) {
  SmallTensors tensors(context.Count(kMillion), bytes_each);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.compression = Compression::kNone});
  if (!store.ok()) return store.status();
  if (auto saved = (*store)->SaveUntilCommitted(tensors.state()); !saved.ok()) return saved.status();
  const absl::StatusOr<StepInfo> step = (*store)->LastStep();
  if (!step.ok()) return step.status();
  const Pairs<double> pair = {{static_cast<double>(step->stored_bytes), tensors.bytes()}};
  return Summarise(pair, Unit::kBytes);
}

}  // namespace

absl::StatusOr<Measurement> MillionCommitVsLarge(Context& context) {
  absl::StatusOr<Stores> stores = SaveBoth(context);
  if (!stores.ok()) return stores.status();
  return context.Compare(
      Unit::kSeconds, [&] { return TimedSave(*stores->of_small, stores->small->state()); },
      [&] { return TimedSave(*stores->of_large, *stores->large); });
}

absl::StatusOr<Measurement> MillionRestoreVsLarge(Context& context) {
  absl::StatusOr<Stores> stores = SaveBoth(context);
  if (!stores.ok()) return stores.status();
  return context.Compare(
      Unit::kSeconds, [&] { return stores->of_small->RestoreCold(stores->small->state()); },
      [&] { return stores->of_large->RestoreCold(*stores->large); });
}

absl::StatusOr<Measurement> MillionStored16B(Context& context) { return CompareStored(context, 16); }

absl::StatusOr<Measurement> MillionStored1KiB(Context& context) { return CompareStored(context, kKiB); }

absl::StatusOr<Measurement> MillionChanged(Context& context) {
  constexpr size_t kOneInAHundred = 100;
  SmallTensors tensors(context.Count(kMillion), 16);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.compression = Compression::kNone});
  if (!store.ok()) return store.status();
  std::vector<double> stored;
  for (int save = 0; save < 2; ++save) {
    if (save > 0) tensors.Change(kOneInAHundred);
    if (auto saved = (*store)->SaveUntilCommitted(tensors.state()); !saved.ok()) return saved.status();
    const absl::StatusOr<StepInfo> step = (*store)->LastStep();
    if (!step.ok()) return step.status();
    stored.push_back(static_cast<double>(step->stored_bytes));
  }
  const Pairs<double> pair = {{stored[1], stored[0]}};
  return Summarise(pair, Unit::kBytes);
}

}  // namespace tidemark::bench
