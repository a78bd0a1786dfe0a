// What the next process says when one was killed in a save: nothing at the level of a warning.

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/housekeeper_testing.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

// Runs killed_trainer. True: it was killed; false: there was no such call.
bool SaveAndDie(const std::string& store, int call_that_kills) {
  const std::string answer = storage::InProgram(KILLED_TRAINER, {store, std::to_string(call_that_kills)});
  if (answer.empty()) return false;
  EXPECT_EQ(answer, "killed by signal 9");
  return true;
}

TEST(KilledSaveTest, IsNoWarningOfTheNextProcess) {
  int removed = 0;
  int committed = 0;
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
      committed += killed && *next == 3 ? 1 : 0;
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    }
    EXPECT_THAT(warnings.Get(), IsEmpty());
    if (!killed) break;
    if (save_lines.Get().empty()) continue;
    ++removed;
    EXPECT_THAT(save_lines.Get(), ElementsAre("removed what an earlier process left of its unfinished save of step 2"));
    ASSERT_LT(call, 1000);
  }
  EXPECT_GT(removed, 5) << "kills with files of the save on the disk";
  EXPECT_GT(committed, 0) << "kills when the entry had its name";
}

}  // namespace
}  // namespace tidemark
