// A trainer that is killed and leaves a child behind: forking_trainer STORE
//
// Saves one step, forks a child that does nothing, as a worker that loads data would, and kills itself once the child
// runs. The child closes standard output and ends with standard input.

#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>
#include <vector>

#include "tests/snapshot/observers.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

int Fail(const absl::Status& status) {
  std::printf("forking_trainer: %s\n", status.ToString().c_str());
  return 1;
}

int Run(const char* store) {
  auto checkpointer = AsyncCheckpointer::Open({.directory = store, .observer = NoWarnings()});
  if (!checkpointer.ok()) return Fail(checkpointer.status());
  std::vector<float> weight(1000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight.size())}, weight.data());
  auto save = (*checkpointer)->Save(1, state);
  if (!save.ok()) return Fail(save.status());
  if (absl::Status status = save->committed().Wait(); !status.ok()) return Fail(status);
  int ready[2];
  if (pipe(ready) != 0) return 1;
  char byte = 'r';
  if (fork() == 0) {
    close(STDOUT_FILENO);
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(0);
  }
  if (read(ready[0], &byte, 1) != 1) return 1;
  kill(getpid(), SIGKILL);
  return 1;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) { return argc == 2 ? tidemark::Run(argv[1]) : 2; }
