#include "storage/index/rocks_env.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/file_system.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using rocksdb::IOStatus;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RocksEnvTest : public testing::Test {
 protected:
  std::unique_ptr<rocksdb::FSWritableFile> Create(const std::string& path) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    EXPECT_TRUE(rocks_.NewWritableFile(path, {}, &file, nullptr).ok());
    return file;
  }
  void Put(const std::string& path, const std::string& bytes) {
    EXPECT_TRUE(Create(path)->Append(bytes, {}, nullptr).ok());
  }
  std::string Get(const std::string& path) { return ReadSmallFile(disk_, path, 1 << 20).value_or("none"); }
  bool Exists(const std::string& path) { return disk_.TypeOf(path).ok(); }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
  const std::unique_ptr<rocksdb::Env> env_ = NewRocksEnv(files_);
  rocksdb::FileSystem& rocks_ = *env_->GetFileSystem();
};

TEST_F(RocksEnvTest, AnswersInRocksDbsCodesAndOurWords) {
  const auto answer = [&](StatusCode code) {
    files_.FailOperation("RemoveFile", absl::Status(code, "remove x: why"));
    return rocks_.DeleteFile("/x", {}, nullptr);
  };
  EXPECT_TRUE(answer(StatusCode::kNotFound).IsPathNotFound());
  EXPECT_TRUE(answer(StatusCode::kResourceExhausted).IsNoSpace());
  EXPECT_TRUE(answer(StatusCode::kUnimplemented).IsNotSupported());
  for (const StatusCode code :
       {StatusCode::kUnavailable, StatusCode::kInvalidArgument, StatusCode::kInternal, StatusCode::kPermissionDenied,
        StatusCode::kFailedPrecondition, StatusCode::kAlreadyExists, StatusCode::kDataLoss, StatusCode::kCancelled}) {
    const IOStatus status = answer(code);
    EXPECT_TRUE(status.IsIOError()) << status.ToString();
    EXPECT_FALSE(status.IsPathNotFound() || status.IsNoSpace()) << status.ToString();
    EXPECT_THAT(status.ToString(), HasSubstr("remove x: why"));
  }
}

TEST_F(RocksEnvTest, ALockThatIsHeldIsBusy) {
  rocksdb::FileLock* lock = nullptr;
  ASSERT_TRUE(rocks_.LockFile("/LOCK", {}, &lock, nullptr).ok());
  rocksdb::FileLock* second = nullptr;
  EXPECT_TRUE(rocks_.LockFile("/LOCK", {}, &second, nullptr).IsBusy());
  EXPECT_TRUE(rocks_.UnlockFile(lock, {}, nullptr).ok());
}

TEST_F(RocksEnvTest, KeepsTheFirstFailureOfAFileForWhoAsks) {
  const auto fail = [&](const char* text) {
    files_.FailOperation("RemoveFile", absl::InternalError(text));
    EXPECT_FALSE(rocks_.DeleteFile("/x", {}, nullptr).ok());
  };
  fail("before");
  EXPECT_THAT(FileFailures::Take(), IsOk()) << "nobody asked for it";
  const FileFailures failures;
  EXPECT_FALSE(rocks_.DeleteFile("/none", {}, nullptr).ok());  // not there: no failure of the file's
  fail("first");
  fail("second");
  {
    const FileFailures inner;
    EXPECT_THAT(FileFailures::Take(), IsOk());
    fail("inner");
  }
  std::thread([&] { fail("another thread's"); }).join();
  EXPECT_EQ(FileFailures::Take(), absl::InternalError("first"));
  EXPECT_THAT(FileFailures::Take(), IsOk());
}

TEST_F(RocksEnvTest, EveryCallAnswersWhatTheFileSystemDoes) {
  Put("/x", "abc");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  std::unique_ptr<rocksdb::FSRandomAccessFile> random;
  std::unique_ptr<rocksdb::FSWritableFile> writable;
  std::unique_ptr<rocksdb::FSDirectory> directory;
  std::vector<std::string> names;
  uint64_t size = 0;
  bool is_directory = false;
  rocksdb::FileLock* lock = nullptr;
  const std::pair<const char*, std::function<IOStatus()>> cases[] = {
      {"OpenForRead", [&] { return rocks_.NewSequentialFile("/x", {}, &sequential, nullptr); }},
      {"OpenForRead", [&] { return rocks_.NewRandomAccessFile("/x", {}, &random, nullptr); }},
      {"Size", [&] { return rocks_.NewRandomAccessFile("/x", {}, &random, nullptr); }},
      {"Create", [&] { return rocks_.NewWritableFile("/new", {}, &writable, nullptr); }},
      {"RemoveFile", [&] { return rocks_.NewWritableFile("/x", {}, &writable, nullptr); }},
      {"TypeOf", [&] { return rocks_.NewDirectory("/", {}, &directory, nullptr); }},
      {"TypeOf", [&] { return rocks_.FileExists("/x", {}, nullptr); }},
      {"ListDirectory", [&] { return rocks_.GetChildren("/", {}, &names, nullptr); }},
      {"RemoveFile", [&] { return rocks_.DeleteFile("/x", {}, nullptr); }},
      {"CreateDirectory", [&] { return rocks_.CreateDir("/d", {}, nullptr); }},
      {"CreateDirectory", [&] { return rocks_.CreateDirIfMissing("/d", {}, nullptr); }},
      {"RemoveDirectory", [&] { return rocks_.DeleteDir("/d", {}, nullptr); }},
      {"OpenForRead", [&] { return rocks_.GetFileSize("/x", {}, &size, nullptr); }},
      {"Size", [&] { return rocks_.GetFileSize("/x", {}, &size, nullptr); }},
      {"Rename", [&] { return rocks_.RenameFile("/x", "/y", {}, nullptr); }},
      {"TryLock", [&] { return rocks_.LockFile("/lock", {}, &lock, nullptr); }},
      {"TypeOf", [&] { return rocks_.IsDirectory("/x", {}, &is_directory, nullptr); }},
  };
  const auto image = disk_.image().Contents();
  for (const auto& [operation, call] : cases) {
    files_.FailOperation(operation, absl::InternalError("EIO"));
    const IOStatus status = call();
    EXPECT_TRUE(status.IsIOError() && status.ToString().find("EIO") != std::string::npos)
        << operation << ": " << status.ToString();
  }
  EXPECT_EQ(sequential, nullptr);
  EXPECT_EQ(random, nullptr);
  EXPECT_EQ(writable, nullptr);
  EXPECT_EQ(directory, nullptr);
  EXPECT_EQ(lock, nullptr);
  EXPECT_EQ(disk_.image().Contents(), image);
}

TEST_F(RocksEnvTest, EveryCallOnAnOpenFileAnswersWhatTheFileDoes) {
  Put("/x", "abc");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  std::unique_ptr<rocksdb::FSRandomAccessFile> random;
  std::unique_ptr<rocksdb::FSDirectory> directory;
  ASSERT_TRUE(rocks_.NewSequentialFile("/x", {}, &sequential, nullptr).ok());
  ASSERT_TRUE(rocks_.NewRandomAccessFile("/x", {}, &random, nullptr).ok());
  ASSERT_TRUE(rocks_.NewDirectory("/", {}, &directory, nullptr).ok());
  const auto writable = Create("/y");
  char scratch[10];
  rocksdb::Slice result;
  const std::pair<const char*, std::function<IOStatus()>> cases[] = {
      {"Size", [&] { return sequential->Read(3, {}, &result, scratch, nullptr); }},
      {"ReadAt", [&] { return sequential->Read(3, {}, &result, scratch, nullptr); }},
      {"ReadAt", [&] { return random->Read(0, 3, {}, &result, scratch, nullptr); }},
      {"WriteAt", [&] { return writable->Append("abc", {}, nullptr); }},
      {"Truncate", [&] { return writable->Truncate(1, {}, nullptr); }},
      {"SyncData", [&] { return writable->Sync({}, nullptr); }},
      {"SyncData", [&] { return writable->Fsync({}, nullptr); }},
      {"Close", [&] { return writable->Close({}, nullptr); }},
      {"SyncDirectory", [&] { return directory->Fsync({}, nullptr); }},
  };
  for (const auto& [operation, call] : cases) {
    files_.FailOperation(operation, absl::InternalError("EIO"));
    result = "old";
    EXPECT_TRUE(call().IsIOError()) << operation;
    if (operation == std::string("Size") || operation == std::string("ReadAt")) {
      EXPECT_TRUE(result.empty()) << operation;
    }
  }
  EXPECT_EQ(writable->GetFileSize({}, nullptr), 0u) << "what was not written does not count";
  files_.Reset();
  ASSERT_TRUE(sequential->Read(3, {}, &result, scratch, nullptr).ok());
  EXPECT_EQ(result.ToString(), "abc") << "what failed to be read was not passed over";
}

TEST_F(RocksEnvTest, ReadsEndWhereTheFileDoes) {
  Put("/x", "abcdef");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  std::unique_ptr<rocksdb::FSRandomAccessFile> random;
  ASSERT_TRUE(rocks_.NewSequentialFile("/x", {}, &sequential, nullptr).ok());
  ASSERT_TRUE(rocks_.NewRandomAccessFile("/x", {}, &random, nullptr).ok());
  char scratch[10];
  rocksdb::Slice result;
  const auto read_on = [&](size_t n) {
    EXPECT_TRUE(sequential->Read(n, {}, &result, scratch, nullptr).ok());
    return result.ToString();
  };
  const auto read_at = [&](uint64_t offset, size_t n) {
    EXPECT_TRUE(random->Read(offset, n, {}, &result, scratch, nullptr).ok());
    return result.ToString();
  };
  EXPECT_EQ(read_on(2), "ab");
  EXPECT_TRUE(sequential->Skip(1).ok());
  EXPECT_EQ(read_on(10), "def");
  EXPECT_EQ(read_on(10), "");
  EXPECT_TRUE(sequential->Skip(7).ok());
  EXPECT_EQ(read_on(10), "");
  EXPECT_EQ(read_at(2, 3), "cde");
  EXPECT_EQ(read_at(4, 10), "ef");
  EXPECT_EQ(read_at(6, 1), "");
  EXPECT_EQ(read_at(1000, 1), "");
}

TEST_F(RocksEnvTest, AsksForASizeOnlyWhereAFileMayHaveGrown) {
  Put("/x", "abcdef");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  std::unique_ptr<rocksdb::FSRandomAccessFile> random;
  ASSERT_TRUE(rocks_.NewSequentialFile("/x", {}, &sequential, nullptr).ok());
  ASSERT_TRUE(rocks_.NewRandomAccessFile("/x", {}, &random, nullptr).ok());
  files_.Reset();
  char scratch[10];
  rocksdb::Slice result;
  EXPECT_TRUE(random->Read(2, 2, {}, &result, scratch, nullptr).ok());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(sequential->Read(2, {}, &result, scratch, nullptr).ok());
  EXPECT_THAT(files_.operations(), testing::ElementsAre("ReadAt", "Size", "ReadAt", "ReadAt", "ReadAt", "Size"));
}

TEST_F(RocksEnvTest, FollowsAFileThatGrows) {
  const auto file = Create("/x");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  ASSERT_TRUE(rocks_.NewSequentialFile("/x", {}, &sequential, nullptr).ok());
  char scratch[10];
  rocksdb::Slice result;
  for (const char* bytes : {"abc", "de"}) {
    ASSERT_TRUE(sequential->Read(10, {}, &result, scratch, nullptr).ok());
    EXPECT_EQ(result.size(), 0u);
    ASSERT_TRUE(file->Append(bytes, {}, nullptr).ok());
    ASSERT_TRUE(sequential->Read(10, {}, &result, scratch, nullptr).ok());
    EXPECT_EQ(result.ToString(), bytes);
  }
}

TEST_F(RocksEnvTest, WritesAtTheEnd) {
  const auto file = Create("/x");
  ASSERT_TRUE(file->Append("abc", {}, nullptr).ok());
  ASSERT_TRUE(file->Append("def", {}, nullptr).ok());
  EXPECT_EQ(file->GetFileSize({}, nullptr), 6u);
  ASSERT_TRUE(file->Truncate(4, {}, nullptr).ok());
  ASSERT_TRUE(file->Append("x", {}, nullptr).ok());
  ASSERT_TRUE(file->Flush({}, nullptr).ok());
  EXPECT_EQ(Get("/x"), "abcdx") << "written through";
  EXPECT_TRUE(file->Sync({}, nullptr).ok());
  EXPECT_TRUE(file->Close({}, nullptr).ok());
}

// Who has the old file open goes on with it, as a follower does.
TEST_F(RocksEnvTest, NewFileReplacesOneOfThatName) {
  Put("/x", "an older and longer one");
  auto reader = disk_.OpenForRead("/x", false);
  ASSERT_THAT(reader, IsOk());
  Put("/x", "new");
  EXPECT_EQ(Get("/x"), "new");
  EXPECT_EQ(*(*reader)->Size(), 23u);
  ASSERT_THAT(disk_.CreateDirectory("/d"), IsOk());
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT_TRUE(rocks_.NewWritableFile("/d", {}, &file, nullptr).IsIOError());
  EXPECT_TRUE(rocks_.NewWritableFile("/none/x", {}, &file, nullptr).IsPathNotFound());
  EXPECT_EQ(file, nullptr);
}

TEST_F(RocksEnvTest, TellsWhatThereIs) {
  Put("/x", "abc");
  ASSERT_TRUE(rocks_.CreateDir("/d", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.FileExists("/x", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.FileExists("/none", {}, nullptr).IsNotFound());
  EXPECT_FALSE(rocks_.FileExists("/none", {}, nullptr).IsIOError());
  bool is_directory = false;
  EXPECT_TRUE(rocks_.IsDirectory("/d", {}, &is_directory, nullptr).ok());
  EXPECT_TRUE(is_directory);
  EXPECT_TRUE(rocks_.IsDirectory("/x", {}, &is_directory, nullptr).ok());
  EXPECT_FALSE(is_directory);
  uint64_t size = 0;
  EXPECT_TRUE(rocks_.GetFileSize("/x", {}, &size, nullptr).ok());
  EXPECT_EQ(size, 3u);
  std::string absolute;
  EXPECT_TRUE(rocks_.GetAbsolutePath("d/x", {}, &absolute, nullptr).ok());
  EXPECT_EQ(absolute, "d/x");
  EXPECT_TRUE(rocks_.GetFileModificationTime("/x", {}, &size, nullptr).IsNotSupported());
  EXPECT_TRUE(rocks_.GetTestDirectory({}, &absolute, nullptr).IsNotSupported());
}

TEST_F(RocksEnvTest, ListsNamesInPlaceOfThoseBefore) {
  Put("/x", "");
  Put("/b", "");
  std::vector<std::string> names = {"old"};
  EXPECT_TRUE(rocks_.GetChildren("/", {}, &names, nullptr).ok());
  EXPECT_THAT(names, ElementsAre("b", "x"));
  EXPECT_TRUE(rocks_.GetChildren("/none", {}, &names, nullptr).IsPathNotFound());
  EXPECT_THAT(names, IsEmpty());
}

TEST_F(RocksEnvTest, MakesDirectoriesAndRefusesFilesInTheirPlace) {
  Put("/x", "");
  EXPECT_TRUE(rocks_.CreateDir("/d", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.CreateDir("/d", {}, nullptr).IsIOError());
  EXPECT_TRUE(rocks_.CreateDirIfMissing("/d", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.CreateDirIfMissing("/x", {}, nullptr).IsIOError());
  std::unique_ptr<rocksdb::FSDirectory> directory;
  EXPECT_TRUE(rocks_.NewDirectory("/x", {}, &directory, nullptr).IsIOError());
  EXPECT_TRUE(rocks_.NewDirectory("/none", {}, &directory, nullptr).IsPathNotFound());
  EXPECT_EQ(directory, nullptr);
  Put("/d/y", "");
  EXPECT_TRUE(rocks_.DeleteDir("/d", {}, nullptr).IsIOError());
  EXPECT_TRUE(rocks_.RenameFile("/d/y", "/x", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.DeleteDir("/d", {}, nullptr).ok());
  EXPECT_TRUE(rocks_.DeleteFile("/x", {}, nullptr).ok());
  EXPECT_FALSE(Exists("/d") || Exists("/x"));
}

TEST_F(RocksEnvTest, SyncsFilesAndDirectories) {
  const auto file = Create("/x");
  ASSERT_TRUE(file->Append("abc", {}, nullptr).ok());
  ASSERT_TRUE(file->Sync({}, nullptr).ok());
  std::unique_ptr<rocksdb::FSDirectory> directory;
  ASSERT_TRUE(rocks_.NewDirectory("/", {}, &directory, nullptr).ok());
  ASSERT_TRUE(directory->FsyncWithDirOptions({}, nullptr, {}).ok());
  EXPECT_TRUE(directory->Close({}, nullptr).ok());
  const DiskLog log = disk_.log();
  EXPECT_THAT(log.Unsynced(log.operations.size()), IsEmpty());
}

TEST_F(RocksEnvTest, LocksKeepOthersOutUntilTheyAreReleased) {
  rocksdb::FileLock* lock = nullptr;
  ASSERT_TRUE(rocks_.LockFile("/lock", {}, &lock, nullptr).ok());
  rocksdb::FileLock* second = nullptr;
  EXPECT_TRUE(rocks_.LockFile("/lock", {}, &second, nullptr).IsBusy());
  EXPECT_EQ(second, nullptr);
  EXPECT_TRUE(rocks_.UnlockFile(lock, {}, nullptr).ok());
  ASSERT_TRUE(rocks_.LockFile("/lock", {}, &second, nullptr).ok());
  EXPECT_TRUE(rocks_.UnlockFile(second, {}, nullptr).ok());
}

// A database with two keys, written anew in each test.
class DatabaseOnRocksEnvTest : public RocksEnvTest {
 protected:
  absl::StatusOr<std::unique_ptr<Database>> Open() { return Database::Open(files_, "/db"); }
  static absl::Status Write(Database& database, const std::string& value) {
    rocksdb::WriteBatch batch;
    batch.Put("key", value);
    batch.Put("other", value);
    return database.Write(batch);
  }
  static std::string Read(Database& database, const std::string& key = "key") {
    std::string value;
    const absl::Status status = database.Use(
        [&](rocksdb::DB& db) { return database.Translate(db.Get(rocksdb::ReadOptions(), key, &value), "read"); });
    return status.ok() ? value : status.ToString();
  }
  // What a boot from this image finds.
  static std::string ReadFrom(const DiskImage& image) {
    SimulatedDisk disk(image);
    auto database = Database::Open(disk, "/db");
    if (!database.ok()) return database.status().ToString();
    EXPECT_EQ(Read(**database), Read(**database, "other")) << "a batch is there whole or not at all";
    return Read(**database);
  }
  void SetUp() override {
    auto database = Database::Create(files_, "/db");
    ASSERT_THAT(database, IsOk());
    ASSERT_THAT(Write(**database, "old"), IsOk());
    ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
    files_.Reset();
  }
};

TEST_F(DatabaseOnRocksEnvTest, EveryCallOfAWriteMayFailOnceOrFromThenOn) {
  size_t calls = 0;
  {
    auto database = Open();
    files_.Reset();
    ASSERT_THAT(Write(**database, "old"), IsOk());
    calls = files_.calls().size();
  }
  ASSERT_GE(calls, 1u);
  const DiskImage opened = disk_.image();
  for (const absl::Status& error : {absl::InternalError("x: Input/output error (EIO)"),
                                    absl::ResourceExhaustedError("x: No space left on device (ENOSPC)")}) {
    for (size_t n = 0; n < 2 * calls; ++n) {
      SCOPED_TRACE(testing::Message() << "call " << n / 2 << (n % 2 == 0 ? " fails" : " and all after it fail") << ": "
                                      << error);
      // A disk of its own: after some openings of one RocksDB compacts, and another thread meets the failure.
      SimulatedDisk disk(opened);
      FailingFileSystem files(disk);
      auto database = Database::Open(files, "/db");
      ASSERT_THAT(database, IsOk());
      files.Reset();
      n % 2 == 0 ? files.FailCall(n / 2, error) : files.FailFrom(n / 2, error);
      EXPECT_THAT(Write(**database, "new"), StatusIs(error.code(), HasSubstr(error.message())));
      EXPECT_THAT((*database)->failure(), StatusIs(error.code(), HasSubstr(error.message())));
      EXPECT_THAT(ReadFrom(disk.image()), AnyOf("old", "new"));
    }
  }
}

TEST_F(DatabaseOnRocksEnvTest, EveryCallOfAnOpenMayFailAndTheNextOpenIsWhole) {
  ASSERT_THAT(Open(), IsOk());
  const size_t calls = files_.calls().size();
  size_t failures = 0;
  for (size_t n = 0; n < calls; ++n) {
    SCOPED_TRACE(testing::Message() << "call " << n);
    files_.Reset();
    files_.FailCall(n, absl::InternalError("x: Input/output error (EIO)"));
    auto database = Open();
    if (!database.ok()) {
      ++failures;
      EXPECT_THAT(database, StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
    }
    database = absl::CancelledError();
    files_.Reset();
    EXPECT_EQ(ReadFrom(disk_.image()), "old");
    database = Open();
    ASSERT_THAT(database, IsOk());
    // So that the next open finds a log to write a table of.
    ASSERT_THAT(Write(**database, "old"), IsOk());
  }
  EXPECT_GT(failures, calls / 3);
}

}  // namespace
}  // namespace tidemark::storage
