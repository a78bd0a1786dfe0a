// Database: RocksDB as the manifest uses it: with what options it is opened, how it is written, what its errors mean,
// and how it is opened anew after a write that failed.

#ifndef TIDEMARK_STORAGE_MANIFEST_DATABASE_H_
#define TIDEMARK_STORAGE_MANIFEST_DATABASE_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/db.h"

namespace tidemark::storage {

// Thread-safe: any number of threads read and write at once, and nobody waits for another one's sync to read. Only
// opening anew keeps everybody else out. Errors: see Manifest.
class Database {
 public:
  // kAlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<Database>> Create(const std::string& path);

  // kNotFound if there is none.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);

  // As it is now, beside a live writer or not; writes nothing, not even a log.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReadOnly(const std::string& path);

  const std::string& path() const { return path_; }
  bool read_only() const { return read_only_; }

  // Calls `use` and returns its answer. Where the database is closed, since opening it anew has failed, that is tried
  // again first, and its error returned. `use` must not call Use or Write, nor keep anything of the database.
  absl::Status Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) ABSL_LOCKS_EXCLUDED(mutex_);

  // Writes the batch and syncs it. After a failure RocksDB refuses more: the next Write opens it anew. Reads need no
  // more than Use does: they go on with what was there before.
  absl::Status Write(rocksdb::WriteBatch& batch) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether Use or Write has ever answered kDataLoss, be it in the words of `use`.
  bool damage_found() const { return damage_found_; }

  // `status` as ours, with operation and path.
  absl::Status Translate(const rocksdb::Status& status, std::string_view operation) const;

 private:
  Database(const std::string& path, rocksdb::DB* db, bool read_only);
  absl::Status UseOpen(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EnsureOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const bool read_only_;  // never opened anew, and never null

  // A write failed, and the database has not been closed since.
  std::atomic<bool> broken_{false};

  std::atomic<bool> damage_found_{false};

  absl::Mutex mutex_;                                        // shared by those who use the database
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mutex_);  // null: closed
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_DATABASE_H_
