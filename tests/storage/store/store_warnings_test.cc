// What a store warns of, and when.

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "storage/store/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

// A handler that asks something of the store must not wait for itself.
TEST(StoreWarningsTest, AreGivenWithNoLockHeld) {
  const TestDirectory directory = TestDirectory::InMemory();
  FailingFileSystem files(PosixFileSystem());
  std::unique_ptr<Store> store;
  int calls = 0;
  bool asking = false;
  const auto warn = [&](std::string_view) {
    if (store == nullptr || asking) return;
    ++calls;
    asking = true;  // which may warn as well
    EXPECT_THAT(store->Unpin(9), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("not committed")));
    EXPECT_THAT(store->RemoveDeleted({}), IsOk());
    asking = false;
  };
  auto opened =
      Store::Open(files, {.directory = directory / "store", .warn = warn, .read = {.io = IoQueueKind::kThreads}});
  ASSERT_THAT(opened, IsOk());
  store = *std::move(opened);
  const auto expect_warning = [&](std::string_view of) {
    EXPECT_GT(calls, 0) << of;
    calls = 0;
  };
  CommitStep(*store, 1, 100, files);
  // A record that brings a tag which its step has no room for.
  for (size_t i = 0; i < kTagsPerStepMax; ++i) ASSERT_THAT(store->Tag(1, "tag-" + std::to_string(i)), IsOk());
  const ShardIdentity again = WriteAttempt(*store, 1, 101, files);
  auto attempt = ReadAttempt(files, store->layout(), store->id(), {1, again.attempt});
  ASSERT_THAT(attempt, IsOk());
  attempt->record.info.pinned = true;
  attempt->record.info.tags = {"one-more"};
  EXPECT_THAT(store->CommitAttempt(attempt->record), IsOk());
  expect_warning("CommitAttempt");
  const ShardIdentity second = CommitStep(*store, 2, 200, files);
  CommitStep(*store, 3, 300, files);
  files.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ASSERT_THAT(
      store->NoteSteps({{.step = 2, .attempt = ToHex(second.attempt.bytes), .deleted = true, .reason = "too old"}}),
      IsOk());
  EXPECT_THAT(store->RemoveDeleted({}), IsOk());
  expect_warning("RemoveDeleted");
  store->AbandonAttempt(WriteAttempt(*store, 5, 500, files), absl::Now(), absl::InternalError("why")).IgnoreError();
  expect_warning("AbandonAttempt");
  // The index cannot be written any more.
  files.SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = call.path.starts_with(store->layout().index()) && call.operation == "WriteAt";
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(store->Pin(3, "keep"), IsOk());
  expect_warning("Pin");
}

// A handler that waits for another thread, which removes files as well, as it does if it asks for a deletion.
TEST(StoreWarningsTest, OfTheIndexAreGivenWhileOtherThreadsMayRemoveFiles) {
  const TestDirectory directory = TestDirectory::InMemory();
  FailingFileSystem files(PosixFileSystem());
  std::unique_ptr<Store> store;
  std::vector<std::thread> others;
  int warnings = 0;
  const auto warn = [&](std::string_view line) {
    EXPECT_THAT(std::string(line), testing::HasSubstr("the index cannot be used any more"));
    ++warnings;
    auto removed = std::make_shared<absl::Notification>();
    others.emplace_back([&store, removed] {
      EXPECT_THAT(store->RemoveDeleted({}), IsOk());
      removed->Notify();
    });
    EXPECT_TRUE(removed->WaitForNotificationWithTimeout(absl::Seconds(30)));
  };
  auto opened =
      Store::Open(files, {.directory = directory / "store", .warn = warn, .read = {.io = IoQueueKind::kThreads}});
  ASSERT_THAT(opened, IsOk());
  store = *std::move(opened);
  const ShardIdentity first = CommitStep(*store, 1, 100, files);
  CommitStep(*store, 2, 200, files);
  ASSERT_THAT(
      store->NoteSteps({{.step = 1, .attempt = ToHex(first.attempt.bytes), .deleted = true, .reason = "too old"}}),
      IsOk());
  // It cannot forget the attempt whose files have been removed.
  files.SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = call.path.starts_with(store->layout().index()) && call.operation == "WriteAt";
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_EQ(warnings, 1);
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace tidemark::storage
