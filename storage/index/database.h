// Database: RocksDB as the index of a journal uses it: with what options it is opened, what its errors mean, and when
// it is not used any more.

#ifndef TIDEMARK_STORAGE_INDEX_DATABASE_H_
#define TIDEMARK_STORAGE_INDEX_DATABASE_H_

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
#include "rocksdb/env.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Thread-safe: any number of threads read and write at once. Errors: see Manifest.
//
// Nothing of it is repaired or opened anew, because the journal has all that it says. RocksDB is not made for
// exceptions, such as std::bad_alloc. After one has passed through it, the object of RocksDB is neither called again
// nor closed, but abandoned (AbandonRocksEnv).
class Database {
 public:
  // `files`: what the database lies on. Not owned, and used as long as the database lives.

  // kAlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<Database>> Create(FileSystem& files, const std::string& path);

  // kNotFound if there is none. kDataLoss: it is damaged, or its list of files has an end that was not written whole:
  // RocksDB would pass over what follows, and with it over tables.
  static absl::StatusOr<std::unique_ptr<Database>> Open(FileSystem& files, const std::string& path);

  // The database as it is now, also beside a live writer; writes nothing, not even a log. Of a damaged log it has the
  // records before the damage; see log_damage.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReadOnly(FileSystem& files, const std::string& path);

  ~Database();

  const std::string& path() const { return path_; }

  // Calls `use` and returns its answer. `use` must not call Use or Write, nor keep anything of the database.
  absl::Status Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use);

  // Writes the batch without a sync. After a power loss nothing is known about any of them.
  absl::Status Write(rocksdb::WriteBatch& batch);

  // For a database of OpenReadOnly: kDataLoss if a log is damaged, with the place. The records behind that place are
  // not in the database.
  const absl::Status& log_damage() const { return log_damage_; }

  // The first error that Use or Write has given since the database was opened; ok: none.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(failure_mutex_);

  // `status` as ours, with operation and path.
  absl::Status Translate(const rocksdb::Status& status, std::string_view operation) const;

 private:
  Database(std::unique_ptr<rocksdb::Env> env, const std::string& path, rocksdb::DB* db);
  absl::Status Call(absl::FunctionRef<absl::Status(rocksdb::DB&)> use);

  const std::string path_;
  absl::Status log_damage_;               // set before the database is handed out
  std::unique_ptr<rocksdb::Env> env_;     // of the files; outlives the database
  std::unique_ptr<rocksdb::DB> db_;
  std::atomic<bool> threw_{false};        // an exception has passed through db_

  mutable absl::Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_DATABASE_H_
