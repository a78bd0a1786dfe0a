// Database under every single fault of its disk while RocksDB writes tables in its own threads: what was acknowledged
// stays, and once the disk is healthy again the next write succeeds.

#include <map>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

class DatabaseFaultsTest : public testing::Test {
 protected:
  absl::Status Write(const std::string& key, size_t bytes) {
    rocksdb::WriteBatch batch;
    const std::string value(bytes, key.back());
    batch.Put(key, value);
    absl::Status status = database_->Write(batch);
    if (status.ok()) acknowledged_[key] = value;
    return status;
  }

  // Until RocksDB's threads have tried to write what they were to write; none are there where it could not be reopened.
  void AwaitTables() {
    database_
        ->Use([](rocksdb::DB& db) {
          const bool paused = db.PauseBackgroundWork().ok() && db.ContinueBackgroundWork().ok();
          return paused ? absl::OkStatus() : absl::InternalError("pause");
        })
        .IgnoreError();
  }

  void ExpectAcknowledged() {
    for (const auto& [key, expected] : acknowledged_) {
      std::string value;
      ASSERT_THAT(database_->Use([&, key = key](rocksdb::DB& db) {
        return database_->Translate(db.Get(rocksdb::ReadOptions(), key, &value), "read");
      }),
                  IsOk());
      EXPECT_TRUE(value == expected) << key;
    }
    EXPECT_FALSE(database_->damage_found());
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "manifest";
  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<Database> database_;
  std::map<std::string, std::string> acknowledged_;
};

TEST_F(DatabaseFaultsTest, ATableThatCannotBeWrittenLosesNothingAndStopsNoLaterWrite) {
  constexpr size_t kValueBytes = 100'000;  // a few of them are what RocksDB keeps in memory
  const auto figures =
      SweepFaults(files_,
                  {.name = "manifest's tables",
                   .prepare =
                       [&] {
                         std::filesystem::remove_all(path_);
                         acknowledged_.clear();
                         auto created = Database::Create(files_, path_);
                         ASSERT_THAT(created, IsOk());
                         database_ = *std::move(created);
                       },
                   .act =
                       [&] {
                         absl::Status status;
                         for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h"})
                           status.Update(Write(key, kValueBytes));
                         AwaitTables();
                         return status;
                       },
                   .check =
                       [&](const absl::Status& status, const InjectedFault& fault) {
                         EXPECT_TRUE(status.ok() || fault.Explains(status));
                         ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged());
                         EXPECT_THAT(Write("z", 10), IsOk());
                         AwaitTables();
                         ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged());
                         database_.reset();
                         auto opened = Database::Open(files_, path_);
                         ASSERT_THAT(opened, IsOk());
                         database_ = *std::move(opened);
                         ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged());
                         database_.reset();
                       }},
                  FaultsToRun(20));  // after each that it meets there, a thread of RocksDB's sleeps for a second
  EXPECT_TRUE(figures.any_reported());
}

// RocksDB's assertions fail if it is closed after an exception, and its lock stays taken if its opening throws.
class DatabaseExceptionsTest : public DatabaseFaultsTest {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "what RocksDB loses to an exception is a leak";
    auto created = Database::Create(files_, path_);
    ASSERT_THAT(created, IsOk());
    database_ = *std::move(created);
    EXPECT_THAT(Write("a", 10), IsOk());
  }

  // From now on RocksDB's calls on this thread throw, as where there is no memory.
  void ThrowFromCalls() {
    files_.SetRule([thread = std::this_thread::get_id()](const FailingFileSystem::Call&) -> absl::Status {
      if (std::this_thread::get_id() == thread) throw std::bad_alloc();
      return absl::OkStatus();
    });
  }

  static constexpr auto IsNoMemory = [] { return StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory")); };
};

TEST_F(DatabaseExceptionsTest, InAWriteIsAnErrorAfterWhichTheDatabaseIsOpenedAnew) {
  ThrowFromCalls();
  EXPECT_THAT(Write("b", 10), IsNoMemory());
  files_.Reset();
  ExpectAcknowledged();
  EXPECT_THAT(Write("c", 10), IsOk());
  ExpectAcknowledged();
  database_.reset();
  EXPECT_THAT(Database::Open(files_, path_), IsOk());
}

TEST_F(DatabaseExceptionsTest, InTheLastWriteLetsTheDatabaseClose) {
  ThrowFromCalls();
  EXPECT_THAT(Write("b", 10), IsNoMemory());
  files_.Reset();
  database_.reset();
  auto opened = Database::Open(files_, path_);
  ASSERT_THAT(opened, IsOk());
  database_ = *std::move(opened);
  ExpectAcknowledged();
}

TEST_F(DatabaseExceptionsTest, InAnyCallOfAnOpeningLetTheNextOneOpenIt) {
  database_.reset();
  files_.Reset();
  EXPECT_THAT(Database::Open(files_, path_), IsOk());
  const size_t calls = files_.calls().size();
  int failures = 0;
  for (size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(testing::Message() << "call " << i << " of " << calls);
    files_.Reset();
    files_.SetRule([i](const FailingFileSystem::Call& call) -> absl::Status {
      if (call.index == i) throw std::bad_alloc();
      return absl::OkStatus();
    });
    try {
      const auto opened = Database::Open(files_, path_);
      if (!opened.ok()) {
        EXPECT_THAT(opened, IsNoMemory());
        ++failures;
      }
    } catch (const std::bad_alloc&) {  // from a call of our own
    }
    files_.Reset();
    auto opened = Database::Open(files_, path_);
    ASSERT_THAT(opened, IsOk());
    database_ = *std::move(opened);
    ExpectAcknowledged();
    database_.reset();
  }
  EXPECT_GT(failures, 5);
}

TEST_F(DatabaseExceptionsTest, InAReaderLetItCatchUp) {
  auto opened = Database::OpenFollowing(files_, path_);
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(Write("b", 10), IsOk());
  ThrowFromCalls();
  try {
    EXPECT_FALSE((*opened)->CatchUp().ok());
  } catch (const std::bad_alloc&) {  // from a call of our own
  }
  files_.Reset();
  EXPECT_THAT((*opened)->CatchUp(), IsOk());
  std::string value;
  EXPECT_THAT((*opened)->Use([&](rocksdb::DB& db) {
    return (*opened)->Translate(db.Get(rocksdb::ReadOptions(), "b", &value), "read");
  }),
              IsOk());
}

// No object that an exception has passed through is called again, and the new one has what was written since.
TEST_F(DatabaseExceptionsTest, InAReaderLetItOpenTheDatabaseAnew) {
  const auto open = [&](bool following) {
    return following ? Database::OpenFollowing(files_, path_) : Database::OpenReadOnly(files_, path_);
  };
  for (const bool following : {false, true}) {
    SCOPED_TRACE(following ? "following" : "read only");
    auto reader = open(following);
    ASSERT_THAT(reader, IsOk());
    const auto read = [&](const std::string& key, rocksdb::DB** used) {
      std::string value;
      return (*reader)->Use([&](rocksdb::DB& db) {
        *used = &db;
        return (*reader)->Translate(db.Get(rocksdb::ReadOptions(), key, &value), "read");
      });
    };
    rocksdb::DB* first = nullptr;
    ASSERT_THAT(read("a", &first), IsOk());
    const std::string key = following ? "f" : "r";
    ASSERT_THAT(Write(key, 10), IsOk());
    const auto throws = [](rocksdb::DB&) -> absl::Status { throw std::bad_alloc(); };
    EXPECT_THAT((*reader)->Use(throws), IsNoMemory());
    // Without a disk to open it from it says so, and does not use the old one.
    files_.SetRule([](const FailingFileSystem::Call&) { return absl::InternalError("EIO"); });
    rocksdb::DB* second = nullptr;
    EXPECT_FALSE(read("a", &second).ok());
    EXPECT_EQ(second, nullptr);
    if (following) {
      EXPECT_FALSE((*reader)->CatchUp().ok());
    }
    files_.Reset();
    EXPECT_THAT(read(key, &second), IsOk());
    EXPECT_NE(second, first);
    if (following) {
      const absl::StatusOr<bool> changed = (*reader)->CatchUp();
      ASSERT_THAT(changed, IsOk());
      EXPECT_TRUE(*changed) << "what Use took in";
      EXPECT_FALSE(*(*reader)->CatchUp());
    }
    EXPECT_THAT(read(key, &second), IsOk());
  }
}

}  // namespace
}  // namespace tidemark::storage
