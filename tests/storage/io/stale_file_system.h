// What one client of a file server sees that shows it old listings, as NFS does.

#ifndef TIDEMARK_TESTS_STORAGE_IO_STALE_FILE_SYSTEM_H_
#define TIDEMARK_TESTS_STORAGE_IO_STALE_FILE_SYSTEM_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"
#include "storage/io/forwarding_file_system.h"

namespace tidemark::storage {

// Remembers listings of directories. ListDirectory may answer with an old one. OpenForRead, TypeOf and ListDirectory
// may answer kNotFound for a path with a name that an old listing lacks. All else is the server's answer: a file that
// opens has its present contents, and whether a name can be made is decided there. What this client itself makes,
// renames or removes in a directory is never missing, and never there any more: after that it asks for the listing
// anew. A change that fails tells it nothing.
//
// Thread-safe.
class StaleFileSystem final : public ForwardingFileSystem {
 public:
  // How many looks at the directory a new listing of it serves, besides the one that has asked for it. Called with a
  // lock held.
  using Age = std::function<size_t(const std::string& directory)>;

  // `server` is not owned. `fresh`: below this path nothing is ever old; empty: there is no such path.
  StaleFileSystem(FileSystem& server, Age age, std::string fresh = "")
      : ForwardingFileSystem(server), age_(std::move(age)), fresh_(std::move(fresh)) {}

  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;
  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameToNew(const std::string& from, const std::string& to) override;
  absl::Status HardLink(const std::string& path, const std::string& new_path) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;

 private:
  struct Listing {
    std::vector<DirectoryEntry> entries;
    size_t looks_left = 0;
  };

  bool IsFresh(const std::string& path) const;
  // The directory as this client sees it now; null: the server has no listing of it.
  const Listing* Look(const std::string& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether an old listing lacks a name on the way to `path`.
  bool Lacks(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The name `path` was made or is gone.
  void Forget(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Age age_;
  const std::string fresh_;
  absl::Mutex mutex_;
  std::map<std::string, Listing> listings_ ABSL_GUARDED_BY(mutex_);  // by directory
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_STALE_FILE_SYSTEM_H_
