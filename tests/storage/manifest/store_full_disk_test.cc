// A store on a disk that is full but for what the store itself has set aside: steps can be deleted there.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/manifest/request_inbox.h"
#include "storage/manifest/store.h"
#include "storage/records/manifest_records.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

class StoreFullDiskTest : public testing::Test {
 protected:
  // The manifest takes no writes as long as the reserve is there, or at all; nothing is set aside anew meanwhile.
  void Fill(bool for_good = false) {
    files_.SetRule([this, for_good](const FailingFileSystem::Call& call) -> absl::Status {
      const bool full = for_good || std::filesystem::exists(layout_.reserve());
      const bool writes = call.operation == "Create" || call.operation == "WriteAt";
      if (call.path == layout_.reserve() && writes) return NoRoom(call.path);
      const bool manifest = call.path.starts_with(layout_.manifest()) || call.operation == "WriteAt";
      return full && writes && manifest ? NoRoom(call.path) : absl::OkStatus();
    });
  }
  static absl::Status NoRoom(const std::string& path) {
    return absl::ResourceExhaustedError("write " + path + ": No space left on device (ENOSPC)");
  }

  absl::StatusOr<std::unique_ptr<Store>> Open() { return OpenStore(path_, &warnings_, files_); }

  static absl::StatusOr<Store::NotedSteps> LetGo(Store& store, const ShardIdentity& identity) {
    return store.NoteSteps(
        {{.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"}});
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(StoreFullDiskTest, LetsStepsGoByTheRoomThatWasSetAside) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  const ShardIdentity second = CommitStep(**store, 2, 200);
  CommitStep(**store, 3, 300);
  ASSERT_TRUE(std::filesystem::exists(layout_.reserve()));
  Fill();
  EXPECT_THAT(LetGo(**store, first), IsOk());
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(std::filesystem::exists(layout_.attempt(1, first.attempt)));
  Fill(/*for_good=*/true);
  EXPECT_THAT(LetGo(**store, second), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_THAT((*store)->manifest().Find(2), IsOk()) << "it is read all the same";
  files_.Reset();
  CommitStep(**store, 4, 400);
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve())) << "once there is room again";
}

// Its commit has found none; a save that needs its room comes next.
TEST_F(StoreFullDiskTest, DeletesAFailedSaveByTheRoomThatWasSetAside) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  CommitStep(**store, 1, 100);
  const ShardIdentity failed = WriteAttempt(**store, 2, 200, files_);
  Fill();
  EXPECT_THAT(Commit(**store, failed, files_), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  (*store)->MakeRoom();
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  EXPECT_FALSE(std::filesystem::exists(layout_.attempt(2, failed.attempt)));
  EXPECT_EQ(warnings_, "");
  files_.Reset();
  CommitStep(**store, 3, 300);
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve()));
}

// What is set aside is for who makes room by it.
TEST_F(StoreFullDiskTest, KeepsTheRoomThatWasSetAsideWhereNoFailedSaveHasLeftAnything) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  CommitStep(**store, 1, 100);
  const ShardIdentity broken = WriteAttempt(**store, 2, 200, files_);
  Fill();
  (*store)->AbandonAttempt(broken, absl::Now(), NoRoom("a shard"));
  EXPECT_FALSE(std::filesystem::exists(layout_.attempt(2, broken.attempt)));
  (*store)->MakeRoom();
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve()));
  EXPECT_THAT(warnings_, testing::Not(HasSubstr("still takes room")));
}

TEST_F(StoreFullDiskTest, SaysThatAFailedSaveStillTakesRoom) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  CommitStep(**store, 1, 100);
  const ShardIdentity failed = WriteAttempt(**store, 2, 200, files_);
  Fill(/*for_good=*/true);
  EXPECT_THAT(Commit(**store, failed, files_), StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  (*store)->MakeRoom();
  EXPECT_TRUE(std::filesystem::exists(layout_.attempt(2, failed.attempt))) << "nobody knows whether it is committed";
  EXPECT_THAT(warnings_, HasSubstr("files of failed saves still use disk space: "));
  files_.Reset();
  store->reset();
  EXPECT_EQ(ValueAt(**Open(), 2), 200);
}

// Neither a request that finds no room nor the want of room for a file of its own keeps one from deleting.
TEST_F(StoreFullDiskTest, DeletesOnRequestByTheRoomThatWasSetAside) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  const ShardIdentity second = CommitStep(**store, 2, 200);
  CommitStep(**store, 3, 300);
  const StoreRequest pin{.kind = StoreRequest::Kind::kPin,
                         .store = (*store)->id(),
                         .step = 1,
                         .attempt = first.attempt,
                         .asked = absl::FromUnixSeconds(1)};
  ASSERT_THAT(DeliverRequest(PosixFileSystem(), layout_, pin), IsOk());
  const StoreRequest deletion{.kind = StoreRequest::Kind::kDelete,
                              .store = (*store)->id(),
                              .step = 2,
                              .attempt = second.attempt,
                              .asked = absl::FromUnixSeconds(2)};
  Fill();
  const auto warn = [this](std::string_view line) { warnings_ += line; };
  Retention retention(files_, **store, {}, warn);
  RequestsTaken taken = TakeInRequests(files_, **store, retention, {.own = {&deletion, 1}, .warn = warn});
  EXPECT_THAT(taken.error, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC"))) << "of the pin";
  EXPECT_THAT(taken.own_done, testing::ElementsAre(0u));
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  ASSERT_THAT(retention.Apply({}), IsOk());
  EXPECT_FALSE(std::filesystem::exists(layout_.attempt(2, second.attempt)));
  taken = TakeInRequests(files_, **store, retention, {.warn = warn});
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_TRUE((*(*store)->manifest().Find(1))->info.pinned);
}

// Beside a trainer, which sets the room aside again without being opened anew.
TEST_F(StoreFullDiskTest, IsAskedToDeleteByTheRoomThatWasSetAside) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  CommitStep(**store, 2, 200);
  StoreRequest request{.kind = StoreRequest::Kind::kPin,
                       .store = (*store)->id(),
                       .step = 1,
                       .attempt = first.attempt,
                       .asked = absl::FromUnixSeconds(1)};
  FailingFileSystem theirs(PosixFileSystem());
  theirs.SetRule([this](const FailingFileSystem::Call& call) {
    const bool full = call.operation == "Create" && std::filesystem::exists(layout_.reserve());
    return full ? NoRoom(call.path) : absl::OkStatus();
  });
  EXPECT_THAT(DeliverRequest(theirs, layout_, request),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve())) << "a pin makes no room";
  request.kind = StoreRequest::Kind::kDelete;
  ASSERT_THAT(DeliverRequest(theirs, layout_, request), IsOk());
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  const auto warn = [this](std::string_view line) { warnings_ += line; };
  Retention retention(files_, **store, {}, warn);
  EXPECT_THAT(TakeInRequests(files_, **store, retention, {.warn = warn}).deleted, testing::SizeIs(1));
  CommitStep(**store, 3, 300);
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve()));
}

TEST_F(StoreFullDiskTest, LetsStepsGoInWhatFitsIntoTheRoomThatWasSetAside) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  std::vector<Store::StepNote> notes;
  for (int64_t step = 1; step <= 12; ++step) {
    const ShardIdentity identity = CommitStep(**store, step, step);
    if (step > 1) {
      EXPECT_TRUE((*store)->Pin(step, std::string(kPinNoteBytesMax, 'x')).ok());
    }
    notes.push_back({.step = step,
                     .attempt = ToHex(identity.attempt.bytes),
                     .deleted = step == 1,
                     .reason = step == 1 ? "too old" : "pinned"});
  }
  const auto noted = (*store)->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_THAT(noted->deleted, testing::ElementsAre(1));
  EXPECT_LT(noted->notes, notes.size());
  size_t bytes = 0;
  for (size_t i = 0; i < noted->notes; ++i) {
    bytes += EncodeStepRecord(**(*store)->manifest().Find(notes[i].step)).size();
  }
  EXPECT_LE(bytes, Store::kNotedBytesMax);
}

TEST_F(StoreFullDiskTest, KeepsTheReserveFromWhatMakesNoRoom) {
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  Fill();
  EXPECT_THAT((*store)->Pin(1, "a good one"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_THAT((*store)->NoteSteps(
                  {{.step = 1, .attempt = ToHex(first.attempt.bytes), .deleted = false, .reason = "the latest"}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve()));
}

TEST_F(StoreFullDiskTest, IsOpenedByTheRoomThatWasSetAside) {
  {
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    CommitStep(**store, 1, 100);
  }
  Fill();
  {
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    EXPECT_THAT((*store)->manifest().Find(1), IsOk());
    EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  }
  Fill(/*for_good=*/true);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  files_.Reset();
  ASSERT_THAT(Open(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(layout_.reserve()));
}

// The lock's note is the first thing that is written.
TEST_F(StoreFullDiskTest, IsLockedByTheRoomThatWasSetAside) {
  {
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    CommitStep(**store, 1, 100);
  }
  files_.SetRule([this](const FailingFileSystem::Call& call) {
    return call.operation == "WriteNote" && std::filesystem::exists(layout_.reserve()) ? NoRoom(call.path)
                                                                                       : absl::OkStatus();
  });
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  EXPECT_EQ(ValueAt(**store, 1), 100);
}

// Damage that is only found once the manifest is open, and no room for what is to take its place.
TEST_F(StoreFullDiskTest, IsRebuiltByTheRoomThatWasSetAside) {
  {
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    CommitStep(**store, 1, 100);
  }
  {
    auto database = Database::Open(PosixFileSystem(), layout_.manifest());
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.Put(StepKey(1), "no record");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  files_.SetRule([this](const FailingFileSystem::Call& call) {
    const bool full = call.path.starts_with(layout_.manifest() + ".rebuilt-") &&
                      (call.operation == "Create" || call.operation == "WriteAt") &&
                      std::filesystem::exists(layout_.reserve());
    return full ? NoRoom(call.path) : absl::OkStatus();
  });
  auto store = Open();
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings_, HasSubstr("the manifest cannot be read and is rebuilt"));
  EXPECT_EQ(ValueAt(**store, 1), 100);
}

}  // namespace
}  // namespace tidemark::storage
