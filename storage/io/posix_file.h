// An open regular file of the operating system.

#ifndef TIDEMARK_STORAGE_IO_POSIX_FILE_H_
#define TIDEMARK_STORAGE_IO_POSIX_FILE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/unshared_fd.h"

namespace tidemark::storage {

// Thread-safe for disjoint ranges; Close() may not run beside another call.
class PosixFile final : public File {
 public:
  // Takes over an open descriptor. kFailedPrecondition if it is not a regular file. `direct`: turns O_DIRECT on, if the
  // file system takes it. `locked`: whether it is locked by flock(2), until it is closed.
  static absl::StatusOr<std::unique_ptr<File>> Adopt(UnsharedFd fd, std::string path, bool direct, bool locked = false);
  ~PosixFile() override;

  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  absl::StatusOr<uint64_t> Size() override;
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) override;
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override;
  absl::Status Allocate(uint64_t bytes) override;
  absl::Status Truncate(uint64_t bytes) override;
  absl::Status SyncData() override;
  absl::Status Close() override;

  // Negative after Close. In a forked child also negative, unless the file is open for reading only.
  int fd() const { return fd_.get(); }

 private:
  PosixFile(UnsharedFd fd, std::string path, bool direct, bool locked)
      : path_(std::move(path)), direct_(direct), locked_(locked), fd_(std::move(fd)) {}

  void Unlock();

  // Constant after construction.
  const std::string path_;
  const bool direct_;
  const bool locked_;

  UnsharedFd fd_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_POSIX_FILE_H_
