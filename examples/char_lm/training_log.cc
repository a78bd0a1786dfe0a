#include "examples/char_lm/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

namespace char_lm {

absl::Status TrainingLog::OpenLossFile(const std::string& path) {
  loss_path_ = path;
  losses_.open(path, std::ios::app);
  if (!losses_) return absl::PermissionDeniedError(fmt::format("open the loss file {} to append: refused", path));
  return absl::OkStatus();
}

void TrainingLog::Say(const std::string& line) {
  if (quiet_) return;
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

absl::Status TrainingLog::Step(int64_t step, double loss, double learning_rate, int64_t tokens) {
  if (losses_.is_open()) {
    losses_ << fmt::format("{} {:a}\n", step, loss) << std::flush;
    if (!losses_) return absl::ResourceExhaustedError(fmt::format("append to the loss file {}: failed", loss_path_));
  }
  const absl::Time now = absl::Now();
  if (last_step_ != absl::InfinitePast()) step_seconds_.push_back(absl::ToDoubleSeconds(now - last_step_));
  last_step_ = now;
  interval_tokens_ += tokens;
  if (step % kStepsPerLine == 0) {
    const double seconds = absl::ToDoubleSeconds(now - interval_began_);
    Say(fmt::format("step {:6}  loss {:.4f}  learning rate {:.2e}  {:7.0f} characters/s", step, loss, learning_rate,
                    static_cast<double>(interval_tokens_) / seconds));
    interval_began_ = now;
    interval_tokens_ = 0;
  }
  return absl::OkStatus();
}

void TrainingLog::Saved(int64_t step, absl::Duration blocked) {
  Say(fmt::format("step {:6}  staged; the training stood still for {:.1f} ms", step,
                  absl::ToDoubleMilliseconds(blocked)));
}

void TrainingLog::SayPace() {
  if (step_seconds_.empty()) return;
  const auto middle = step_seconds_.begin() + static_cast<std::ptrdiff_t>(step_seconds_.size() / 2);
  std::nth_element(step_seconds_.begin(), middle, step_seconds_.end());
  Say(fmt::format("median step {:.3f} ms", *middle * 1e3));
}

}  // namespace char_lm
