// DraftFileSystem: shows a directory of another file system and keeps every change to itself. What would come of a
// piece of work is found out by doing it here: nothing is written to the disk, no time of modification either.

#ifndef TIDEMARK_STORAGE_IO_DRAFT_FILE_SYSTEM_H_
#define TIDEMARK_STORAGE_IO_DRAFT_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

class DraftContents;

// Thread-safe. Outlives its files, locks and queues. What is written takes as much memory, and so does the whole of a
// file that is opened to be written over; what is only read, renamed or removed takes none, and files are read from the
// base whenever somebody reads them, so that the base should not change meanwhile. Below the directory everything that
// FileSystem promises holds for paths without "." and ".."; syncs do nothing. Elsewhere the base is read, and changes
// are refused with kFailedPrecondition.
//
// A lock can be had here if nobody holds it on the base at that moment, which is found out by opening the file for
// reading. Nobody is kept from taking it there: TryLock waits out so short a look.
class DraftFileSystem final : public FileSystem {
 public:
  // `base`: not owned, and used as long as this lives. `directory`: without a slash at its end; it need not be there.
  DraftFileSystem(FileSystem& base, std::string directory);
  ~DraftFileSystem() override;

  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<FileId> Identify(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override;
  absl::Status Rename(const std::string& from, const std::string& to) override {
    absl::MutexLock lock(&mutex_);
    return NameFile(from, to, Naming::kReplacing);
  }
  absl::Status RenameToNew(const std::string& from, const std::string& to) override {
    absl::MutexLock lock(&mutex_);
    return NameFile(from, to, Naming::kNew);
  }
  // A file of the base counts as one with a single name.
  absl::Status HardLink(const std::string& path, const std::string& new_path) override {
    absl::MutexLock lock(&mutex_);
    return NameFile(path, new_path, Naming::kSecond);
  }
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override {
    if (absl::Status status = SyncDirectory(path); !status.ok()) return status;
    return NewDirectory([] { return absl::OkStatus(); });
  }
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override;
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override;

 private:
  class MemoryFile;
  class Lock;
  class Queue;
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  enum class Naming { kReplacing, kNew, kSecond };
  struct Place {  // a name, whether or not there is anything of it
    NodePtr parent;
    std::string name;
  };

  bool IsWithin(std::string_view path) const;
  absl::StatusOr<NodePtr> Find(std::string_view operation, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NameFile(const std::string& from, const std::string& to, Naming naming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Place> FindPlace(std::string_view operation, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NodePtr> Child(const NodePtr& parent, const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NodePtr> Root() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadNames(const NodePtr& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> IsEmpty(const NodePtr& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<DraftContents>> MakeFile(const std::string& path);
  absl::Status Load(const NodePtr& file, const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetName(const Place& place, NodePtr node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem& base_;
  const std::string directory_;

  absl::Mutex mutex_;
  NodePtr root_ ABSL_GUARDED_BY(mutex_);  // null: not looked for yet, or not there
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_DRAFT_FILE_SYSTEM_H_
