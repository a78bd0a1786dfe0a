// Evaluates each step that the example rollback saves, in a process of its own and without LibTorch:
//
//   follow STORE
//
// For each committed step it computes the loss on points that the training has not seen, and reports it to the store as
// "validation/loss". It may run beside the training, and be killed and started again: each step is evaluated, and
// counts once. The program ends when all steps that are there have been evaluated. A worker that leaves `idle_timeout`
// out waits for further steps. Exit status: 0 done, 1 an error, 2 wrong usage.

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/snapshot.h"
#include "tidemark/worker.h"

namespace {

// The value of a double that the trainer added with State::AddValue.
absl::StatusOr<double> Value(const tidemark::Snapshot& snapshot, std::string_view name) {
  const std::optional<size_t> index = snapshot.Find(name);
  double value = 0;
  if (!index || snapshot.bytes(*index).size() != sizeof(value)) {
    return absl::NotFoundError(fmt::format("step {} has no number '{}'", snapshot.step(), name));
  }
  std::memcpy(&value, snapshot.bytes(*index).data(), sizeof(value));
  return value;
}

// The mean square error from y = 3 x + 1 at points between those of the training.
absl::StatusOr<tidemark::Verdict> Evaluate(const tidemark::Snapshot& snapshot) {
  const absl::StatusOr<double> slope = Value(snapshot, "slope");
  if (!slope.ok()) return slope.status();
  const absl::StatusOr<double> offset = Value(snapshot, "offset");
  if (!offset.ok()) return offset.status();
  double loss = 0;
  constexpr int kPoints = 16;
  for (int i = 0; i < kPoints; ++i) {
    const double x = (i + 0.5) / kPoints;
    const double error = *slope * x + *offset - (3 * x + 1);
    loss += error * error / kPoints;
  }
  fmt::print("step {}: loss {:.4g}\n", snapshot.step(), loss);
  // A step with a reason in `unhealthy` is never the best, and restores with `healthy_only` pass over it.
  return tidemark::Verdict({{"loss", loss}}, std::isfinite(loss) ? "" : "the loss is not finite");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: follow STORE\n");
    return 2;
  }
  const absl::StatusOr<tidemark::WorkerReport> done = tidemark::FollowStore({.directory = argv[1],
                                                                             .evaluator = "validation",
                                                                             .entries = {"slope", "offset"},
                                                                             .idle_timeout = absl::ZeroDuration()},
                                                                            Evaluate);
  if (!done.ok()) {
    fmt::print(stderr, "follow: {}\n", done.status().ToString());
    return 1;
  }
  fmt::print("{} steps evaluated, {} failed\n", done->evaluated, done->failed);
  return done->failed == 0 ? 0 : 1;
}
