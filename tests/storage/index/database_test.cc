#include "storage/index/database.h"

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
#include "storage/index/log_blocks.h"
#include "storage/io/errno_status.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/simulated_disk.h"
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
  const std::string path_ = directory_ / "index";
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

// They would be in a file of that name. The index's folder has it itself: only files are refused.
TEST_F(DatabaseTest, ItsOptionsAreKeptInNoFile) {
  const std::string path = directory_ / "OPTIONS-of-a-run";
  ASSERT_THAT(Database::Create(PosixFileSystem(), path), IsOk());
  ASSERT_THAT(Database::Open(PosixFileSystem(), path), IsOk());
  auto entries = PosixFileSystem().ListDirectory(path);
  ASSERT_THAT(entries, IsOk());
  EXPECT_GT(entries->size(), 3u);
  for (const DirectoryEntry& entry : *entries) EXPECT_THAT(entry.name, Not(HasSubstr("OPTIONS")));
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

TEST_F(DatabaseTest, RemembersTheFirstErrorOfAUser) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  EXPECT_THAT((*database)->failure(), IsOk());
  (*database)->Use([](rocksdb::DB&) { return absl::InternalError("EIO"); }).IgnoreError();
  (*database)->Use([](rocksdb::DB&) { return absl::DataLossError("a record"); }).IgnoreError();
  EXPECT_THAT((*database)->Use([](rocksdb::DB&) { return absl::OkStatus(); }), IsOk());
  EXPECT_THAT((*database)->failure(), StatusIs(absl::StatusCode::kInternal, "EIO"));
}

// A change of a record's length makes the end of the list look like what a crash has cut off. RocksDB would open the
// database without the tables that the end names.
TEST_F(DatabaseTest, IsNotOpenedToBeWrittenWhereItsListDoesNotEndWithARecord) {
  SimulatedDisk disk;
  for (int i = 0; i < 2; ++i) {
    auto database = i == 0 ? Database::Create(disk, "/db") : Database::Open(disk, "/db");
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch = Batch("x");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  const std::string current = *ReadSmallFile(disk, "/db/CURRENT", 100);
  const std::string list = "/db/" + current.substr(0, current.find('\n'));
  const std::string sound = *ReadSmallFile(disk, list, 1 << 20);
  const DiskImage image = disk.image();
  const auto open = [&](const std::string& bytes) {
    SimulatedDisk changed(image);
    PutFile(changed, list, bytes);
    return Database::Open(changed, "/db").status();
  };
  EXPECT_THAT(open(sound), IsOk());
  const auto is_damaged = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its list of files is damaged at byte "));
  size_t ends = 0;  // of records
  for (size_t length = 1; length < sound.size(); ++length) {
    const absl::Status opened = open(sound.substr(0, length));
    if (FindSoundRecords(std::string_view(sound).substr(0, length), kLogBlockBytes).bytes == length) {
      ++ends;
    } else {
      EXPECT_THAT(opened, is_damaged) << length;
    }
  }
  EXPECT_LT(ends, 10u);
  for (size_t at = 0; at < sound.size(); ++at) {
    std::string changed = sound;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_THAT(open(changed), is_damaged) << at;
  }
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

TEST_F(DatabaseTest, SaysWhatRocksDbSaysWithOperationAndPath) {
  auto database = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(database, IsOk());
  const auto translated = [&](const rocksdb::Status& status) { return (*database)->Translate(status, "read"); };
  EXPECT_THAT(translated(rocksdb::Status::OK()), IsOk());
  EXPECT_THAT(translated(rocksdb::Status::Corruption("bits")),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("read database " + path_), HasSubstr("bits"))));
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

// Of a manifest of the first format: what only it knew is lost where it is damaged. That a device or a right failed is
// no damage.
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
  void Fail(const std::string& operation, const std::string& file, int error, int times = 1, int after = 0) {
    files_.SetRule([=, seen = 0](const FailingFileSystem::Call& call) mutable {
      if (call.operation != operation || call.path.find(file) == std::string::npos) return absl::OkStatus();
      if (++seen <= after || seen > after + times) return absl::OkStatus();
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
      const auto refused =
          StatusIs(ErrnoStatus(error, "", "").code(), AllOf(HasSubstr(operation), HasSubstr(strerrorname_np(error))));
      Fail(operation, ".log", error, 1000);
      EXPECT_THAT(Database::Open(files_, path_), refused);
      EXPECT_THAT(Database::OpenReadOnly(files_, path_), refused);
    }
  }
  files_.SetRule(nullptr);
  EXPECT_EQ(Read(**Database::Open(files_, path_)), "x");
}

TEST_F(DatabaseOnAFailingDiskTest, SaysWhatFailedWhereRocksDbSaysSomethingElse) {
  Create(/*in_table=*/true);
  // After what checks the list of files, RocksDB looks at it twice, finds it readable then and complains of direct
  // transfers.
  Fail("OpenForRead", "CURRENT", EIO, 2, /*after=*/1);
  EXPECT_THAT(Database::Open(files_, path_),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("OpenForRead"), HasSubstr("(EIO)"))));
  // It goes on with a size that it does not have.
  files_.SetRule(nullptr);
  auto database = Database::Open(files_, path_);
  ASSERT_THAT(database, IsOk());
  Fail("Size", ".sst", EMFILE);
  EXPECT_THAT((*database)->Use([&](rocksdb::DB& db) { return (*database)->Translate(db.VerifyChecksum(), "verify"); }),
              StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("Size"), HasSubstr("(EMFILE)"))));
}

TEST_F(DatabaseOnAFailingDiskTest, KeepsDamageApartFromWhatFailedBefore) {
  Create(/*in_table=*/false);
  Fail("ListDirectory", "index", EIO, 100);
  EXPECT_FALSE(Database::Open(files_, path_).ok());
  files_.SetRule(nullptr);
  std::ofstream(path_ + "/CURRENT") << "garbage";
  EXPECT_THAT(Database::Open(files_, path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("CURRENT")));
}

}  // namespace
}  // namespace tidemark::storage
