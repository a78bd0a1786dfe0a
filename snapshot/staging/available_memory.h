// The memory that the system can still give to this process. The kernel refuses only by killing: it hands out addresses
// freely, and pages when they are touched.

#ifndef TIDEMARK_SNAPSHOT_STAGING_AVAILABLE_MEMORY_H_
#define TIDEMARK_SNAPSHOT_STAGING_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>

namespace tidemark {

struct AvailableMemory {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  std::string limit = "no limit is known";  // the limit's name, for people: "MemAvailable of /proc/meminfo"
};

// The least of MemAvailable and of the memory that each memory cgroup of this process has left, version 2 or 1, up to
// the root. The cache of files that a cgroup holds counts as available, as it does for MemAvailable: the kernel drops
// it first. A file that cannot be read sets no limit. `root`: the folder that has proc/ and sys/; a test has its own.
AvailableMemory ReadAvailableMemory(const std::string& root = "/");

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_AVAILABLE_MEMORY_H_
