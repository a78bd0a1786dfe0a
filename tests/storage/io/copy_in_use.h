// Copies of a store that is open, as a kill would leave it.

#ifndef TIDEMARK_TESTS_STORAGE_IO_COPY_IN_USE_H_
#define TIDEMARK_TESTS_STORAGE_IO_COPY_IN_USE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "gtest/gtest.h"

namespace tidemark::storage {

// Paths below the directory, with each file's size and when it was last written; nothing where one of them went while
// they were listed.
inline std::map<std::string, std::pair<uintmax_t, std::filesystem::file_time_type>> ListTree(
    const std::string& directory) {
  namespace fs = std::filesystem;
  std::map<std::string, std::pair<uintmax_t, fs::file_time_type>> listed;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const uintmax_t bytes = entry->is_regular_file(error) ? entry->file_size(error) : 0;
    if (!error) listed[entry->path()] = {bytes, entry->last_write_time(error)};
    if (error) break;
  }
  if (error) listed.clear();
  return listed;
}

// Makes `to` what `from` is at one moment, though threads of RocksDB's may still put files in their places and remove
// others: copied again until nothing has changed meanwhile, as far as names, sizes and times tell.
inline void CopyInUse(const std::string& from, const std::string& to) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::remove_all(to);
    const auto before = ListTree(from);
    std::error_code error;
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive, error);
    if (!error && !before.empty() && ListTree(from) == before) return;
  }
  FAIL() << from << " never stayed the same while it was copied";
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_COPY_IN_USE_H_
