// A directory that lasts as long as a test.

#ifndef TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_
#define TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_

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
  TestDirectory() : path_(testing::TempDir() + "tidemark-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
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
  std::string path_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_
