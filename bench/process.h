// Runs another program and collects what it says.

#ifndef TIDEMARK_BENCH_PROCESS_H_
#define TIDEMARK_BENCH_PROCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tidemark::bench {

struct ProcessOutput {
  int exit_code = 0;  // 128 + the signal that ended it
  std::string out;
  std::string err;
};

// Runs arguments[0], looked for in PATH, and waits for it. Signals are not blocked in it, whatever the caller blocks.
// kNotFound: it cannot be started. One at a time.
absl::StatusOr<ProcessOutput> RunProcess(const std::vector<std::string>& arguments);

// Kills the program that RunProcess is waiting for, if there is one. Any thread.
void KillRunningProcess();

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_PROCESS_H_
