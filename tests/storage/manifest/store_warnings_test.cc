// What a store warns of, and when.

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "storage/manifest/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

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
  const ShardIdentity first = CommitStep(*store, 1, 100, files);
  ASSERT_THAT(store->Tag(1, "release"), IsOk());
  const ShardIdentity second = CommitStep(*store, 2, 200, files);
  CommitStep(*store, 3, 300, files);
  const std::string pin = store->layout().attempt(1, first.attempt) + "/pin.json";
  const auto break_pin = [&] { PutFile(PosixFileSystem(), pin, R"({"tags")"); };
  const auto expect_warning = [&](std::string_view of) {
    EXPECT_GT(calls, 0) << of;
    calls = 0;
  };
  break_pin();
  EXPECT_THAT(store->Pin(1, "again"), IsOk());
  expect_warning("Pin");
  break_pin();
  EXPECT_THAT(store->Tag(1, "best"), IsOk());
  expect_warning("Tag");
  break_pin();
  EXPECT_THAT(store->Untag(1, "best"), IsOk());
  expect_warning("Untag");
  ASSERT_THAT(store->Unpin(1), IsOk());
  break_pin();
  ASSERT_THAT(
      store->NoteSteps({{.step = 1, .attempt = ToHex(first.attempt.bytes), .deleted = true, .reason = "too old"}}),
      IsOk());
  expect_warning("NoteSteps");
  files.SetRule([&](const FailingFileSystem::Call& call) {
    return call.path.ends_with("pin.json.new") || call.path.ends_with("pin.json") ? absl::InternalError("EIO")
                                                                                  : absl::OkStatus();
  });
  const ShardIdentity third = WriteAttempt(*store, 1, 101, files);
  EXPECT_THAT(Commit(*store, third, files), IsOk());
  expect_warning("CommitAttempt");
  files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
  ASSERT_THAT(
      store->NoteSteps({{.step = 2, .attempt = ToHex(second.attempt.bytes), .deleted = true, .reason = "too old"}}),
      IsOk());
  EXPECT_THAT(store->RemoveDeleted({}), IsOk());
  expect_warning("RemoveDeleted");
  files.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  store->AbandonAttempt(WriteAttempt(*store, 5, 500, files), absl::Now(), absl::InternalError("why"));
  expect_warning("AbandonAttempt");
}

}  // namespace
}  // namespace tidemark::storage
