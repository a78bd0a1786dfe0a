// RocksDB's own threads: one that wakes up every few seconds, and one for each kind of work behind writes. A thread
// allocates memory when it runs for the first time. Nobody can catch what it throws then, so a process without memory
// would be ended. Therefore opening a database waits until these threads have run.

#ifndef TIDEMARK_STORAGE_INDEX_ROCKS_THREADS_H_
#define TIDEMARK_STORAGE_INDEX_ROCKS_THREADS_H_

#include <atomic>
#include <cstdarg>
#include <thread>

#include "absl/time/time.h"
#include "rocksdb/env.h"

namespace tidemark::storage {

// A diary of RocksDB's work that is written nowhere. A reader must leave no trace in the store; and where the diary of
// a writer cannot be written, as on a full disk, Debian's build of RocksDB ends the process.
//
// Made by the thread that opens the database. Thread-safe.
class NullLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
  // RocksDB calls it in its timer's thread as well, every 10 seconds.
  void Flush() override;

  // Blocks until the timer has called Flush. False: not within `time`.
  bool AwaitTimer(absl::Duration time) const;

 private:
  const std::thread::id opener_ = std::this_thread::get_id();
  std::atomic<bool> timer_ran_ = false;
};

// Starts the threads for flushes and compactions, which belong to the process, if there are none yet, and blocks until
// both have run, or for a second. A compaction that the opening has begun comes first. Throws std::system_error and
// std::bad_alloc. Precondition: a database with `env` is open, which has given each kind of work a thread.
void RunPoolThreads(rocksdb::Env& env);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_ROCKS_THREADS_H_
