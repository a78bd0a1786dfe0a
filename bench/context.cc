#include "bench/context.h"

#include <algorithm>
#include <utility>

#include "bench/fio.h"
#include "fmt/format.h"

namespace tidemark::bench {
namespace {

// Enough for the loss to have fallen far below its beginning and for Adam's averages to have filled.
constexpr size_t kTrainingSteps = 120;
constexpr size_t kTrainingStepsMin = 10;

}  // namespace

Context::Context(Settings settings, std::string folder, Progress& progress)
    : settings_(settings), folder_(std::move(folder)), progress_(progress) {}

std::string Context::NewPath(std::string_view name) { return fmt::format("{}/{}-{}", folder_, name, ++paths_); }

uint64_t Context::Bytes(double gib) const {
  return static_cast<uint64_t>(gib * static_cast<double>(settings_.size_mib << 20));
}

size_t Context::Count(size_t full) const { return std::max<size_t>(1, full * settings_.size_mib / 1024); }

absl::StatusOr<TrainedModel*> Context::Model() {
  if (model_ == nullptr) {
    progress_.Say("training the example's model");
    const auto steps = static_cast<int64_t>(std::max(kTrainingStepsMin, Count(kTrainingSteps)));
    absl::StatusOr<std::unique_ptr<TrainedModel>> model = TrainedModel::Train(steps, settings_.seed);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    values_ = model_->Values();
  }
  return model_.get();
}

absl::StatusOr<TrainingState*> Context::State(at::ScalarType dtype, uint64_t bytes) {
  if (state_ == nullptr || state_->dtype() != dtype || state_bytes_asked_ != bytes) {
    state_.reset();
    if (absl::StatusOr<TrainedModel*> model = Model(); !model.ok()) return model.status();
    progress_.Say("scaling its state up");
    state_ = std::make_unique<TrainingState>(*values_, dtype, bytes, kTensorCount, settings_.seed);
    state_bytes_asked_ = bytes;
  }
  return state_.get();
}

const std::string& Context::FioProblem() {
  if (!fio_problem_) fio_problem_ = bench::FioProblem(folder_);
  return *fio_problem_;
}

absl::StatusOr<Measurement> Context::Compare(Unit unit, const std::function<absl::StatusOr<double>()>& numerator,
                                             const std::function<absl::StatusOr<double>()>& denominator, int times) {
  absl::StatusOr<Pairs<double>> pairs = MeasurePairs<double>(numerator, denominator, times);
  if (!pairs.ok()) return pairs.status();
  return Summarise(*pairs, unit);
}

}  // namespace tidemark::bench
