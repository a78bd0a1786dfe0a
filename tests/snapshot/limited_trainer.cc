// A trainer that may have no more memory than it has: limited_trainer STORE STEP BYTES [only evaluated]
//
// Opens the store, then has room for so many bytes more, saves the step and restores it, or has it only evaluated.
// Writes "ok", "no limit" or the code of what failed to standard output. SIGABRT ends it where no C++ program can say
// that there is no memory, and SIGALRM after a time that no run takes. It never ends by SIGSEGV: the only stack that
// grows page by page, and has no other way to say that it cannot, is the main thread's, which does nothing but wait.

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

constexpr int64_t kWeights = 1'500'000;  // 6 MB
constexpr unsigned kHangSeconds = 300;

// No more address space than the process has, and so many bytes.
bool LimitMemory(uint64_t bytes) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit = {.rlim_cur = pages * 4096 + bytes, .rlim_max = pages * 4096 + bytes};
  return pages > 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(const std::string& store) {
  return AsyncCheckpointer::Open({.directory = store, .tuning = {.codec_threads = 2}, .observer = NoWarnings()});
}

std::string Run(const std::string& store, int64_t step, uint64_t bytes, bool persist) {
  TestTrainer trainer(kWeights);
  auto checkpointer = Open(store);
  if (!checkpointer.ok()) return checkpointer.status().ToString();
  if (!LimitMemory(bytes)) return "no limit";
  trainer.SetTo(step);
  auto save = persist ? (*checkpointer)->Save(step, trainer.state) : (*checkpointer)->Evaluate(step, trainer.state);
  absl::Status status = save.ok() ? save->committed().Wait() : save.status();
  if (status.ok() && persist) status = (*checkpointer)->RestoreLatest(trainer.state).status();
  return status.ok() ? "ok" : std::string(absl::StatusCodeToString(status.code()));
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  alarm(tidemark::kHangSeconds);
  std::thread([&] {
    const std::string said =
        tidemark::Run(argv[1], std::strtoll(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10), argc == 4);
    // At once, for what a program does at its end may need memory.
    _exit(write(STDOUT_FILENO, said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }).join();
}
