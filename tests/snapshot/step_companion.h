// A companion in miniature: the number of the step that it took in last.

#ifndef TIDEMARK_TESTS_SNAPSHOT_STEP_COMPANION_H_
#define TIDEMARK_TESTS_SNAPSHOT_STEP_COMPANION_H_

#include <cstdint>
#include <string>

#include "tidemark/companion.h"

namespace tidemark {

class StepCompanion final : public Companion {
 public:
  StepCompanion() { state_.AddValue("ema.step", &step_); }
  const std::string& prefix() const override { return prefix_; }
  absl::Status Update(const Snapshot& snapshot) override {
    step_ = snapshot.step();
    return absl::OkStatus();
  }
  State& state() override { return state_; }
  void Reset() override { step_ = 0; }

 private:
  const std::string prefix_ = "ema";
  int64_t step_ = 0;
  State state_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_STEP_COMPANION_H_
