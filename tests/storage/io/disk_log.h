// What was done to a simulated disk, operation by operation, and what of it a loss of power may undo.
//
// Any operation that no sync covers may be lost while later ones are kept, and a write may be torn at any multiple of
// 512 bytes. A sync covers what was logged before it was called:
//   SyncData(file)        the writes, allocations and truncations of that file (not its name);
//   SyncDirectory(dir)    the names made, replaced and removed in that directory (not what the names stand for).
// A link is an operation of the directory of the new name. A rename within a directory is one operation: it is there
// whole or not at all. One across directories is, too, and takes the syncs of both. A sync that failed covers nothing,
// and what it should have covered no later one does: the kernel may have dropped what could not be written, and call it
// clean. Not lost either, for want of a difference, is what was done to a file or in a directory whose removal is
// covered, together with all that ever named it.

#ifndef TIDEMARK_TESTS_STORAGE_IO_DISK_LOG_H_
#define TIDEMARK_TESTS_STORAGE_IO_DISK_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/storage/io/disk_image.h"

namespace tidemark::storage {

struct DiskOperation {
  enum class Kind {
    kCreateFile,       // node, in parent under name
    kCreateDirectory,  // node, in parent under name
    kRename,           // parent/name, which is node, becomes new_parent/new_name instead of `replaced`
    kLink,             // parent/name, which is the file node, is new_parent/new_name as well
    kRemove,           // parent/name, which is node: a file or an empty directory
    kWrite,            // bytes at offset
    kAllocate,         // the file is at least `offset` long
    kTruncate,         // the file is `offset` long
    kSyncData,         // of node; a barrier for the operations before it
    kSyncDirectory,    // of node
    kFailedSync,       // of node, a file or a directory
    kMark,             // nothing on the disk: `name` is what a test says has been promised by now
  };
  static constexpr size_t kNever = ~size_t{0};

  Kind kind = Kind::kMark;
  uint64_t node = 0;
  uint64_t parent = 0;
  uint64_t new_parent = 0;
  uint64_t replaced = 0;  // by a rename; 0: nothing was there
  std::string name;
  std::string new_name;
  uint64_t offset = 0;
  std::shared_ptr<const std::string> bytes;
  std::string path;      // for people: what it was done to, as it was called then
  std::string new_path;  // of a rename or link
  // The index of the first sync in the log with which it is sure to survive; its own for syncs, failed or not, and
  // marks.
  size_t durable_from = kNever;
  // The index of the first operation with which no later state can tell whether it is kept.
  size_t moot_from = kNever;

  bool IsData() const { return kind == Kind::kWrite || kind == Kind::kAllocate || kind == Kind::kTruncate; }
  bool IsName() const { return kind <= Kind::kRemove; }
  // By a crash just before operation `prefix`, which is later.
  bool MayBeLostAt(size_t prefix) const { return durable_from >= prefix && moot_from >= prefix; }

  // One line: "write /steps/0000000001-x/shard-00000-of-00001.tmk [4096, 8192)".
  std::string ToString() const;
};

// What a crash does to one operation that no sync covers.
struct LostOperation {
  size_t index = 0;
  // Of a write, which of its 512-byte sectors are lost: those whose bit is set in sector_mask, sector i by bit i % 64.
  // All ones, or any other kind of operation: all of it. Sectors are counted from the file's offset 0, so the first
  // and last of a write may be parts. A file is as long as if a write that is lost in part were there: what was lost
  // reads as what was there before, or as zeros.
  uint64_t sector_mask = kAllSectors;
};

// What was done to a disk since it was booted. A value.
struct DiskLog {
  DiskImage boot;
  std::vector<DiskOperation> operations;

  // Fills durable_from and moot_from of all operations. What SimulatedDisk gives has them.
  void Settle();

  // Indices below `prefix` of what power loss just before operation `prefix` may undo, in order.
  std::vector<size_t> Unsynced(size_t prefix) const;
  // The disk after the first `prefix` operations, with `lost` undone (each of them in Unsynced(prefix), in order).
  DiskImage StateAfter(size_t prefix, const std::vector<LostOperation>& lost = {}) const;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_DISK_LOG_H_
