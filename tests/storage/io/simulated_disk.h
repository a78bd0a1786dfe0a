// A disk in memory that logs what is done to it and knows what was synced, so that every state can be made that a kill
// or a loss of power could leave.
//
// What power loss may do, and this disk does: any operation that no sync covers may be lost while later ones are kept,
// and a write may be torn at any multiple of 512 bytes. A sync covers what was logged before it was called:
//   SyncData(file)        the writes, allocations and truncations of that file (not its name);
//   SyncDirectory(dir)    the names made, replaced and removed in that directory (not what the names stand for).
// A rename within a directory is one operation: it is there whole or not at all. One across directories is, too, and
// takes the syncs of both. A sync that failed covers nothing. A lock dies with its process, its file and note stay.

#ifndef TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_
#define TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Files and directories as a boot finds them. A value; copies share the contents of files until they are changed.
struct DiskImage {
  static constexpr uint64_t kRoot = 1;
  struct Node {
    FileType type = FileType::kDirectory;
    std::shared_ptr<const std::string> bytes;  // of a file
    std::map<std::string, uint64_t> names;     // of a directory: the nodes by name
  };
  std::map<uint64_t, Node> nodes = {{kRoot, Node{}}};

  // Equal for images in which the same paths have the same contents, whatever the numbers of their nodes; nodes that
  // no path leads to do not count.
  uint64_t Fingerprint() const;
  // Writes it below an existing empty directory of the real file system, for a person to look at.
  absl::Status ExportTo(const std::string& directory) const;
};

struct DiskOperation {
  enum class Kind {
    kCreateFile,       // node, in parent under name
    kCreateDirectory,  // node, in parent under name
    kRename,           // parent/name becomes new_parent/new_name, whatever was there before
    kRemove,           // parent/name, a file or an empty directory
    kWrite,            // bytes at offset
    kAllocate,         // the file is at least `offset` long
    kTruncate,         // the file is `offset` long
    kSyncData,         // of node; a barrier for the operations before it
    kSyncDirectory,    // of node
    kMark,             // nothing on the disk: `name` is what a test says has been promised by now
  };
  static constexpr size_t kNever = ~size_t{0};

  Kind kind = Kind::kMark;
  uint64_t node = 0;
  uint64_t parent = 0;
  uint64_t new_parent = 0;
  std::string name;
  std::string new_name;
  uint64_t offset = 0;
  std::shared_ptr<const std::string> bytes;
  std::string path;  // for people: what it was done to, as it was called then
  // The index of the first sync in the log with which it is sure to survive; its own for syncs and marks.
  size_t durable_from = kNever;

  // One line: "write steps/0000000001-x/shard-00000-of-00001.tmk [4096, 8192)".
  std::string ToString() const;
};

// What a crash does to one operation that no sync covers.
struct LostOperation {
  size_t index = 0;
  // Of a write, which of its 512-byte sectors are lost: those whose bit is set in sector_mask, sector i by bit i % 64.
  // All ones, or any other kind of operation: all of it. Sectors are counted from the file's offset 0, so the first
  // and last of a write may be parts.
  uint64_t sector_mask = ~uint64_t{0};
};

// What was done to a disk since it was booted. A value.
struct DiskLog {
  DiskImage boot;
  std::vector<DiskOperation> operations;

  // Indices below `prefix` of what power loss just before operation `prefix` may undo, in order.
  std::vector<size_t> Unsynced(size_t prefix) const;
  // The disk after the first `prefix` operations, with `lost` undone (each of them in Unsynced(prefix)).
  DiskImage StateAfter(size_t prefix, const std::vector<LostOperation>& lost = {}) const;
};

// Thread-safe; its operations have one order. Outlives its files, locks and queues. Paths begin at the root "/".
// Everything that FileSystem promises holds; a queue does each transfer when it is submitted, one write being one
// operation. Time, as directories have it, is the number of operations.
class SimulatedDisk final : public FileSystem {
 public:
  SimulatedDisk() : SimulatedDisk(DiskImage()) {}
  // As booted from `image`: all of that survives.
  explicit SimulatedDisk(DiskImage image);
  ~SimulatedDisk() override;

  // Logs a mark: every state from here on comes after what it says.
  void Mark(std::string text);
  DiskLog log() const;
  DiskImage image() const;

  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> ListDirectory(const std::string& path) override;
  absl::StatusOr<FileType> TypeOf(const std::string& path) override;
  absl::StatusOr<DirectoryStamp> StampDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRead(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, bool direct) override;
  absl::StatusOr<std::unique_ptr<File>> CreateReadable(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> OpenForRewrite(const std::string& path, bool direct) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  absl::StatusOr<std::string> ReadNote(const std::string& path, size_t bytes_max) override;
  absl::StatusOr<std::unique_ptr<IoQueue>> NewIoQueue(IoQueueKind kind, size_t depth) override;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_SIMULATED_DISK_H_
