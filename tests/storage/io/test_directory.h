// A directory that lasts as long as a test.

#ifndef TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_
#define TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "gtest/gtest.h"

namespace tidemark::storage {

// Made on construction, removed with everything in it on destruction.
class TestDirectory {
 public:
  TestDirectory() : TestDirectory(testing::TempDir()) {}
  // One for files of which no power loss is to be survived: in memory where the system has such a place, since syncs are
  // what takes time.
  static TestDirectory InMemory() {
    return TestDirectory(access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir());
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit TestDirectory(const std::string& parent) : path_(parent + "tidemark-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }

  std::string path_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_
