#include "examples/char_lm/training_log.h"

#include <fmt/format.h>

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
  interval_tokens_ += tokens;
  if (step % kStepsPerLine == 0) {
    const absl::Time now = absl::Now();
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

}  // namespace char_lm
