// The memory that staging arenas are made of: taken from the system and touched once, so that copying into it is a
// copy and nothing else (a page that is touched for the first time copies 25 to 40 times slower than a warm one).

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "snapshot/staging/copy_pool.h"

namespace tidemark {

struct StagingMemory {
  std::shared_ptr<std::byte> data;  // aligned to 4096 bytes
  std::string kind;                 // "locked", "not locked: REASON" or "pinned": what the driver of a device gave
};

// What mappings are rounded up to: huge pages from their size on, else pages.
size_t RoundUpToPages(size_t bytes);

// Anonymous memory, in huge pages where the system has them, every page present, locked where that is allowed. The
// threads of `pool` share the touching. kResourceExhausted: the system has not as much. Precondition: `bytes` is a
// result of RoundUpToPages.
absl::StatusOr<StagingMemory> MapStagingMemory(size_t bytes, CopyPool& pool);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGING_MEMORY_H_
