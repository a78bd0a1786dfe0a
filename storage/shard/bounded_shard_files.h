// The files of a store that a stranger made. Its shards may have smaller indices than those that docs/format.md allows,
// so that a small download cannot take a reader's memory.

#ifndef TIDEMARK_STORAGE_SHARD_BOUNDED_SHARD_FILES_H_
#define TIDEMARK_STORAGE_SHARD_BOUNDED_SHARD_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// What a shard's index may have. Room for 699,000 chunks.
struct IndexBounds {
  uint64_t bytes = 32 << 20;
  uint64_t text_bytes = 4 << 20;  // all but chunks, files and user metadata
  // Each takes many times as many bytes in memory as in the index.
  uint64_t entries = 100'000;
  uint64_t metrics = 10'000;
  uint64_t properties = 10'000;
};

// The files of another file system. OpenForRead of a shard (a name that ends in ".tmk") whose index is larger than the
// bounds is kResourceExhausted, and the message has the bound. It looks at the open file, so no file can be put in its
// place afterwards. A shard that is damaged is opened: its reader says what is wrong with it. Thread-safe.
class BoundedShardFiles final : public FileSystem {
 public:
  // Precondition: `other` is not null.
  explicit BoundedShardFiles(std::unique_ptr<FileSystem> other, const IndexBounds& bounds = {})
      : other_(std::move(other)), bounds_(bounds) {}

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;

  absl::Status CreateDirectory(const std::string& path) override { return other_->CreateDirectory(path); }
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override {
    return other_->ListDirectory(path);
  }
  absl::StatusOr<FileType> TypeOf(const std::string& path) override { return other_->TypeOf(path); }
  absl::StatusOr<DirectoryStamp> StampDirectory(const std::string& path) override {
    return other_->StampDirectory(path);
  }
  absl::StatusOr<FileId> Identify(const std::string& path) override { return other_->Identify(path); }
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override {
    return other_->Create(path, direct);
  }
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override {
    return other_->CreateReadable(path);
  }
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override {
    return other_->OpenForRewrite(path, direct);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override { return other_->Rename(from, to); }
  absl::Status RenameToNew(const std::string& from, const std::string& to) override {
    return other_->RenameToNew(from, to);
  }
  absl::Status HardLink(const std::string& path, const std::string& new_path) override {
    return other_->HardLink(path, new_path);
  }
  absl::Status RemoveFile(const std::string& path) override { return other_->RemoveFile(path); }
  absl::Status RemoveDirectory(const std::string& path) override { return other_->RemoveDirectory(path); }
  absl::Status SyncDirectory(const std::string& path) override { return other_->SyncDirectory(path); }
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override {
    return other_->OpenDirectory(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override { return other_->TryLock(path); }
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override {
    return other_->ReadNote(path, bytes_max);
  }
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override {
    return other_->NewIoQueue(kind, depth);
  }

 private:
  const std::unique_ptr<FileSystem> other_;
  const IndexBounds bounds_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_BOUNDED_SHARD_FILES_H_
