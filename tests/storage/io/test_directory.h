// A directory that lasts as long as a test.

#ifndef TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_
#define TIDEMARK_TESTS_STORAGE_IO_TEST_DIRECTORY_H_

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "gtest/gtest.h"

namespace tidemark::storage {

// Where files are kept of which no power loss is to be survived: in memory, where the system has a place for it and
// room there, since syncs are what takes time.
inline std::string ParentInMemory() {
  constexpr uintmax_t kEnoughBytes = 1 << 30;  // containers often give it 64 MiB
  const std::string memory = "/dev/shm/";
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(memory, unknown);
  return !unknown && space.available >= kEnoughBytes && access(memory.c_str(), W_OK) == 0 ? memory : testing::TempDir();
}

// Made on construction, removed with everything in it on destruction.
class TestDirectory {
 public:
  TestDirectory() : TestDirectory(testing::TempDir()) {}
  static TestDirectory InMemory() { return TestDirectory(ParentInMemory()); }
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
