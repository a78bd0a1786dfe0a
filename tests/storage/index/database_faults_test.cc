// Database under every single fault of its disk while tables are written: what was acknowledged stays.

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
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

  // Until the tables are written, or a while where they cannot be: else a quick run would make fewer calls than others.
  void AwaitTables() {
    uint64_t waiting = 1, running = 0;
    for (int tries = 0; tries < 200 && waiting + running > 0; ++tries) {
      const absl::Status looked = database_->Use([&](rocksdb::DB& db) {
        db.GetIntProperty(rocksdb::DB::Properties::kMemTableFlushPending, &waiting);
        db.GetIntProperty(rocksdb::DB::Properties::kNumRunningFlushes, &running);
        return absl::OkStatus();
      });
      if (!looked.ok()) return;
      if (waiting + running > 0) absl::SleepFor(absl::Milliseconds(1));
    }
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
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "index";
  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<Database> database_;
  std::map<std::string, std::string> acknowledged_;
};

// RocksDB passes over a log that it cannot open.
TEST_F(DatabaseFaultsTest, AReaderHasEverythingOrAnErrorWhicheverCallFails) {
  auto created = Database::Create(files_, path_);
  ASSERT_THAT(created, IsOk());
  database_ = *std::move(created);
  ASSERT_THAT(Write("a", 10), IsOk());
  database_.reset();
  auto again = Database::Open(files_, path_);
  ASSERT_THAT(again, IsOk());
  database_ = *std::move(again);
  ASSERT_THAT(Write("b", 10), IsOk());
  database_.reset();
  size_t calls = 1;
  for (size_t call = 0; call < calls; ++call) {
    SCOPED_TRACE(call);
    files_.Reset();
    files_.FailCall(call, absl::InternalError("EIO"));
    auto opened = Database::OpenReadOnly(files_, path_);
    calls = std::max(calls, files_.calls().size());
    files_.Reset();
    if (!opened.ok()) continue;
    database_ = *std::move(opened);
    EXPECT_THAT(database_->log_damage(), IsOk());
    ExpectAcknowledged();
    database_.reset();
  }
  EXPECT_GT(calls, 10u);
}

TEST_F(DatabaseFaultsTest, ATableThatCannotBeWrittenLosesNothing) {
  constexpr size_t kValueBytes = 100'000;  // a few of them make a table
  const auto figures =
      SweepFaults(files_,
                  {.name = "tables",
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
                         EXPECT_EQ(status.ok(), database_->failure().ok());
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

TEST_F(DatabaseExceptionsTest, InACallIsTheLastCall) {
  ThrowFromCalls();
  EXPECT_THAT(Write("b", 10), IsNoMemory());
  files_.Reset();
  EXPECT_THAT(database_->failure(), IsNoMemory());
  EXPECT_THAT(database_->Use([](rocksdb::DB&) {
    ADD_FAILURE() << "it is called once more";
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("not used any more after an exception")));
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

}  // namespace
}  // namespace tidemark::storage
