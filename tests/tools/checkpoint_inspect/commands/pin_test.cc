#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"
#include "storage/manifest/store_request.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

size_t FilesIn(const std::string& directory) {
  if (!fs::exists(directory)) return 0;
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

// A trainer whose thread looks into the inbox all the time.
std::unique_ptr<AsyncCheckpointer> OpenTrainer(const TestStore& store) {
  auto trainer = AsyncCheckpointer::Open({.directory = store.directory(),
                                          .tuning = {.inbox_poll_interval = absl::Milliseconds(5)},
                                          .observer = NoWarnings()});
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

TEST(Pin, PinsAndUnpinsAStepThatNobodyHolds) {
  TestStore store;
  store.Save({1, 2});
  const Finished pinned = RunInspect({"pin", "1", "--note", "the best", "--store", store.directory()});
  EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.out, "step 1: pinned (the best)\n");
  EXPECT_EQ(pinned.err, "");
  EXPECT_TRUE(store.Info(1).pinned);
  EXPECT_EQ(store.Info(1).pin_note, "the best");
  EXPECT_EQ(FilesIn(store.directory() + "/inbox"), 0u);
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

TEST(Pin, IsKnownAfterARebuildOfTheManifest) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_EQ(RunInspect({"pin", "1", "--store", store.directory()}).exit_code, 0);
  store.DamageManifest();
  ASSERT_EQ(RunInspect({"repair", "--apply", "--store", store.directory()}).exit_code, 0);
  EXPECT_TRUE(store.Info(1).pinned);
}

TEST(Pin, HandsTheRequestToALiveTrainer) {
  TestStore store;
  store.Save({1, 2});
  const auto trainer = OpenTrainer(store);
  const Finished pinned = RunInspect({"pin", "1", "--note", "good", kPatience, "--store", store.directory()});
  EXPECT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.out, "step 1: pinned (good)\n");
  EXPECT_THAT(pinned.err, AllOf(HasSubstr("asking the trainer ("), HasSubstr(std::to_string(getpid()))));
  const auto steps = trainer->Steps();
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ((*steps)[0].pin_note, "good");
  const Finished unpinned = RunInspect({"unpin", "1", kPatience, "--json", "--store", store.directory()});
  EXPECT_EQ(unpinned.exit_code, 0);
  EXPECT_THAT(unpinned.err, HasSubstr("asking the trainer ("));
  const auto json = ParseJson(unpinned.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["schema_version"], 1);
  ASSERT_EQ(json["requests"].size(), 1u);
  EXPECT_EQ(json["requests"][0]["request"], "unpin");
  EXPECT_EQ(json["requests"][0]["step"], 1);
  EXPECT_EQ(json["requests"][0]["attempt"], (*steps)[0].attempt);
  EXPECT_EQ(json["requests"][0]["outcome"], "done");
  EXPECT_EQ(json["requests"][0]["reason"], "");
  EXPECT_FALSE(store.Info(1).pinned);
}

// Whoever holds it looks into the inbox only later, or never, as a repair does.
TEST(Pin, SaysSoWhereTheHolderHasNotTakenItInYet) {
  TestStore store;
  store.Save({1, 2});
  {
    const storage::StoreLayout layout(store.directory());
    const auto lock = storage::PosixFileSystem().TryLock(layout.lock());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE((*lock)->WriteNote("a repair").ok());
    const Finished run = RunInspect({"pin", "1", "--wait", "0", "--store", store.directory()});
    EXPECT_EQ(run.exit_code, 11);
    EXPECT_THAT(run.out, HasSubstr("step 1: not pinned: not read yet; the request waits in inbox/"));
    EXPECT_THAT(run.err, HasSubstr("a repair"));
    const auto json = RunInspectJson({"pin", "2", "--wait", "0", "--store", store.directory()}, 11);
    EXPECT_EQ(json["requests"][0]["outcome"], "handed_over");
    EXPECT_EQ(FilesIn(store.directory() + "/inbox"), 2u);
  }
  EXPECT_FALSE(store.Info(1).pinned);
  store.Save({3});
  EXPECT_TRUE(store.Info(1).pinned) << "the next trainer has taken it in";
  EXPECT_TRUE(store.Info(2).pinned);
  EXPECT_EQ(FilesIn(store.directory() + "/inbox"), 0u);
}

TEST(Pin, TakesTheStoreItselfOnceItsHolderReleasesIt) {
  TestStore store;
  store.Save({1});
  const storage::StoreLayout layout(store.directory());
  auto lock = storage::PosixFileSystem().TryLock(layout.lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  Finished run;
  std::thread command([&] { run = RunInspect({"pin", "1", kPatience, "--store", store.directory()}); });
  // The request is there, so the command has found the store held, or is about to.
  while (FilesIn(layout.inbox()) == 0) std::this_thread::yield();
  lock->reset();
  command.join();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(store.Info(1).pinned);
}

TEST(Pin, TakesItsRequestBackOnCtrlC) {
  TestStore store;
  store.Save({1});
  const storage::StoreLayout layout(store.directory());
  const auto lock = storage::PosixFileSystem().TryLock(layout.lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  Finished run;
  std::thread command([&] { run = RunInspect({"pin", "1", kPatience, "--store", store.directory()}); });
  std::string request;
  while (request.empty()) {
    std::this_thread::yield();
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(layout.inbox(), none_yet)) {
      if (entry.path().extension() == ".json") request = ReadWhole(entry.path());
    }
  }
  const auto decoded = storage::DecodeStoreRequest(request);
  int pid = 0;
  if (decoded.ok()) pid = std::atoi(decoded->asker.substr(std::strlen("pid ")).c_str());
  if (pid > 1) kill(pid, SIGINT);
  command.join();
  ASSERT_GT(pid, 1) << request;
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_THAT(run.err, HasSubstr("requests that the trainer has not read yet are withdrawn"));
  EXPECT_EQ(FilesIn(layout.inbox()), 0u);
}

TEST(Pin, CarriesOutWhatWasAskedBefore) {
  TestStore store;
  store.Save({1, 2});
  {
    const auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_EQ(RunInspect({"pin", "1", "--wait=0", "--store", store.directory()}).exit_code, 11);
  }
  EXPECT_EQ(RunInspect({"pin", "2", "--store", store.directory()}).exit_code, 0);
  EXPECT_TRUE(store.Info(1).pinned);
  EXPECT_TRUE(store.Info(2).pinned);
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

TEST(Pin, LeavesAStoreAloneWhoseManifestCannotBeRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageManifest();
  const auto before = store.Listing();
  const Finished run = RunInspect({"pin", "1", "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 13);
  EXPECT_THAT(run.err, HasSubstr("run repair first"));
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

TEST(Pin, NeedsAStepsFolderThatCanBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  TestStore store;
  store.Save({1});
  const fs::path folder = fs::path(store.ShardPath(1)).parent_path();
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  const Finished run = RunInspect({"pin", "1", "--store", store.directory()});
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("denied"));
}

TEST(Pin, RefusesANoteThatIsTooLong) {
  TestStore store;
  store.Save({1});
  const Finished run =
      RunInspect({"pin", "1", "--note", std::string((64 << 10) + 1, 'x'), "--store", store.directory()});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("its text has 65537 bytes"));
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
    EXPECT_THAT(help.out, AllOf(HasSubstr("--wait"), HasSubstr("Example")));
  }
}

}  // namespace
}  // namespace tidemark::inspect
