// A training state that is known from two numbers: what a trainer saved as some step, the so many-th time it saved
// anything.

#ifndef TIDEMARK_TESTS_REAL_VERSIONED_STATE_H_
#define TIDEMARK_TESTS_REAL_VERSIONED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/state.h"

namespace tidemark {

// Tensors that are new with every version, in parts, rarely and never in a long time, so that chunks are reused over
// several steps; an odd number of bytes; values of changing lengths. Some 230 KiB, of which a third is new at a time.
// Thread-compatible.
class VersionedState {
 public:
  // Chunks of this size fit it: several for each tensor.
  static constexpr uint32_t kChunkBytes = 8 << 10;

  VersionedState();

  // Makes it that of the version, which is 1 or more, as it was saved as the step.
  void SetTo(int64_t step, int64_t version);

  // What its own values say it is.
  int64_t step() const { return step_; }
  int64_t version() const { return version_; }

  // Whether it is, bit for bit, that of the step and the version.
  bool IsThatOf(int64_t step, int64_t version) const;

  State& state() { return state_; }

 private:
  std::vector<uint32_t> frozen_;  // the same for 64 versions
  std::vector<float> parts_;      // a fifth of it changes with every version
  std::vector<float> weight_;     // all of it does
  std::vector<uint8_t> noise_;
  std::string note_;
  int64_t step_ = 0;
  int64_t version_ = 0;
  State state_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_VERSIONED_STATE_H_
