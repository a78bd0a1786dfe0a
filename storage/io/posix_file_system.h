// The operating system's files.

#ifndef TIDEMARK_STORAGE_IO_POSIX_FILE_SYSTEM_H_
#define TIDEMARK_STORAGE_IO_POSIX_FILE_SYSTEM_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"

namespace tidemark::storage {

// Immutable, hence thread-safe. For everybody but its own tests PosixFileSystem() is the one.
class PosixFiles final : public FileSystem {
 public:
  // Makes an io_uring queue of a depth, or says why there is none.
  using UringFactory = std::function<absl::StatusOr<std::unique_ptr<IoQueue>>(size_t depth)>;

  // `held`: the directory of PosixFileSystemAt; null: none.
  explicit PosixFiles(std::unique_ptr<const HeldDirectory> held = nullptr);
  // Tests give a factory that answers like a kernel without io_uring.
  explicit PosixFiles(UringFactory new_uring_queue);

  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<FileId> Identify(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameToNew(const std::string& from, const std::string& to) override;
  absl::Status HardLink(const std::string& path, const std::string& new_path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override;
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override;

 private:
  const UringFactory new_uring_queue_;
  const std::unique_ptr<const HeldDirectory> held_;  // null: none
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_POSIX_FILE_SYSTEM_H_
