#include "storage/manifest/database.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace tidemark::storage {
namespace {

// What RocksDB keeps in memory and in its log before it writes a table. Opening the database reads through as much of
// the log: a few milliseconds. (To write a table when closing it would not do: that is work for RocksDB's threads, and
// a process that was forked has none.)
constexpr size_t kWriteBufferBytes = 512 << 10;

absl::Status FromRocks(const rocksdb::Status& status, std::string_view operation, const std::string& path) {
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (status.IsNotFound() || status.IsPathNotFound()) code = absl::StatusCode::kNotFound;
  if (status.IsCorruption()) code = absl::StatusCode::kDataLoss;
  if (status.IsNoSpace() || status.IsMemoryLimit()) code = absl::StatusCode::kResourceExhausted;
  if (status.IsBusy() || status.IsTryAgain()) code = absl::StatusCode::kUnavailable;
  if (status.IsNotSupported()) code = absl::StatusCode::kUnimplemented;
  // RocksDB has codes of its own for few of the system's errors; for the others there is only the system's text.
  const std::string text = status.ToString();
  if (status.IsIOError() &&
      (text.ends_with(strerror(EACCES)) || text.ends_with(strerror(EPERM)) || text.ends_with(strerror(EROFS)))) {
    code = absl::StatusCode::kPermissionDenied;
  }
  return absl::Status(code, fmt::format("{} manifest {}: {}", operation, path, text));
}

// RocksDB keeps a diary of its work beside the data unless it is given another place. A reader must leave no trace in
// the store; and where the diary of a writer cannot be written, as on a full disk, Debian's build of RocksDB ends the
// process.
class NullLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  // Records are small and few: memory and background work are kept to what a guest in a training process may take.
  options.write_buffer_size = kWriteBufferBytes;
  options.max_background_jobs = 1;
  options.compression = rocksdb::kNoCompression;
  options.info_log = std::make_shared<NullLogger>();
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  // Opening would read each table's properties, to plan compactions that a database of this size does not need.
  options.skip_stats_update_on_db_open = true;
  return options;
}

}  // namespace

Database::Database(const std::string& path, rocksdb::DB* db, bool read_only)
    : path_(path), read_only_(read_only), db_(db) {}

absl::StatusOr<std::unique_ptr<Database>> Database::Create(const std::string& path) {
  rocksdb::Options options = MakeOptions();
  options.create_if_missing = true;
  options.error_if_exists = true;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, path, &db);
  // error_if_exists is reported as an invalid argument, like many other things: the text tells them apart.
  if (opened.IsInvalidArgument() && opened.ToString().find("exists") != std::string::npos) {
    return absl::AlreadyExistsError(fmt::format("create manifest {}: there is one already", path));
  }
  if (!opened.ok()) return FromRocks(opened, "create", path);
  return std::unique_ptr<Database>(new Database(path, db, /*read_only=*/false));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(MakeOptions(), path, &db);
  if (opened.IsInvalidArgument() && opened.ToString().find("does not exist") != std::string::npos) {
    return absl::NotFoundError(fmt::format("open manifest {}: there is none", path));
  }
  if (!opened.ok()) return FromRocks(opened, "open", path);
  return std::unique_ptr<Database>(new Database(path, db, /*read_only=*/false));
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReadOnly(const std::string& path) {
  rocksdb::Options options = MakeOptions();
  // The writer may drop a file between our reading its list and our opening it; then the list has changed and is read
  // again.
  constexpr int kTries = 10;
  rocksdb::Status opened;
  for (int i = 0; i < kTries; ++i) {
    rocksdb::DB* db = nullptr;
    opened = rocksdb::DB::OpenForReadOnly(options, path, &db);
    if (opened.ok()) return std::unique_ptr<Database>(new Database(path, db, /*read_only=*/true));
  }
  return FromRocks(opened, "open", path);
}

absl::Status Database::Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  absl::Status status = UseOpen(use);
  if (absl::IsDataLoss(status)) damage_found_ = true;
  return status;
}

absl::Status Database::UseOpen(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  for (;;) {
    {
      absl::ReaderMutexLock lock(&mutex_);
      if (db_ != nullptr) return use(*db_);
    }
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  }
}

absl::Status Database::Write(rocksdb::WriteBatch& batch) {
  if (broken_.exchange(false)) {
    absl::MutexLock lock(&mutex_);
    db_.reset();
  }
  rocksdb::WriteOptions synced;
  synced.sync = true;
  return Use([&](rocksdb::DB& db) {
    const rocksdb::Status status = db.Write(synced, &batch);
    if (!status.ok() && !read_only_) broken_ = true;
    return Translate(status, "write");
  });
}

absl::Status Database::Translate(const rocksdb::Status& status, std::string_view operation) const {
  return FromRocks(status, operation, path_);
}

absl::Status Database::EnsureOpen() {
  if (db_ != nullptr) return absl::OkStatus();
  rocksdb::DB* reopened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(MakeOptions(), path_, &reopened);
  if (!status.ok()) return Translate(status, "reopen");
  db_.reset(reopened);
  return absl::OkStatus();
}

}  // namespace tidemark::storage
