// Database: RocksDB as the manifest uses it: with what options it is opened, how it is written or followed, what its
// errors mean, and how it is opened anew after a write that failed or when another database has taken its place.

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
#include "rocksdb/env.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Thread-safe: any number of threads read and write at once, and nobody waits for another one's sync to read. Only
// opening anew keeps everybody else out. Errors: see Manifest.
//
// RocksDB is not made for exceptions, such as std::bad_alloc. After one has passed through it, the object of RocksDB is
// neither called again nor closed, but abandoned (AbandonRocksEnv). The next call opens the database anew, as it is
// then.
class Database {
 public:
  // `files`: what the database lies on. Not owned, and used as long as the database lives.

  // kAlreadyExists if there is one.
  static absl::StatusOr<std::unique_ptr<Database>> Create(FileSystem& files, const std::string& path);

  // kNotFound if there is none.
  static absl::StatusOr<std::unique_ptr<Database>> Open(FileSystem& files, const std::string& path);

  // The database as it is now, also beside a live writer; writes nothing, not even a log. Of a damaged log it has the
  // records before the damage; see log_damage.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReadOnly(FileSystem& files, const std::string& path);

  // The same, to be brought up to date by CatchUp. Holds every table open, so that what its writer deletes stays
  // readable. kNotFound if there is none. kDataLoss: a table is missing or cannot be opened, or a log that is needed is
  // damaged.
  static absl::StatusOr<std::unique_ptr<Database>> OpenFollowing(FileSystem& files, const std::string& path);

  ~Database();

  const std::string& path() const { return path_; }

  // What the database's list of its files was like before it was opened to be written, which begins a new list: id,
  // name, size and checksum. Empty where there was none or it could not be read, which is like no other.
  const std::string& list_as_opened() const { return list_as_opened_; }

  // The same of the list now, which does not change any more: RocksDB's own work waits until the database is closed, so
  // that hardly more than one write may follow. Empty where it could not be stopped or the list not be read.
  std::string SettleList();

  // Calls `use` and returns its answer. Where the database is closed, since opening it anew has failed, that is tried
  // again first; where it cannot be opened to be written, as on a full disk, to be read until the next Write; where
  // neither can be, its error is returned. `use` must not call Use or Write, nor keep anything of the database.
  absl::Status Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `visit` with every key that begins with `prefix` and its value, in the order of the keys and all as of one
  // moment, until it returns false. Nothing of the database may be used meanwhile. kDataLoss where a block is damaged:
  // what comes before it has been visited.
  absl::Status Scan(std::string_view prefix,
                    absl::FunctionRef<bool(std::string_view key, std::string_view value)> visit)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The same as Use for who removes something because of what it reads: all that `use` finds survives power loss. What
  // a database shows that can only be read may come from a write that failed and that the disk never got. Such a one is
  // opened anew first, which writes down what it shows; where that fails, its error is returned and `use` not called.
  absl::Status UseDurable(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) ABSL_LOCKS_EXCLUDED(mutex_);

  // Writes the batch, and syncs it unless it may be lost by a power loss. After a failure, be it of a table that RocksDB's threads were to write, RocksDB
  // refuses more: the next Write opens it anew. Reads need no more than Use does: they go on with what was there
  // before.
  enum class Sync { kYes, kNo };
  absl::Status Write(rocksdb::WriteBatch& batch, Sync sync = Sync::kYes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes in what has been written since; returns whether that may be anything. All of it up to some moment that is not
  // before the call. Another database in the place of the one that was opened is taken for it. After an error
  // everything is as before: kNotFound, kUnavailable while it is being replaced or changes all the time. Precondition:
  // made by OpenFollowing.
  absl::StatusOr<bool> CatchUp() ABSL_LOCKS_EXCLUDED(mutex_);

  // For a database of OpenReadOnly: kDataLoss if a log is damaged, with the place. The records behind that place are
  // not in the database.
  const absl::Status& log_damage() const { return log_damage_; }

  // Whether Use or Write has ever answered kDataLoss, be it in the words of `use`.
  bool damage_found() const { return damage_found_; }

  // `status` as ours, with operation and path.
  absl::Status Translate(const rocksdb::Status& status, std::string_view operation) const;

 private:
  enum class Mode { kWrite, kRead, kFollow };

  Database(FileSystem& files, std::unique_ptr<rocksdb::Env> env, const std::string& path, rocksdb::DB* db, Mode mode,
           std::string list_as_opened = "");
  absl::Status UseOpen(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasBackgroundError() ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status EnsureOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenToWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenAnewToRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsUsable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Closes the database if it is open. Abandons it if an exception has passed through it, or does so now.
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem& files_;
  const std::string path_;
  const Mode mode_;
  const std::string list_as_opened_;
  absl::Status log_damage_;  // set before the database is handed out

  // A write failed, and the database has not been opened to be written since.
  std::atomic<bool> broken_{false};
  // db_ is one that can only be read, in the place of the one that could not be opened. Changes with db_.
  std::atomic<bool> is_stand_in_{false};

  std::atomic<bool> damage_found_{false};

  // An exception has passed through db_, or through its opening.
  std::atomic<bool> threw_{false};

  absl::Mutex mutex_;                                          // shared by those who use the database
  std::unique_ptr<rocksdb::Env> env_ ABSL_GUARDED_BY(mutex_);  // of files_; outlives the database
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(mutex_);    // null: closed
  std::string list_stamp_
      ABSL_GUARDED_BY(mutex_);  // kFollow: of the list of files that db_ was opened with; else empty
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_DATABASE_H_
