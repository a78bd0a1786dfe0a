// What SimulatedDisk::NewClient makes.

#include <memory>
#include <string>

#include "storage/io/forwarding_file_system.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::storage {

class SimulatedDisk::Client final : public ForwardingFileSystem {
 public:
  Client(SimulatedDisk& disk, uint64_t number) : ForwardingFileSystem(disk), disk_(disk), number_(number) {}

  absl::StatusOr<FileId> Identify(const std::string& path) override {
    absl::StatusOr<FileId> id = disk_.Identify(path);
    // No boot has a device of that number.
    if (id.ok()) id->device = ~number_;
    return id;
  }
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override {
    return disk_.OpenForReadBy(number_, path, direct);
  }
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override {
    return disk_.OpenForRewriteBy(number_, path, direct);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    return disk_.TryLockBy(number_, path);
  }

 private:
  SimulatedDisk& disk_;
  const uint64_t number_;
};

std::unique_ptr<FileSystem> SimulatedDisk::NewClient() {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<Client>(*this, ++clients_);
}

}  // namespace tidemark::storage
