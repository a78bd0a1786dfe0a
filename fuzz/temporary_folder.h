// A folder of a process's own for what its inputs need on disk: in memory where that will do and there is such a place,
// else in TMPDIR.

#ifndef TIDEMARK_FUZZ_TEMPORARY_FOLDER_H_
#define TIDEMARK_FUZZ_TEMPORARY_FOLDER_H_

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz/fuzzing.h"

namespace tidemark::fuzz {

// Made empty, and removed with all that is in it.
class TemporaryFolder {
 public:
  // What a disk alone does, as direct transfers, is nothing that memory shows.
  enum class Place { kMemory, kDisk };

  explicit TemporaryFolder(Place place = Place::kMemory) {
    const bool in_memory = place == Place::kMemory && access("/dev/shm", W_OK) == 0;
    path_ = (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/tidemark-fuzz-XXXXXX";
    Require(mkdtemp(path_.data()) != nullptr, "no temporary folder can be made");
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_TEMPORARY_FOLDER_H_
