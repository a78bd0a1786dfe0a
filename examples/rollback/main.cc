// Trains a line through points with a learning rate that is too high at first. When the loss grows, it goes back to a
// copy of the state in memory and halves the rate: a rollback without the disk. It also saves checkpoints to the disk.
//
//   rollback STORE [STEP]
//
// Started again, it goes on from the latest checkpoint. With STEP it goes back to that step of the store, discards the
// later ones, and trains on from there. Exit status: 0 done, 1 an error, 2 wrong usage.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"

namespace {

constexpr int64_t kSteps = 200;

// y = 3 x + 1, by gradient descent on the mean square.
struct Line {
  double slope = 0;
  double offset = 0;
  double learning_rate = 4;

  double TrainStep() {
    double loss = 0;
    double slope_gradient = 0;
    double offset_gradient = 0;
    constexpr int kPoints = 16;
    for (int i = 0; i < kPoints; ++i) {
      const double x = static_cast<double>(i) / kPoints;
      const double error = slope * x + offset - (3 * x + 1);
      loss += error * error / kPoints;
      slope_gradient += 2 * error * x / kPoints;
      offset_gradient += 2 * error / kPoints;
    }
    slope -= learning_rate * slope_gradient;
    offset -= learning_rate * offset_gradient;
    return loss;
  }
};

// Fills `state` from the store, and returns the step to train next. Without `back_to`: from the latest step, or 0 in a
// fresh run.
absl::StatusOr<int64_t> Begin(tidemark::AsyncCheckpointer& checkpointer, std::optional<int64_t> back_to,
                              tidemark::State& state) {
  if (!back_to) return checkpointer.Resume(state);
  const absl::StatusOr<tidemark::RestoreReport> restored = checkpointer.Restore(*back_to, state);
  if (!restored.ok()) return restored.status();
  // Otherwise the next start would resume from the steps that this run gives up.
  const absl::StatusOr<std::vector<int64_t>> discarded = checkpointer.DiscardAfter(restored->step);
  if (!discarded.ok()) return discarded.status();
  fmt::print("back to step {}; {} later steps discarded\n", restored->step, discarded->size());
  return restored->step + 1;
}

absl::Status Train(const std::string& store, std::optional<int64_t> back_to) {
  auto checkpointer =
      tidemark::AsyncCheckpointer::Open({.directory = store, .save_interval_steps = 20, .save_on_steps = {kSteps - 1}});
  if (!checkpointer.ok()) return checkpointer.status();
  Line line;
  double best = INFINITY;
  tidemark::State state;
  state.AddValue("slope", &line.slope);
  state.AddValue("offset", &line.offset);
  state.AddValue("learning_rate", &line.learning_rate);
  state.AddValue("best", &best);
  const absl::StatusOr<int64_t> first = Begin(**checkpointer, back_to, state);
  if (!first.ok()) return first.status();

  absl::StatusOr<std::shared_ptr<const tidemark::Snapshot>> good = tidemark::Capture(state);
  if (!good.ok()) return good.status();
  for (int64_t step = *first; step < kSteps; ++step) {
    // The loss belongs to the state before the step: it says whether that state is good.
    absl::StatusOr<std::shared_ptr<const tidemark::Snapshot>> before = tidemark::Capture(state);
    if (!before.ok()) return before.status();
    const double loss = line.TrainStep();
    if (!(loss <= 2 * best)) {
      if (absl::Status back = tidemark::RestoreFrom(**good, state); !back.ok()) return back;
      line.learning_rate /= 2;
      if (good = tidemark::Capture(state); !good.ok()) return good.status();
      fmt::print("step {}: loss {:.4g}, back to {:.4g}; learning rate {:.4g}\n", step, loss, best, line.learning_rate);
      continue;
    }
    good = *std::move(before);
    best = std::min(best, loss);
    if (!(*checkpointer)->ShouldSave(step)) continue;
    auto save = (*checkpointer)->Save(step, state, {.metrics = {{"loss", loss}}});
    if (!save.ok()) return save.status();
  }
  fmt::print("y = {:.4f} x + {:.4f}\n", line.slope, line.offset);
  return (*checkpointer)->Close();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<int64_t> back_to;
  int64_t step = 0;
  if (argc == 3 && absl::SimpleAtoi(argv[2], &step)) back_to = step;
  if (argc != 2 && !back_to) {
    fmt::print(stderr, "usage: rollback STORE [STEP]\n");
    return 2;
  }
  const absl::Status trained = Train(argv[1], back_to);
  if (trained.ok()) return 0;
  fmt::print(stderr, "rollback: {}\n", trained.ToString());
  return 1;
}
