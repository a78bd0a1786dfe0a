// A trainer that a test preempts: preempted_trainer STORE
//
// Trains for as long as it may, and writes one byte to standard output after each step. When it is preempted it saves
// once more, says so on a line of its own, and ends with status 0 if that step is committed.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "tidemark/async_checkpointer.h"
#include "tidemark/preemption_guard.h"

namespace tidemark {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "preempted_trainer: %s\n", status.ToString().c_str());
  return 1;
}

int Run(const char* store) {
  auto guard = PreemptionGuard::Install({.grace = absl::Seconds(60)});
  if (!guard.ok()) return Fail(guard.status());
  auto checkpointer = AsyncCheckpointer::Open({.directory = store, .save_interval_steps = 10});
  if (!checkpointer.ok()) return Fail(checkpointer.status());
  std::vector<float> weight(100'000);
  int64_t trained = -1;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight.size())}, weight.data());
  state.AddValue("trained", &trained);
  for (int64_t step = 0;; ++step) {
    for (float& value : weight) value += 1.0F;
    trained = step;
    if (write(STDOUT_FILENO, ".", 1) != 1) return 1;
    if ((*guard)->preempted()) {
      const PreemptionReport last = (*guard)->SaveAndClose(**checkpointer, step, state, {});
      std::printf("\n%s\n", last.Describe().c_str());
      return last.committed() && last.close.ok() ? 0 : 1;
    }
    if ((*checkpointer)->ShouldSave(step)) {
      if (auto save = (*checkpointer)->Save(step, state); !save.ok()) return Fail(save.status());
    }
  }
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) { return argc == 2 ? tidemark::Run(argv[1]) : 2; }
