// Deletions that 'prune --apply' asks the holder of a store for.

#include "tools/checkpoint_inspect/cli/request.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/prune_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(DeletionRequest, IsAnsweredByALiveTrainer) {
  TestStore store;
  store.Save({1, 2, 3});
  auto trainer = AsyncCheckpointer::Open(
      {.directory = store.directory(), .tuning = {.poll_interval = absl::Milliseconds(5)}, .observer = NoWarnings()});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const Finished run = Prune(store, {"--keep-latest", "1", "--apply", kPatience});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("deleted 2 of 2"));
  EXPECT_THAT(run.err, HasSubstr("asking the trainer ("));
  ASSERT_TRUE((*trainer)->Tidy().ok());  // the request is answered before the trainer counts what it did
  EXPECT_EQ((*trainer)->LatestStep()->step, 3);
  EXPECT_EQ((*trainer)->statistics().steps_deleted, 2u);
  EXPECT_THAT(Committed(store), ElementsAre(3));
}

TEST(DeletionRequest, StaysIfTheHolderDoesNotAnswer) {
  TestStore store;
  store.Save({1, 2, 3});
  const auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  const Finished run = Prune(store, {"--keep-latest", "1", "--apply", "--wait=0"});
  EXPECT_EQ(run.exit_code, 11);
  EXPECT_THAT(run.out, AllOf(HasSubstr("steps 1, 2: not deleted: not answered yet; the request stays"),
                             HasSubstr("deleted 0 of 2")));
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 3));
}

TEST(DeletionRequest, IsAnsweredByTheNextTrainer) {
  TestStore store;
  store.Save({1, 2, 3});
  {
    const auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_EQ(Prune(store, {"--keep-latest", "1", "--apply", "--wait=0"}).exit_code, 11);
  }
  const auto trainer = store.OpenCheckpointer();
  ASSERT_TRUE(trainer->Tidy().ok());
  EXPECT_THAT(Committed(store), ElementsAre(3));
}

// Waits until a process has asked for `count` deletions.
void AwaitRequests(const TestStore& store, size_t count) {
  for (size_t asked = 0; asked < count;) {
    std::this_thread::yield();
    asked = Occurrences(RunInspect({"journal", "--store", store.directory()}).out, "  deletion_request of step ");
  }
}

TEST(DeletionRequest, IsCarriedOutByTheCommandOnceTheHolderEnds) {
  TestStore store;
  store.Save({1, 2, 3});
  auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  Finished run;
  std::thread command([&] { run = Prune(store, {"--keep-latest", "1", "--apply", kPatience}); });
  AwaitRequests(store, 2);
  lock->reset();
  command.join();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("deleted 2 of 2"));
  EXPECT_THAT(Committed(store), ElementsAre(3));
  EXPECT_EQ(Occurrences(RunInspect({"journal", "--store", store.directory()}).out, "\n  answer\n"), 2u);
}

TEST(DeletionRequest, IsWithdrawnOnCtrlC) {
  TestStore store;
  store.Save({1, 2, 3});
  auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  RunningInspect command({"prune", "--keep-latest", "1", "--apply", kPatience, "--store", store.directory()});
  AwaitRequests(store, 2);
  const Finished run = command.Finish(SIGINT);
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_THAT(run.err, HasSubstr("requests that the trainer has not answered yet are withdrawn"));
  lock->reset();
  const auto trainer = store.OpenCheckpointer();
  ASSERT_TRUE(trainer->Tidy().ok());
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 3));
}

// The error of Ask for these steps, with a reason for each, in a process of its own.
std::string AskToDelete(const TestStore& store, const std::vector<std::pair<int64_t, std::string>>& reasons) {
  storage::EndIndexThreads();
  return storage::InChild([&]() -> std::string {
    Console console(stdout, stderr);
    const auto reader = StoreReader::Open(store.directory());
    if (!reader.ok()) return reader.status().ToString();
    const Invocation invocation{.console = console,
                                .reader = **reader,
                                .directory = store.directory(),
                                .json = false,
                                .now = absl::Now(),
                                .link_free = store.directory()};
    std::vector<Request> requests;
    for (const auto& [step, reason] : reasons) {
      requests.push_back(NewRequest(Request::Kind::kDelete, store.Info(step), reason));
    }
    const auto answers = Ask(invocation, requests, absl::ZeroDuration());
    return answers.ok() ? "no error" : answers.status().ToString();
  });
}

// The second request cannot be recorded.
TEST(DeletionRequest, IsWithdrawnWhereAnotherOneFails) {
  TestStore store;
  store.Save({1, 2, 3});
  {
    const auto lock = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
    ASSERT_TRUE(lock.ok()) << lock.status();
    const std::string too_long((64 << 10) + 1, 'x');
    EXPECT_THAT(AskToDelete(store, {{1, "too old"}, {2, too_long}}),
                AllOf(StartsWith("INVALID_ARGUMENT: "),
                      EndsWith("; requests that the trainer has not answered yet are withdrawn")));
  }
  const Finished journal = RunInspect({"journal", "--store", store.directory()});
  EXPECT_EQ(Occurrences(journal.out, "\n  deletion_request of step 1\n"), 1u) << "else this shows nothing";
  EXPECT_THAT(journal.out, HasSubstr("refused: \"withdrawn\"\n"));
  const auto trainer = store.OpenCheckpointer();
  ASSERT_TRUE(trainer->Tidy().ok());
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 3));
}

TEST(DeletionRequest, IsNamedByTheErrorIfItCannotBeWithdrawn) {
  TestStore store;
  store.Save({1, 2, 3});
  const storage::StoreLayout layout(store.directory());
  const auto lock = storage::PosixFileSystem().TryLock(layout.lock());
  ASSERT_TRUE(lock.ok()) << lock.status();
  RunningInspect command({"prune", "--keep-latest", "1", "--apply", kPatience, "--store", store.directory()});
  AwaitRequests(store, 2);
  std::filesystem::rename(layout.journal(), layout.journal() + ".gone");
  const Finished run = command.Finish();
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("; the requests to delete steps 1, 2 stay in the journal, and the trainer may carry "
                                 "them out: "));
}

}  // namespace
}  // namespace tidemark::inspect
