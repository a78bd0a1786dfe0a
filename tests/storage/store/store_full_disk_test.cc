// A store on a disk that is full but for what the journal has set aside: steps can be deleted there.

#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class StoreFullDiskTest : public testing::Test {
 protected:
  static StepNote Deletion(const ShardIdentity& identity) {
    return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "test"};
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
};

// A disk that has no room but for what the journal has set aside.
absl::Status RefuseNewFiles(const FailingFileSystem::Call& call) {
  const bool makes = (call.operation == "Create" || call.operation == "CreateDirectory") && !fs::exists(call.path);
  for (const std::string_view folder : {"/steps/", "/journal/", "/index"}) {
    if (makes && call.path.find(folder) != std::string::npos) return absl::ResourceExhaustedError("no room");
  }
  return absl::OkStatus();
}

TEST_F(StoreFullDiskTest, DeletesStepsByTheRoomThatWasSetAside) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  std::vector<ShardIdentity> saved;
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) {
    saved.push_back(SaveStep(**store, step, step, files));
    ASSERT_THAT((*store)->Maintain(), IsOk());
  }
  files.SetRule(RefuseNewFiles);
  EXPECT_THAT(TrySave(**store, 7, 7, files), StatusIs(StatusCode::kResourceExhausted, HasSubstr("no room")));
  // What frees no room may not take the last of what is set aside.
  absl::Status pinned;
  for (int i = 0; i < 40 && pinned.ok(); ++i) pinned = (*store)->Pin(1, fmt::format("pin {}", i));
  EXPECT_THAT(pinned, StatusIs(StatusCode::kResourceExhausted, testing::_));
  EXPECT_THAT((*store)->NoteSteps({Deletion(saved[1]), Deletion(saved[2])}), IsOk());
  EXPECT_THAT((*store)->RemoveDeleted({}), IsOkAndHolds(false));
  EXPECT_FALSE(fs::exists(layout_.attempt(2, saved[1].attempt)));
  // The next process can open it, too, and delete more.
  store->reset();
  store = OpenStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT((*store)->NoteSteps({Deletion(saved[3])}), IsOk());
  files.Reset();
  EXPECT_THAT(TrySave(**store, 7, 7, files), IsOk());
}

// Without a spare for the commit's entry. The next save may need the room.
TEST_F(StoreFullDiskTest, RemovesAFailedSave) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(directory_.path(), &warnings_, files);
  ASSERT_THAT(store, IsOk());
  SaveStep(**store, 1, 100, files);
  const absl::StatusOr<ShardIdentity> failed = TryAttempt(**store, 2, 200, files);
  ASSERT_THAT(failed, IsOk());
  files.SetRule(RefuseNewFiles);
  EXPECT_THAT(TryCommit(**store, *failed, files), StatusIs(StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_FALSE(fs::exists(layout_.attempt(2, failed->attempt)));
  files.Reset();
  SaveStep(**store, 3, 300, files);
  EXPECT_THAT(ReadValue(**store, 1, files), IsOkAndHolds(100));
  EXPECT_FALSE((*store)->catalog().Find(2)->has_value());
}

TEST_F(StoreFullDiskTest, IsRefusedWithoutRoomAndMadeOnceThereIs) {
  const std::string& path = directory_.path();
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", path.c_str(), "tmpfs", 0, "size=256k") != 0) return std::string("SKIP");
    const std::string filler = path + "/.filler";
    std::ofstream(filler) << std::string(1 << 20, 'x');  // as much of it as fits
    std::string full = OpenStore(path, &warnings_).status().ToString();
    fs::remove(filler);
    return full + " then " + OpenStore(path, &warnings_).status().ToString();
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(outcome, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr(path), HasSubstr("then OK")));
}

TEST_F(StoreFullDiskTest, SavesAgainOnceThereIsRoom) {
  const std::string& path = directory_.path();
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", path.c_str(), "tmpfs", 0, "size=2m") != 0) return std::string("SKIP");
    auto store = OpenStore(path, &warnings_);
    if (!store.ok()) return store.status().ToString();
    SaveStep(**store, 1, 100);
    std::ofstream(path + "/.filler") << std::string(4 << 20, 'x');
    const absl::Status full = TrySave(**store, 2, 200);
    const int64_t while_full = ReadValue(**store, 1).value_or(-1);
    fs::remove(path + "/.filler");
    SaveStep(**store, 2, 200);
    store->reset();
    store = OpenStore(path, &warnings_);
    if (!store.ok()) return store.status().ToString();
    return fmt::format("{} then {}, {}, {}", full.ToString(), while_full, ReadValue(**store, 1).value_or(-1),
                       ReadValue(**store, 2).value_or(-1));
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(outcome, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("then 100, 100, 200")));
}

}  // namespace
}  // namespace tidemark::storage
