// Ends the threads of RocksDB that an index has left to the process: InChild of child_process.h forks beside none.

#ifndef TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_
#define TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "rocksdb/env.h"

namespace tidemark::storage {

// How many threads of the process are RocksDB's.
inline int IndexThreads() {
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(entry.path() / "comm");  // not there where the thread has just ended
    std::string name;
    if (std::getline(in, name) && name.starts_with("rocksdb:")) ++threads;
  }
  return threads;
}

// Returns once they are gone. Precondition: no index is open. The next one that is opened starts them again.
inline void EndIndexThreads() {
  using rocksdb::Env;
  for (const Env::Priority priority : {Env::BOTTOM, Env::LOW, Env::HIGH}) {
    Env::Default()->SetBackgroundThreads(0, priority);
  }
  while (IndexThreads() > 0) std::this_thread::yield();
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_INDEX_INDEX_THREADS_H_
