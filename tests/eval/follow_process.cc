// A worker in a process of its own, for a test to kill: follow_process STORE EVALUATOR [LAST_STEP]
//
// Follows the store until LAST_STEP is done, or until it is killed. Writes one byte to standard output for each thing
// that it does: 'e' when it begins to evaluate a step, 'r' when the report is delivered.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/snapshot/observers.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

void Tell(char what) {
  if (write(STDOUT_FILENO, &what, 1) != 1) _exit(3);
}

absl::StatusOr<Verdict> Evaluate(const Snapshot& snapshot) {
  Tell('e');
  int64_t value = -1;
  const auto index = snapshot.Find("value");
  if (!index) return absl::NotFoundError("no value");
  std::memcpy(&value, snapshot.bytes(*index).data(), sizeof(value));
  return Metrics{{"double", static_cast<double>(2 * value)}};
}

int Run(const WorkerOptions& options) {
  absl::StatusOr<WorkerReport> report = FollowStore(options, Evaluate);
  if (!report.ok()) {
    std::fprintf(stderr, "follow_process: %s\n", report.status().ToString().c_str());
    return 1;
  }
  return report->end == WorkerReport::End::kUntilStep || report->end == WorkerReport::End::kSignal ? 0 : 1;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  tidemark::WorkerOptions options{.directory = argv[1], .evaluator = argv[2]};
  if (argc > 3) options.until_step = std::atoll(argv[3]);
  options.poll_interval = absl::Milliseconds(5);
  options.observer =
      tidemark::ObserverOf({.evaluated = [](int64_t, const tidemark::Evaluation&) { tidemark::Tell('r'); }});
  return tidemark::Run(options);
}
