// Database under every single fault of its disk while RocksDB writes tables in its own threads: what was acknowledged
// stays, and once the disk is healthy again the next write succeeds.

#include <map>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

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

}  // namespace
}  // namespace tidemark::storage
