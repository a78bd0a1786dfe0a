// A trainer in a process of its own, for a test to kill: trainer_process STORE SEED NEXT_STEP NEXT_VERSION
//
// Opens the store, restores the latest step, goes on saving until it is killed, and writes what it begins and what is
// acknowledged to standard output, in lines that save_lines.h reads. Ends with 1 and an "error" line if anything fails
// or is not as it was saved.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "fmt/format.h"
#include "tests/real/save_lines.h"
#include "tests/real/workload.h"
#include "tests/snapshot/observers.h"

namespace tidemark {
namespace {

int Fail(std::string_view what, const absl::Status& status) {
  WriteLine(STDOUT_FILENO, fmt::format("error {}: {}", what, status.ToString()));
  return 1;
}

int Run(const std::string& store, uint32_t seed, int64_t next_step, int64_t next_version) {
  SaveLineWriter log(STDOUT_FILENO);
  std::mt19937 random(seed);
  CheckpointerOptions options = DrawOptions(random, store);
  options.observer =
      ObserverOf({.warning = [](std::string_view line) { WriteLine(STDOUT_FILENO, fmt::format("warning {}", line)); }});
  auto checkpointer = AsyncCheckpointer::Open(options);
  if (!checkpointer.ok()) return Fail("open", checkpointer.status());
  VersionedState state;
  auto restored = (*checkpointer)->RestoreLatest(state.state());
  if (!restored.ok() && !absl::IsNotFound(restored.status())) return Fail("restore", restored.status());
  if (restored.ok() && !state.IsThatOf(restored->step, state.version())) {
    return Fail("restore", absl::DataLossError(fmt::format("step {} has wrong bytes", restored->step)));
  }
  WriteLine(STDOUT_FILENO, fmt::format("resumed {} {}", restored.ok() ? restored->step : 0, state.version()));
  Workload workload(**checkpointer, log, random(), next_step, next_version);
  for (;;) {
    if (absl::Status status = workload.Operate(); !status.ok()) return Fail("train", status);
  }
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive its test
  const auto number = [&](int index) { return std::strtoll(argv[index], nullptr, 10); };
  return tidemark::Run(argv[1], static_cast<uint32_t>(number(2)), number(3), number(4));
}
