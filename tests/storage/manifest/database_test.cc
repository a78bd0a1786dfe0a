#include "storage/manifest/database.h"

#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DatabaseTest : public testing::Test {
 protected:
  static rocksdb::WriteBatch Batch(const std::string& value) {
    rocksdb::WriteBatch batch;
    batch.Put("key", value);
    return batch;
  }
  static std::string Read(Database& database) {
    std::string value;
    absl::Status status = database.Use(
        [&](rocksdb::DB& db) { return database.Translate(db.Get(rocksdb::ReadOptions(), "key", &value), "read"); });
    return status.ok() ? value : status.ToString();
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
};

TEST_F(DatabaseTest, KeepsWhatWasWritten) {
  {
    auto database = Database::Create(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch = Batch("x");
    EXPECT_THAT((*database)->Write(batch), IsOk());
  }
  EXPECT_EQ(Read(**Database::Open(PosixFileSystem(), path_)), "x");
  EXPECT_EQ(Read(**Database::OpenReadOnly(PosixFileSystem(), path_)), "x");
}

TEST_F(DatabaseTest, IsReadAndWrittenWhileOthersUseIt) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  absl::Notification inside;
  absl::Notification leave;
  std::thread slow([&] {
    EXPECT_THAT((*database)->Use([&](rocksdb::DB&) {
      inside.Notify();
      leave.WaitForNotification();
      return absl::OkStatus();
    }),
                IsOk());
  });
  inside.WaitForNotification();
  rocksdb::WriteBatch batch = Batch("y");
  EXPECT_THAT((*database)->Write(batch), IsOk());
  EXPECT_EQ(Read(**database), "y");
  leave.Notify();
  slow.join();
}

TEST_F(DatabaseTest, ReturnsWhatItsUserReturns) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  EXPECT_THAT((*database)->Use([](rocksdb::DB&) { return absl::CancelledError("enough"); }),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST_F(DatabaseTest, RemembersThatAUserFoundDamage) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  (*database)->Use([](rocksdb::DB&) { return absl::InternalError("EIO"); }).IgnoreError();
  EXPECT_FALSE((*database)->damage_found());
  (*database)->Use([](rocksdb::DB&) { return absl::DataLossError("a record"); }).IgnoreError();
  EXPECT_THAT((*database)->Use([](rocksdb::DB&) { return absl::OkStatus(); }), IsOk());
  EXPECT_TRUE((*database)->damage_found());
}

// As on a full disk: a write fails, and so does every file that opening anew would write.
TEST_F(DatabaseTest, IsReadWhereItCannotBeOpenedAnewAndWrittenOnceItCan) {
  FailingFileSystem files(PosixFileSystem());
  auto database = Database::Create(files, path_);
  ASSERT_THAT(database, IsOk());
  rocksdb::WriteBatch first = Batch("first");
  ASSERT_THAT((*database)->Write(first), IsOk());
  files.SetRule([](const FailingFileSystem::Call& call) {
    const bool writes = call.operation == "WriteAt" || call.operation == "Create";
    return writes ? absl::ResourceExhaustedError("write x: No space left on device (ENOSPC)") : absl::OkStatus();
  });
  rocksdb::WriteBatch second = Batch("second");
  const auto no_room = [](const std::string& operation) {
    return StatusIs(absl::StatusCode::kResourceExhausted,
                    AllOf(HasSubstr(operation + " manifest"), HasSubstr("ENOSPC")));
  };
  EXPECT_THAT((*database)->Write(second), no_room("write"));
  EXPECT_EQ(Read(**database), "first");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT((*database)->Write(second), no_room("reopen"));
    EXPECT_EQ(Read(**database), "first");
    EXPECT_EQ(Read(**database), "first");
  }
  files.Reset();
  EXPECT_EQ(Read(**database), "first");
  EXPECT_THAT((*database)->Write(second), IsOk());
  EXPECT_EQ(Read(**database), "second");
  database->reset();
  EXPECT_EQ(Read(**Database::Open(PosixFileSystem(), path_)), "second");
}

TEST_F(DatabaseTest, SaysWhatRocksDbSaysWithOperationAndPath) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  const auto translated = [&](const rocksdb::Status& status) { return (*database)->Translate(status, "read"); };
  EXPECT_THAT(translated(rocksdb::Status::OK()), IsOk());
  EXPECT_THAT(translated(rocksdb::Status::Corruption("bits")),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("read manifest " + path_), HasSubstr("bits"))));
  EXPECT_THAT(translated(rocksdb::Status::NotFound("it")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("it")));
  EXPECT_THAT(translated(rocksdb::Status::NoSpace("it")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("it")));
  EXPECT_THAT(translated(rocksdb::Status::Busy("it")), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("it")));
  EXPECT_THAT(translated(rocksdb::Status::NotSupported("it")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("it")));
  EXPECT_THAT(translated(rocksdb::Status::IOError("open", "Permission denied (EACCES)")),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("open")));
  EXPECT_THAT(translated(rocksdb::Status::IOError("open", "Input/output error (EIO)")),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("open")));
}

}  // namespace
}  // namespace tidemark::storage
