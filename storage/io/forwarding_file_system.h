// A FileSystem that forwards each call to another one. A class that changes a few calls derives from it.

#ifndef TIDEMARK_STORAGE_IO_FORWARDING_FILE_SYSTEM_H_
#define TIDEMARK_STORAGE_IO_FORWARDING_FILE_SYSTEM_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// As thread-safe as the other file system. Its files, locks and queues are those of the other one.
class ForwardingFileSystem : public FileSystem {
 public:
  // `other` is not owned and outlives this.
  explicit ForwardingFileSystem(FileSystem& other) : other_(other) {}

  absl::Status CreateDirectory(const std::string& path) override { return other_.CreateDirectory(path); }
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override {
    return other_.ListDirectory(path);
  }
  absl::StatusOr<FileType> TypeOf(const std::string& path) override { return other_.TypeOf(path); }
  absl::StatusOr<FileId> Identify(const std::string& path) override { return other_.Identify(path); }
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override {
    return other_.OpenForRead(path, direct);
  }
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override {
    return other_.Create(path, direct);
  }
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override {
    return other_.CreateReadable(path);
  }
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override {
    return other_.OpenForRewrite(path, direct);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override { return other_.Rename(from, to); }
  absl::Status RenameToNew(const std::string& from, const std::string& to) override {
    return other_.RenameToNew(from, to);
  }
  absl::Status HardLink(const std::string& path, const std::string& new_path) override {
    return other_.HardLink(path, new_path);
  }
  absl::Status RemoveFile(const std::string& path) override { return other_.RemoveFile(path); }
  absl::Status RemoveDirectory(const std::string& path) override { return other_.RemoveDirectory(path); }
  absl::Status SyncDirectory(const std::string& path) override { return other_.SyncDirectory(path); }
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override {
    return other_.OpenDirectory(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override { return other_.TryLock(path); }
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override {
    return other_.ReadNote(path, bytes_max);
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override {
    return other_.NewIoQueue(kind, depth);
  }

 protected:
  FileSystem& other() { return other_; }

 private:
  FileSystem& other_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_FORWARDING_FILE_SYSTEM_H_
