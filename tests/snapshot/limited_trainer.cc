// A trainer that may have no more memory than it has: limited_trainer STORE STEP BYTES [only evaluated]
//
// Opens the store, then has room for so many bytes more, saves the step and restores it, or has it only evaluated.
// Writes "ok", "no limit" or the code of what failed to standard output; or "ended in RocksDB" where RocksDB, whose
// threads nobody can guard, ends the process. SIGABRT ends it where anything else does, and SIGALRM after a time that
// no run takes. It never ends by SIGSEGV: the only stack that grows page by page, and has no other way to say that it
// cannot, is the main thread's, which does nothing but wait.

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
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

bool IsInRocksDb(void* frame) {
  Dl_info info = {};
  return dladdr(frame, &info) != 0 && std::string_view(info.dli_fname).find("librocksdb") != std::string_view::npos;
}

// An exception that is not caught leaves the stack as it was at the throw.
void SayWhoAborts(int) {
  std::array<void*, 64> frames = {};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  constexpr std::string_view kAnswer = "ended in RocksDB";
  if (std::any_of(frames.begin(), frames.begin() + count, IsInRocksDb)) {
    _exit(write(STDOUT_FILENO, kAnswer.data(), kAnswer.size()) == static_cast<ssize_t>(kAnswer.size()) ? 0 : 1);
  }
  signal(SIGABRT, SIG_DFL);  // and abort raises it once more
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
  std::array<void*, 1> frame = {};
  backtrace(frame.data(), 1);  // the first call loads a library
  signal(SIGABRT, tidemark::SayWhoAborts);
  std::thread([&] {
    const std::string said =
        tidemark::Run(argv[1], std::strtoll(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10), argc == 4);
    // At once, for what a program does at its end may need memory.
    _exit(write(STDOUT_FILENO, said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }).join();
}
