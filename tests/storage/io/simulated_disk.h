// A disk in memory that logs what is done to it and knows what was synced, so that every state can be made that a kill
// or a loss of power could leave. disk_log.h says which those are.

#ifndef TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_
#define TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/disk_image.h"
#include "tests/storage/io/disk_log.h"

namespace tidemark::storage {

// Thread-safe; its operations have one order. Outlives its files, locks and queues. Paths begin at the root, "/", with
// or without a slash. Everything that FileSystem promises holds; a queue does each transfer when it is submitted, one
// write being one operation. Direct transfers must be aligned. A lock dies with its process, its file and note stay.
// What can make no difference is not logged: to set a size that the file has, all of it synced. A file has room for 1
// GiB.
class SimulatedDisk final : public FileSystem {
 public:
  SimulatedDisk() : SimulatedDisk(DiskImage()) {}
  // As booted from `image`: all of that survives.
  explicit SimulatedDisk(const DiskImage& image);
  // As processes find it on a machine that was booted from `boot` and goes on: those before them were killed, and what
  // they had written is `image`. A crash now undoes nothing of it.
  SimulatedDisk(DiskImage image, const DiskImage& boot);
  ~SimulatedDisk() override;

  // Logs a mark: every state from here on comes after what it says.
  void Mark(std::string text);
  // Logs that a sync of the file or directory has failed, for who answers that to its caller: what is not synced by now
  // may be lost however often it is synced again. Directories that are open hear of it at their next sync.
  // Precondition: it is there.
  void FailSync(const std::string& path);
  DiskLog log() const;
  DiskImage image() const;

  // The same disk as another machine sees it that no locks of others reach, as clients of a file server may be: neither
  // a FileLock nor a lock of an open file keeps out anybody but this client itself. Identify gives another device. Does
  // not outlive the disk.
  std::unique_ptr<FileSystem> NewClient();

  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<FileId> Identify(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override {
    return OpenForReadBy(/*client=*/0, path, direct);
  }
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override {
    return OpenForRewriteBy(/*client=*/0, path, direct);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return NameFile(from, to, Naming::kReplacing);
  }
  absl::Status RenameToNew(const std::string& from, const std::string& to) override {
    return NameFile(from, to, Naming::kNew);
  }
  absl::Status HardLink(const std::string& path, const std::string& new_path) override {
    return NameFile(path, new_path, Naming::kSecond);
  }
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    return TryLockBy(/*client=*/0, path);
  }
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override;
  // One of threads without any; there is no io_uring.
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override;

 private:
  class OpenFile;
  class HeldLock;
  class Client;

  // What a path leads to.
  struct Place {
    int error = 0;                      // errno; what follows means nothing then
    std::vector<uint64_t> directories;  // on the way, from the root to the one that has the name
    std::string name;                   // empty: the path ends in a directory by "/", "." or ".."
    uint64_t node = 0;                  // 0: there is nothing of that name
    FileType type = FileType::kOther;   // of the node
    bool slash = false;                 // behind the name
    uint64_t parent() const { return directories.back(); }
  };
  // A file, and the client whose locks it is about; 0: the disk itself.
  struct Locked {
    uint64_t client = 0;
    uint64_t node = 0;
  };
  // As flock(2) has it on an open file.
  struct Claims {
    size_t shared = 0;
    bool exclusive = false;
  };
  enum class Naming { kReplacing, kNew, kSecond };
  enum class Claim { kNone, kShared, kExclusive };

  Place Resolve(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same, but that there is nothing of that name, or no directory where a slash follows, is an error too.
  Place Find(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Place FindDirectory(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // errno of a rename that is not possible, or 0.
  int RenameError(const Place& from, const Place& to) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NameFile(const std::string& from, const std::string& to, Naming naming) ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t AddNode(DiskOperation::Kind kind, const Place& place, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveName(const Place& place, const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Log(DiskOperation operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryClaim(Locked locked, Claim claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unclaim(Locked locked, Claim claim) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<File>> OpenForReadBy(uint64_t client, const std::string& path, bool direct)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<File>> OpenForRewriteBy(uint64_t client, const std::string& path, bool direct)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<FileLock>> TryLockBy(uint64_t client, const std::string& path)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What files and locks are made of; `path` is for the log.
  uint64_t Size(uint64_t node) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t Read(uint64_t node, uint64_t offset, std::span<std::byte> out) ABSL_LOCKS_EXCLUDED(mutex_);
  void Write(uint64_t node, const std::string& path, uint64_t offset, std::string_view bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Resize(DiskOperation::Kind kind, uint64_t node, const std::string& path, uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void LogResize(DiskOperation::Kind kind, uint64_t node, const std::string& path, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncData(uint64_t node, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);

  const uint64_t device_;  // another one after each boot
  mutable absl::Mutex mutex_;
  mutable ImageEditor disk_ ABSL_GUARDED_BY(mutex_);
  DiskLog log_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_node_ ABSL_GUARDED_BY(mutex_);
  uint64_t clients_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, Claims> claims_ ABSL_GUARDED_BY(mutex_);  // by client and node
  absl::flat_hash_map<uint64_t, size_t> failed_syncs_ ABSL_GUARDED_BY(mutex_);                 // by node, how often
  absl::flat_hash_set<uint64_t> unsynced_files_ ABSL_GUARDED_BY(mutex_);                       // nodes
  absl::flat_hash_set<uint64_t> doubtful_files_ ABSL_GUARDED_BY(mutex_);  // nodes that no sync covers wholly
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_
