#include "snapshot/torch/torch_scheduler_source.h"

#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

// Reports a counter of another integer type as an int64.
template <typename Counter>
void ReportCounter(TorchCatalog& catalog, std::string_view field, Counter& counter) {
  const TorchCatalog::Scope in_field(catalog, field);
  int64_t value = static_cast<int64_t>(counter);
  catalog.Int64(value, [](std::string_view bytes) {
    int64_t received = 0;
    std::memcpy(&received, bytes.data(), sizeof(received));
    if (std::in_range<Counter>(received) && received >= 0) return absl::OkStatus();
    return absl::DataLossError(
        fmt::format("the step count is {}; it must be from 0 to {}", received, std::numeric_limits<Counter>::max()));
  });
  counter = static_cast<Counter>(value);
}

class StepCountSource final : public TorchSource {
 public:
  StepCountSource(std::string name, torch::optim::LRScheduler& scheduler)
      : TorchSource(std::move(name)), scheduler_(scheduler) {}

  void Walk(TorchCatalog& catalog) override {
    const TorchCatalog::Scope in_source(catalog, name());
    ReportCounter(catalog, "step_count", Access::StepCount(scheduler_));
  }

 private:
  // Only derived classes can see the count.
  struct Access : torch::optim::LRScheduler {
    static unsigned& StepCount(torch::optim::LRScheduler& scheduler) { return scheduler.*(&Access::step_count_); }
  };

  torch::optim::LRScheduler& scheduler_;
};

#if TIDEMARK_HAS_PLATEAU_SCHEDULER

using torch::optim::ReduceLROnPlateauScheduler;

// All fields are private and have no accessors. An explicit instantiation may name private members; the friend function
// defined with it passes them on.
struct PlateauFields {
  float& best;
  int& num_bad_epochs;
  int& cooldown_counter;
  int& last_epoch;
};
PlateauFields FieldsOf(ReduceLROnPlateauScheduler& scheduler);

template <auto kBest, auto kNumBadEpochs, auto kCooldownCounter, auto kLastEpoch>
struct PlateauAccess {
  friend PlateauFields FieldsOf(ReduceLROnPlateauScheduler& scheduler) {
    return {scheduler.*kBest, scheduler.*kNumBadEpochs, scheduler.*kCooldownCounter, scheduler.*kLastEpoch};
  }
};
template struct PlateauAccess<&ReduceLROnPlateauScheduler::best, &ReduceLROnPlateauScheduler::num_bad_epochs,
                              &ReduceLROnPlateauScheduler::cooldown_counter, &ReduceLROnPlateauScheduler::last_epoch>;

class PlateauSource final : public TorchSource {
 public:
  PlateauSource(std::string name, ReduceLROnPlateauScheduler& scheduler)
      : TorchSource(std::move(name)), scheduler_(scheduler) {}

  void Walk(TorchCatalog& catalog) override {
    const PlateauFields fields = FieldsOf(scheduler_);
    const TorchCatalog::Scope in_source(catalog, name());
    ReportCounter(catalog, "num_bad_epochs", fields.num_bad_epochs);
    ReportCounter(catalog, "cooldown_counter", fields.cooldown_counter);
    ReportCounter(catalog, "last_epoch", fields.last_epoch);
    const TorchCatalog::Scope in_best(catalog, "best");
    auto best = static_cast<double>(fields.best);
    catalog.Double(best);
    fields.best = static_cast<float>(best);
  }

 private:
  ReduceLROnPlateauScheduler& scheduler_;
};

#endif  // TIDEMARK_HAS_PLATEAU_SCHEDULER

}  // namespace

std::unique_ptr<TorchSource> MakeSchedulerSource(std::string name, torch::optim::LRScheduler& scheduler) {
  return std::make_unique<StepCountSource>(std::move(name), scheduler);
}

#if TIDEMARK_HAS_PLATEAU_SCHEDULER
std::unique_ptr<TorchSource> MakeSchedulerSource(std::string name, ReduceLROnPlateauScheduler& scheduler) {
  return std::make_unique<PlateauSource>(std::move(name), scheduler);
}
#endif

}  // namespace tidemark
