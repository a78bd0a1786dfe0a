// RocksDB's files through FileSystem, so that the index goes to the disk by the same door as everything else, and a
// test can put another disk behind it.

#ifndef TIDEMARK_STORAGE_INDEX_ROCKS_ENV_H_
#define TIDEMARK_STORAGE_INDEX_ROCKS_ENV_H_

#include <memory>

#include "absl/status/status.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// How the logs of a database are read.
enum class LogDamage {
  kSeen,  // as they are: RocksDB decides
  kEnds,  // a log ends before its first damaged record; FileFailures has its place and fault, as kDataLoss
};

// An Env with the files of `files`, not owned, and with the threads and the clock of rocksdb::Env::Default(). Has what
// a database of MakeOptions() in database.cc uses: no memory maps, no direct I/O, no files that are opened to be
// written on. Its errors have FileSystem's words; what FileSystem calls kNotFound, kResourceExhausted and
// kUnimplemented have RocksDB's codes for that, a lock that is held is busy, and everything else is an I/O error. A
// table with damage that would make RocksDB end the process is not opened: that is corruption.
std::unique_ptr<rocksdb::Env> NewRocksEnv(FileSystem& files, LogDamage log_damage = LogDamage::kSeen);

// Abandons a database of this Env (or null) after an exception has passed through RocksDB, which is not made for that:
// to close the database could end the process. Neither is destroyed, and their memory, a few megabytes, stays in use
// until the process ends. From now on the Env changes nothing on the disk. The lock that RocksDB took is released, so
// the database can be opened anew.
void AbandonRocksEnv(std::unique_ptr<rocksdb::Env> env, std::unique_ptr<rocksdb::DB> db);

// While it lives: the first failure of a file in any such Env that RocksDB meets on the thread that made it. That a
// file is not there, or is there already, does not count. RocksDB does not look at all of them. What fails on a thread
// that has none is nobody's. They nest, and a failure is the innermost one's. Used and destroyed by the thread that
// made it.
class FileFailures {
 public:
  FileFailures();
  ~FileFailures();
  FileFailures(const FileFailures&) = delete;
  FileFailures& operator=(const FileFailures&) = delete;

  // The first failure since the last call, of the calling thread's innermost one; ok: none, be it of either.
  static absl::Status Take();

 private:
  friend void NoteFileFailure(const absl::Status& status);

  FileFailures* const outer_;
  absl::Status first_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_ROCKS_ENV_H_
