#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

TEST(Pin, PinsAndUnpinsAStepThatNobodyHolds) {
  TestStore store;
  store.Save({1, 2});
  const Finished pinned = RunInspect({"pin", "1", "--note", "the best", "--store", store.directory()});
  EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.out, "step 1: pinned (the best)\n");
  EXPECT_EQ(pinned.err, "");
  EXPECT_TRUE(store.Info(1).pinned);
  EXPECT_EQ(store.Info(1).pin_note, "the best");
  EXPECT_THAT(RunInspect({"ls", "--store", store.directory()}).out, HasSubstr("pinned: the best"));

  const Finished unpinned = RunInspect({"unpin", "1", "--store", store.directory()});
  EXPECT_EQ(unpinned.exit_code, 0) << unpinned.err;
  EXPECT_EQ(unpinned.out, "step 1: unpinned\n");
  EXPECT_FALSE(store.Info(1).pinned);
  const Finished again = RunInspect({"unpin", "1", "--store", store.directory()});
  EXPECT_EQ(again.exit_code, 0) << "it is what was asked for";
  EXPECT_EQ(again.out, "step 1: was not pinned\n");
  EXPECT_EQ(RunInspect({"repair", "--store", store.directory()}).exit_code, 0);
}

TEST(Pin, NamesTheTagsThatGoWithIt) {
  TestStore store;
  store.Save({1});
  for (const char* tag : {"paper", "v1"}) {
    ASSERT_EQ(RunInspect({"tag", "1", tag, "--store", store.directory()}).exit_code, 0);
  }
  EXPECT_EQ(RunInspect({"unpin", "1", "--store", store.directory()}).out,
            "step 1: unpinned, and its tags removed: paper, v1\n");
}

TEST(Pin, IsKnownAfterTheJournalWasMadeAnew) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(RunInspect({"pin", "1", "--store", store.directory()}).exit_code, 0);
  store.Save({3});  // the index has it
  store.DamageJournal();
  ASSERT_EQ(RunInspect({"repair", "--apply", "--store", store.directory()}).exit_code, 0);
  EXPECT_TRUE(store.Info(1).pinned);
}

TEST(Pin, CountsAtOnceForATrainerAndForEveryReader) {
  TestStore store;
  store.Save({1, 2});
  const auto reader = StoreReader::Open(store.directory());
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto trainer = AsyncCheckpointer::Open(
      {.directory = store.directory(), .retention = {.max_to_keep = 1}, .observer = NoWarnings()});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const Finished pinned = RunInspect({"pin", "1", "--note", "good", "--json", "--store", store.directory()});
  EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.err, "") << "no process is asked";
  const auto json = ParseJson(pinned.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["schema_version"], 2);
  ASSERT_EQ(json["requests"].size(), 1u);
  EXPECT_EQ(json["requests"][0]["request"], "pin");
  EXPECT_EQ(json["requests"][0]["step"], 1);
  EXPECT_EQ(json["requests"][0]["attempt"], store.Info(1).attempt);
  EXPECT_EQ(json["requests"][0]["outcome"], "done");
  EXPECT_EQ(json["requests"][0]["reason"], "");
  ASSERT_TRUE((*reader)->Refresh().ok());
  EXPECT_EQ((*reader)->FindStep(1)->pin_note, "good");
  // Its rules would delete the step.
  TestState state(5000);
  ASSERT_TRUE((*trainer)->Save(3, state).ok());
  ASSERT_TRUE((*trainer)->WaitUntilCommitted().ok());
  ASSERT_TRUE((*trainer)->Tidy().ok());
  EXPECT_EQ(store.Info(1).state, StepState::kCommitted);
  EXPECT_EQ(store.Info(2).state, StepState::kDeleted);
  EXPECT_EQ(RunInspect({"unpin", "1", "--store", store.directory()}).out, "step 1: unpinned\n");
  EXPECT_FALSE(store.Info(1).pinned);
  ASSERT_TRUE((*trainer)->Tidy().ok());
  const auto steps = (*trainer)->Steps();
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_FALSE((*steps)[0].pinned);
}

TEST(Pin, NeedsNoLock) {
  TestStore store;
  store.Save({1});
  const auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(RunInspect({"pin", "1", "--store", store.directory()}).exit_code, 0);
  EXPECT_TRUE(store.Info(1).pinned);
}

TEST(Pin, LeavesAStoreAloneWhoseJournalCannotBeRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const auto before = store.Listing();
  const Finished run = RunInspect({"pin", "1", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 13);
  EXPECT_THAT(run.err, HasSubstr("run repair first"));
  EXPECT_EQ(store.Listing(), before);
}

TEST(Pin, NeedsAJournalThatCanBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  TestStore store;
  store.Save({1});
  const fs::path folder = fs::path(store.EntryPath(1)).parent_path();
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  const Finished run = RunInspect({"pin", "1", "--store", store.directory()});
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("denied"));
  EXPECT_FALSE(store.Info(1).pinned);
}

TEST(Pin, RefusesAStepThatIsNotCommitted) {
  TestStore store;
  store.Save({1, 2});
  store.Delete(1, "too old");
  const auto before = store.Listing();
  const Finished gone = RunInspect({"pin", "1", "--store", store.directory()});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("step 1 is deleted: only a committed step can be pinned"));
  const Finished none = RunInspect({"pin", "7", "--store", store.directory()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("7"));
  EXPECT_EQ(store.Listing(), before);
}

TEST(Pin, IsForTheUserWhoseStoreItIs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a store of another user's";
  TestStore store;
  store.Save({1});
  constexpr uid_t kSomebody = 54321;
  ASSERT_EQ(chown((store.directory() + "/steps").c_str(), kSomebody, kSomebody), 0);
  const auto before = store.Listing();
  const Finished run = RunInspect({"pin", "1", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("belongs to user 54321"), HasSubstr("run this as its owner")));
  EXPECT_EQ(store.Listing(), before);
}

TEST(Pin, RefusesANoteThatIsTooLong) {
  TestStore store;
  store.Save({1});
  const Finished run =
      RunInspect({"pin", "1", "--note", std::string((64 << 10) + 1, 'x'), "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("the note has 65537 bytes"));
  EXPECT_FALSE(store.Info(1).pinned);
}

TEST(Pin, IsRefusedForAStrangersStore) {
  TestStore store;
  store.Save({1});
  const Finished run = RunInspect({"pin", "1", "--untrusted", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--untrusted"));
}

TEST(Pin, NeedsAStepAndASensibleWait) {
  TestStore store;
  store.Save({1});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"newest"}, {"1", "--wait", "-1"}, {"1", "--wait", "x"}, {"1", "--wait", "nan"}}) {
    std::vector<std::string> arguments = {"pin", "--store", store.directory()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(RunInspect(arguments).exit_code, 2);
  }
}

TEST(Pin, ExplainsItselfWithAnExample) {
  for (const char* command : {"pin", "unpin"}) {
    const Finished help = RunInspect({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("STEP"), HasSubstr("Example"), Not(HasSubstr("--wait"))));
    // Scripts may have it from the time when a trainer was asked.
    TestStore store;
    store.Save({1});
    EXPECT_EQ(RunInspect({command, "1", "--wait", "3", "--store", store.directory()}).exit_code, 0);
  }
}

}  // namespace
}  // namespace tidemark::inspect
