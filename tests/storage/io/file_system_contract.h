// What the tests of what every FileSystem promises share: they hold it against the real one and against the one that
// tests put in its place.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FILE_SYSTEM_CONTRACT_H_
#define TIDEMARK_TESTS_STORAGE_IO_FILE_SYSTEM_CONTRACT_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {

// A file system with a directory in which there is only "link", which is neither a file nor a directory.
class ContractSubject {
 public:
  virtual ~ContractSubject() = default;
  virtual FileSystem& files() = 0;
  virtual std::string root() const = 0;
};

class PosixSubject final : public ContractSubject {
 public:
  PosixSubject() { std::filesystem::create_symlink("file", directory_ / "link"); }
  FileSystem& files() override { return PosixFileSystem(); }
  std::string root() const override { return directory_.path(); }

 private:
  const TestDirectory directory_;
};

class SimulatedSubject final : public ContractSubject {
 public:
  FileSystem& files() override { return disk_; }
  std::string root() const override { return "/root"; }

 private:
  static DiskImage Image() {
    DiskImage image;
    image.nodes[DiskImage::kRoot].names = {{"root", 2}};
    image.nodes[2] = {.type = FileType::kDirectory, .names = {{"link", 3}}};
    image.nodes[3] = {.type = FileType::kOther};
    return image;
  }

  SimulatedDisk disk_{Image()};
};

struct ContractKind {
  const char* name;
  std::function<std::unique_ptr<ContractSubject>()> make;
};

inline void PrintTo(const ContractKind& kind, std::ostream* out) { *out << kind.name; }

// Holds a file "file" with "old", a directory "folder", and "link".
class FileSystemContractTest : public testing::TestWithParam<ContractKind> {
 protected:
  void SetUp() override {
    Put(file_, "old");
    ASSERT_THAT(files_.CreateDirectory(folder_), IsOk());
  }

  void Put(const std::string& path, std::string_view contents) {
    auto file = files_.Create(path, /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(contents))), IsOk());
  }
  std::string Get(const std::string& path) {
    const absl::StatusOr<std::string> contents = ReadSmallFile(files_, path, 100);
    return contents.ok() ? *contents : contents.status().ToString();
  }
  std::vector<std::string> Names(const std::string& path) {
    std::vector<std::string> names;
    const auto entries = files_.ListDirectory(path);
    EXPECT_THAT(entries, IsOk());
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  static std::string Contents(File& file) {
    std::string contents(*file.Size(), ' ');
    const absl::Status read = file.ReadAt(0, std::as_writable_bytes(std::span(contents)));
    return read.ok() ? contents : read.ToString();
  }

  const std::unique_ptr<ContractSubject> subject_ = GetParam().make();
  FileSystem& files_ = subject_->files();
  const std::string root_ = subject_->root();
  const std::string file_ = root_ + "/file";
  const std::string folder_ = root_ + "/folder";
  const std::string link_ = root_ + "/link";
  const std::string none_ = root_ + "/none";
};

inline auto ContractKinds() {
  return testing::Values(ContractKind{"Posix", [] { return std::make_unique<PosixSubject>(); }},
                         ContractKind{"Simulated", [] { return std::make_unique<SimulatedSubject>(); }});
}

inline std::string ContractKindName(const testing::TestParamInfo<ContractKind>& info) { return info.param.name; }

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_FILE_SYSTEM_CONTRACT_H_
