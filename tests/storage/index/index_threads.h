// Ends the threads of RocksDB that an index has left to the process: InChild of child_process.h forks beside none.

#ifndef TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_
#define TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::storage {

// How many threads of the process are RocksDB's.
inline ptrdiff_t IndexThreads() {
  const std::vector<std::string> names = OtherThreads();
  return std::count_if(names.begin(), names.end(),
                       [](const std::string& name) { return name.starts_with("rocksdb:"); });
}

// Returns once they are gone, but under ThreadSanitizer at once; where one stays, an index is open, and the test fails.
// The next index that is opened starts them again.
inline void EndIndexThreads() {
  // It does not look into RocksDB, so it takes the mutexes of the pool for ones that were never locked.
  if (kThreadSanitizer) return;
  using rocksdb::Env;
  for (const Env::Priority priority : {Env::BOTTOM, Env::LOW, Env::HIGH}) {
    Env::Default()->SetBackgroundThreads(0, priority);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (IndexThreads() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(IndexThreads(), 0) << "an index is open";
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_
