// What the trainer tells a person on standard output, and the file of exact losses that two runs are compared by.

#ifndef EXAMPLES_CHAR_LM_TRAINING_LOG_H_
#define EXAMPLES_CHAR_LM_TRAINING_LOG_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace char_lm {

// Owned by the training thread.
class TrainingLog {
 public:
  // `quiet`: nothing on standard output.
  explicit TrainingLog(bool quiet) : quiet_(quiet), interval_began_(absl::Now()) {}

  // From here on Step appends to this file: the step, a space and the loss as a hexadecimal floating-point number,
  // which is exact. Each line is handed to the kernel at once, so that a killed trainer leaves whole lines.
  // kPermissionDenied: it cannot be opened.
  absl::Status OpenLossFile(const std::string& path);

  // A line of its own on standard output.
  void Say(const std::string& line);

  // Every tenth step is printed, with the pace since the last one. kResourceExhausted: the loss file took no more.
  absl::Status Step(int64_t step, double loss, double learning_rate, int64_t tokens);

  void Saved(int64_t step, absl::Duration blocked);

  // At the end: the median time from one step's end to the next's, saves included.
  void SayPace();

 private:
  static constexpr int64_t kStepsPerLine = 10;

  const bool quiet_;
  std::string loss_path_;
  std::ofstream losses_;
  absl::Time interval_began_;
  int64_t interval_tokens_ = 0;
  absl::Time last_step_ = absl::InfinitePast();
  std::vector<double> step_seconds_;
};

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_TRAINING_LOG_H_
