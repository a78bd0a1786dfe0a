// A trainer that is killed in a save: killed_trainer STORE CALL
//
// Saves step 1, and kills itself at that call of its file system in the save of step 2, counted from 1. Ends with 0 if
// there was no such call, and with 1 if anything fails.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

bool Run(const std::string& store, int call_that_kills) {
  storage::FailingFileSystem files(storage::PosixFileSystem());
  TestTrainer trainer(1000);
  auto checkpointer = CheckpointerOnFileSystem::Open(
      Machine(files),
      {.directory = store, .tuning = {.codec_threads = 1, .io = IoBackend::kThreads}, .observer = NoWarnings()});
  if (!checkpointer.ok()) return false;
  const auto save = [&](int64_t step) {
    trainer.SetTo(step);
    auto saved = (*checkpointer)->Save(step, trainer.state);
    return saved.ok() && saved->committed().Wait().ok();
  };
  if (!save(1)) return false;
  std::atomic<int> calls = 0;
  files.SetGate([&](const std::string&, const std::string&) {
    if (++calls == call_that_kills) std::raise(SIGKILL);
  });
  if (!save(2)) return false;
  files.SetGate(nullptr);
  return (*checkpointer)->Close().ok();
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) { return argc == 3 && tidemark::Run(argv[1], std::atoi(argv[2])) ? 0 : 1; }
