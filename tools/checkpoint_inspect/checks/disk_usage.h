// What a store's directory takes on its disk, by what it is for.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_USAGE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_USAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace tidemark::inspect {

// Bytes of blocks that are allocated (st_blocks), those of directories included. A file of several names counts once.
struct DiskUsage {
  uint64_t steps = 0;           // folders of the attempts that the records name
  uint64_t other_attempts = 0;  // the others in steps/: of deleted or replaced steps, or of a save that is on its way
  uint64_t quarantine = 0;
  uint64_t journal = 0;
  uint64_t index = 0;
  uint64_t broken_journals = 0;  // journal.broken-*, and manifest.broken-* of the first format
  uint64_t retired = 0;          // the retired shard
  uint64_t other = 0;            // everything else, be it the store's or not
  size_t unread = 0;             // directories that could not be looked into; that they are gone by now does not count

  uint64_t total() const {
    return steps + other_attempts + quarantine + journal + index + broken_journals + retired + other;
  }
};

struct FileSystemRoom {
  uint64_t free_bytes = 0;  // that are not root's alone
  uint64_t total_bytes = 0;
};

// Walks the store's directory and follows no link beneath it. `step_folders`: the names in steps/ that count as steps.
// An error: the directory itself cannot be opened.
absl::StatusOr<DiskUsage> MeasureDisk(const std::string& directory, const std::set<std::string>& step_folders);

// Of the file system that the directory lies on. nullopt where that does not tell; quotas are not known either.
std::optional<FileSystemRoom> MeasureRoom(const std::string& directory);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_DISK_USAGE_H_
