// What the next process says when one was killed in a save: nothing at the level of a warning.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A process that saves step 1 and kills itself at the call of its files with that number in the save of step 2. True:
// it was killed; false: there was no such call.
bool SaveAndDie(const std::string& store, int call_that_kills) {
  const pid_t child = fork();
  if (child == 0) {
    storage::FailingFileSystem files(storage::PosixFileSystem());
    TestTrainer trainer(1000);
    auto checkpointer = CheckpointerOnFileSystem::Open(
        Machine(files),
        {.directory = store, .tuning = {.codec_threads = 1, .io = IoBackend::kThreads}, .observer = NoWarnings()});
    const auto save = [&](int64_t step) {
      trainer.SetTo(step);
      auto saved = (*checkpointer)->Save(step, trainer.state);
      return saved.ok() && saved->committed().Wait().ok();
    };
    if (!checkpointer.ok() || !save(1)) _exit(1);
    std::atomic<int> calls = 0;
    files.SetGate([&](const std::string&, const std::string&) {
      if (++calls == call_that_kills) kill(getpid(), SIGKILL);
    });
    if (!save(2)) _exit(1);
    files.SetGate(nullptr);
    _exit((*checkpointer)->Close().ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

TEST(KilledSaveTest, IsNoWarningOfTheNextProcess) {
  int removed = 0;
  int adopted = 0;
  for (int call = 1;; ++call) {
    SCOPED_TRACE(call);
    const storage::TestDirectory directory;
    const std::string store = directory / "store";
    const bool killed = SaveAndDie(store, call);
    Lines warnings, save_lines;
    TestTrainer trainer(1000);
    {
      auto checkpointer = AsyncCheckpointer::Open(
          {.directory = store,
           .observer = ObserverOf({.save_line = [&](std::string_view line) { save_lines.Add(std::string(line)); },
                                   .warning = [&](std::string_view line) { warnings.Add(std::string(line)); }})});
      ASSERT_THAT(checkpointer, IsOk());
      const auto next = (*checkpointer)->Resume(trainer.state);
      ASSERT_THAT(next, IsOk());
      EXPECT_TRUE(trainer.IsAt(*next - 1));
      adopted += killed && *next == 3 ? 1 : 0;
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    }
    EXPECT_THAT(warnings.Get(), IsEmpty());
    if (!killed) break;
    if (save_lines.Get().empty()) continue;
    ++removed;
    EXPECT_THAT(save_lines.Get(),
                ElementsAre("removed the unfinished save of step 2 (the previous process ended before "
                            "it was committed)"));
    ASSERT_LT(call, 1000);
  }
  EXPECT_GT(removed, 5) << "kills with files of the save on the disk";
  EXPECT_GT(adopted, 0) << "kills when all of them were there";
}

}  // namespace
}  // namespace tidemark
