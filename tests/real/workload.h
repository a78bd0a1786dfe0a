// What a trainer does with a checkpointer, at random: saves in every staging mode, overwrites, late metrics, pins.

#ifndef TIDEMARK_TESTS_REAL_WORKLOAD_H_
#define TIDEMARK_TESTS_REAL_WORKLOAD_H_

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "tests/real/save_log.h"
#include "tests/real/versioned_state.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// The options of one run of the trainer: StepOracle::Rules(), chunks that fit VersionedState, and at random the kind of
// I/O, compression, reuse and the number of threads. Warnings go nowhere.
CheckpointerOptions DrawOptions(std::mt19937& random, std::string directory);

// Owned by the trainer's thread. What it refers to must outlive the checkpointer, whose callbacks write to the log.
class Workload {
 public:
  // `next_step`, `next_version`: lower than none that was ever begun in the store.
  Workload(AsyncCheckpointer& checkpointer, SaveLog& log, uint32_t seed, int64_t next_step, int64_t next_version);
  // Waits until the last save is staged.
  ~Workload();

  // One doing. Saves are not waited for. The first error that the checkpointer returns, or background work met.
  absl::Status Operate();

 private:
  int64_t Draw(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  absl::Status Save(int64_t step);
  absl::Status Report();
  absl::Status PinOrUnpin();

  AsyncCheckpointer& checkpointer_;
  SaveLog& log_;
  std::mt19937 random_;
  VersionedState trained_;
  const int64_t first_step_;
  int64_t next_step_;
  int64_t next_version_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_WORKLOAD_H_
