#include "storage/manifest/database.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/io/errno_status.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// They would be in a file of that name. The manifest's folder has it itself: only files are refused.
TEST_F(DatabaseTest, ItsOptionsAreKeptInNoFile) {
  const std::string path = directory_ / "OPTIONS-of-a-run";
  ASSERT_THAT(Database::Create(PosixFileSystem(), path), IsOk());
  ASSERT_THAT(Database::Open(PosixFileSystem(), path), IsOk());
  auto entries = PosixFileSystem().ListDirectory(path);
  ASSERT_THAT(entries, IsOk());
  EXPECT_GT(entries->size(), 3u);
  for (const DirectoryEntry& entry : *entries) EXPECT_THAT(entry.name, Not(HasSubstr("OPTIONS")));
}

TEST_F(DatabaseTest, ScansKeysOfAPrefixInOrder) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  rocksdb::WriteBatch batch;
  for (const char* key : {"b/2", "a", "b/1", "c", "b"}) batch.Put(key, std::string("of ") + key);
  ASSERT_THAT((*database)->Write(batch), IsOk());
  std::string seen;
  const auto visit = [&](std::string_view key, std::string_view value) {
    seen += std::string(key) + " " + std::string(value) + ", ";
    return key != "b/2";
  };
  EXPECT_THAT((*database)->Scan("b/", visit), IsOk());
  EXPECT_EQ(seen, "b/1 of b/1, b/2 of b/2, ");
  seen.clear();
  EXPECT_THAT((*database)->Scan("", visit), IsOk());
  EXPECT_EQ(seen, "a of a, b of b, b/1 of b/1, b/2 of b/2, ");
  seen.clear();
  EXPECT_THAT((*database)->Scan("x", visit), IsOk());
  EXPECT_EQ(seen, "");
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

TEST_F(DatabaseTest, ItsListIsLikeNoOtherWhereItCannotBeRead) {
  ASSERT_THAT(Database::Create(PosixFileSystem(), path_), IsOk());
  const auto list_as_opened = [&](const std::string& unreadable) {
    FailingFileSystem files(PosixFileSystem());
    files.SetRule([&, left = 1](const FailingFileSystem::Call& call) mutable {
      const bool fails = call.operation == "OpenForRead" && !unreadable.empty() &&
                         call.path.starts_with(path_ + "/" + unreadable) && left-- > 0;
      return fails ? absl::InternalError("EIO") : absl::OkStatus();
    });
    auto database = Database::Open(files, path_);
    EXPECT_THAT(database, IsOk());
    return database.ok() ? (*database)->list_as_opened() : "none";
  };
  EXPECT_THAT(list_as_opened(""), HasSubstr("MANIFEST-"));
  for (const std::string file : {"IDENTITY", "CURRENT", "MANIFEST-"}) EXPECT_EQ(list_as_opened(file), "") << file;
}

TEST_F(DatabaseTest, IsReadWithoutAHashOfItsList) {
  ASSERT_THAT(Database::Create(PosixFileSystem(), path_), IsOk());
  EXPECT_EQ((*Database::OpenReadOnly(PosixFileSystem(), path_))->list_as_opened(), "");
}

// RocksDB has one code for every shortage, that of a full disk, so the message must name what is short.
TEST_F(DatabaseTest, SaysWhereAProcessHasTooManyFilesOpen) {
  ASSERT_THAT(Database::Create(PosixFileSystem(), path_), IsOk());
  FailingFileSystem files(PosixFileSystem());
  const absl::Status error = ErrnoStatus(EMFILE, "open", "x");
  int refused = 0;
  for (const char* operation : {"OpenForRead", "Create", "TryLock"}) {
    for (size_t before = 0; before < 8; ++before) {
      files.Reset();
      files.FailOperation(operation, error, before);
      const absl::Status opened = Database::Open(files, path_).status();
      if (opened.ok()) continue;
      ++refused;
      EXPECT_THAT(opened, StatusIs(absl::StatusCode::kResourceExhausted,
                                   AllOf(HasSubstr("Too many open files (EMFILE)"), Not(HasSubstr("No space")))))
          << operation << " after " << before;
    }
  }
  EXPECT_GE(refused, 3);
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

// What a failed sync leaves in the log is read from memory, where the disk may not have it.
TEST_F(DatabaseTest, ShowsNothingForDurableThatTheDiskMayNotHave) {
  FailingFileSystem files(PosixFileSystem());
  auto database = Database::Create(files, path_);
  ASSERT_THAT(database, IsOk());
  rocksdb::WriteBatch first = Batch("first");
  ASSERT_THAT((*database)->Write(first), IsOk());
  files.SetRule([](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "SyncData" || call.operation == "Create";
    return fails ? absl::InternalError("x: Input/output error (EIO)") : absl::OkStatus();
  });
  size_t used = 0;
  const auto use = [&](rocksdb::DB&) {
    ++used;
    return absl::OkStatus();
  };
  EXPECT_THAT((*database)->UseDurable(use), IsOk());
  EXPECT_EQ(used, 1u);
  rocksdb::WriteBatch second = Batch("second");
  EXPECT_THAT((*database)->Write(second), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT((*database)->Write(second), StatusIs(absl::StatusCode::kInternal, HasSubstr("reopen manifest")));
  EXPECT_EQ(Read(**database), "second") << "it can only be read";
  EXPECT_THAT((*database)->UseDurable(use),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("reopen manifest"), HasSubstr("EIO"))));
  EXPECT_EQ(used, 1u);
  files.Reset();
  EXPECT_THAT((*database)->UseDurable(use), IsOk());
  EXPECT_EQ(used, 2u);
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

// A manifest that is damaged is rebuilt, and what only it knew is lost: that a device or a right failed is no damage.
TEST_F(DatabaseTest, CorruptionThatIsAnErrorOfTheDeviceIsNoDamage) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  const std::string missing = rocksdb::Status::PathNotFound("open 8.ldb", "(ENOENT)").ToString();
  const std::string failing = rocksdb::Status::IOError("open 8.sst", "Input/output error (EIO)").ToString();
  const std::string denied = rocksdb::Status::IOError("open 8.sst", "Permission denied (EACCES)").ToString();
  const auto code = [&](const std::string& words) {
    return (*database)->Translate(rocksdb::Status::Corruption("Can't access /8.sst", words), "read").code();
  };
  EXPECT_EQ(code("bits"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(missing), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(missing + "\n" + missing), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(failing), absl::StatusCode::kInternal);
  EXPECT_EQ(code(missing + "\n" + failing), absl::StatusCode::kInternal);
  EXPECT_EQ(code(denied), absl::StatusCode::kPermissionDenied);
}

// A database with its record in a table or in the log, and a disk that fails at the file of that name.
class DatabaseOnAFailingDiskTest : public DatabaseTest {
 protected:
  void Create(bool in_table) {
    auto database = Database::Create(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch = Batch("x");
    ASSERT_THAT((*database)->Write(batch), IsOk());
    if (!in_table) return;
    ASSERT_THAT((*database)->Use([](rocksdb::DB& db) {
      return db.Flush(rocksdb::FlushOptions()).ok() ? absl::OkStatus() : absl::InternalError("flush");
    }),
                IsOk());
  }
  void Fail(const std::string& operation, const std::string& file, int error, int times = 1) {
    files_.SetRule([=, left = times](const FailingFileSystem::Call& call) mutable {
      if (call.operation != operation || call.path.find(file) == std::string::npos || left-- <= 0) {
        return absl::OkStatus();
      }
      return ErrnoStatus(error, operation, call.path);
    });
  }
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(DatabaseOnAFailingDiskTest, TakesATableThatCannotBeOpenedForNoDamage) {
  Create(/*in_table=*/true);
  Fail("OpenForRead", ".sst", EIO);
  EXPECT_THAT(Database::Open(files_, path_),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr(".sst"), HasSubstr("(EIO)"))));
  EXPECT_EQ(Read(**Database::Open(files_, path_)), "x");
}

TEST_F(DatabaseOnAFailingDiskTest, TakesATableThatIsMissingForDamage) {
  Create(/*in_table=*/true);
  Fail("OpenForRead", ".sst", ENOENT, 100);
  EXPECT_THAT(Database::Open(files_, path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("(ENOENT)")));
}

TEST_F(DatabaseOnAFailingDiskTest, TakesALogThatAServerDoesNotGiveOutForNoEndOfIt) {
  Create(/*in_table=*/false);
  for (const int error : {ETIMEDOUT, EBUSY, EINVAL, EIO, EACCES, EMFILE}) {
    for (const std::string operation : {"OpenForRead", "Size", "ReadAt"}) {
      Fail(operation, ".log", error, 100);
      EXPECT_THAT(
          Database::Open(files_, path_),
          StatusIs(ErrnoStatus(error, "", "").code(), AllOf(HasSubstr(operation), HasSubstr(strerrorname_np(error)))));
    }
  }
  files_.SetRule(nullptr);
  EXPECT_EQ(Read(**Database::Open(files_, path_)), "x");
}

TEST_F(DatabaseOnAFailingDiskTest, SaysWhatFailedWhereRocksDbSaysSomethingElse) {
  Create(/*in_table=*/true);
  // After what stamps the list of files, RocksDB looks at it twice, finds it readable then and complains of direct
  // transfers.
  Fail("OpenForRead", "CURRENT", EIO, 2);
  EXPECT_THAT(Database::Open(files_, path_),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("OpenForRead"), HasSubstr("(EIO)"))));
  // It goes on with a size that it does not have.
  files_.SetRule(nullptr);
  auto database = Database::Open(files_, path_);
  ASSERT_THAT(database, IsOk());
  Fail("Size", ".sst", EMFILE);
  EXPECT_THAT((*database)->Use([&](rocksdb::DB& db) { return (*database)->Translate(db.VerifyChecksum(), "verify"); }),
              StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("Size"), HasSubstr("(EMFILE)"))));
  EXPECT_FALSE((*database)->damage_found());
}

TEST_F(DatabaseOnAFailingDiskTest, KeepsDamageApartFromWhatFailedBefore) {
  Create(/*in_table=*/false);
  Fail("ListDirectory", "manifest", EIO, 100);
  EXPECT_FALSE(Database::Open(files_, path_).ok());
  files_.SetRule(nullptr);
  std::ofstream(path_ + "/CURRENT") << "garbage";
  EXPECT_THAT(Database::Open(files_, path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("CURRENT")));
}

}  // namespace
}  // namespace tidemark::storage
